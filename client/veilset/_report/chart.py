"""Charts of two shares against each other, as SVG to stand within a page: no script, no font, no colour of its own.

Colours come from the page's style by class (``series-1`` …, ``limit``, ``even``), so that they follow its light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _TOP, _SIDE, _RIGHT, _BOTTOM = 58, 10, 400, 24, 46
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y), each in [0, 1]; joined by a line, or dots where ``dots``, of radius ``dot_size``. style: a CSS class.

    A curve without a label is not in the legend.
    """

    label: str
    style: str
    points: Sequence[tuple[float, float]]
    line: bool = True
    dots: bool = False
    dot_size: float = 3.0


def unit_chart(title: str, x_label: str, y_label: str, curves: Sequence[Curve]) -> str:
    """A square chart of [0, 1] by [0, 1], with its legend as an HTML list below."""
    width, height, middle = _LEFT + _SIDE + _RIGHT, _TOP + _SIDE + _BOTTOM, _TOP + _SIDE / 2
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        *map(_grid, _TICKS),
        f'<text x="{_LEFT + _SIDE / 2:g}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text x="14" y="{middle:g}" text-anchor="middle" transform="rotate(-90 14 {middle:g})">{escape(y_label)}</text>',
        *map(_drawn, curves),
        "</svg>",
        '<ul class="legend">',
        *(
            f'<li><span class="swatch {escape(curve.style)}{_dotted(curve)}"></span>{escape(curve.label)}</li>'
            for curve in curves
            if curve.label
        ),
        "</ul>",
    ]
    return "\n".join(parts)


def _dotted(curve: Curve) -> str:
    return "" if curve.line else " dot"


def _place(x: float, y: float) -> tuple[float, float]:
    return _LEFT + _SIDE * x, _TOP + _SIDE * (1.0 - y)


def _grid(tick: float) -> str:
    x, y = _place(tick, tick)
    bottom, right = _TOP + _SIDE, _LEFT + _SIDE
    style = "axis" if tick == 0.0 else "grid"
    return (
        f'<path class="{style}" d="M{x:g} {_TOP}V{bottom}M{_LEFT} {y:g}H{right}"/>'
        f'<text x="{x:g}" y="{bottom + 18}" text-anchor="middle">{tick:.0%}</text>'
        f'<text x="{_LEFT - 8}" y="{y + 4:g}" text-anchor="end">{tick:.0%}</text>'
    )


def _drawn(curve: Curve) -> str:
    places = [_place(x, y) for x, y in curve.points]
    drawn = ""
    if curve.line:
        path = "L".join(f"{x:.2f} {y:.2f}" for x, y in places)
        drawn += f'<path class="curve {escape(curve.style)}" d="M{path}"/>'
    if curve.dots:
        drawn += "".join(
            f'<circle class="{escape(curve.style)}" cx="{x:.2f}" cy="{y:.2f}" r="{curve.dot_size:g}"/>'
            for x, y in places
        )
    return drawn
