"""A release as one page of HTML that stands by itself: no script, nothing loaded, every text escaped.

Each number stands in a ``<data>`` element whose value is that of the JSON, so that the page can be read by programs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from veilset._reader.view import View
from veilset._report.curves import posterior_chart, roc_chart
from veilset._report.facts import describe_release
from veilset.core.estimates.intervals import confidence_text

_RATES = {
    "true_positive_rate": "members answered yes (TPR)",
    "false_positive_rate": "others answered yes (FPR)",
    "advantage": "advantage, TPR - FPR",
    "advantage_limit": "largest advantage of any test",
    "efficiency": "share of it that is reached",
}
_PARAMETERS = {
    "set": "set",
    "sequence": "sequence",
    "created_at": "made at",
    "generation": "sequence of its base release",
    "increment": "increments before it, itself included",
    "planned_increments": "increments that may follow the base",
    "removals_epsilon": "ε for vectors of removed elements",
    "encoding": "encoding",
    "capacity": "elements it is made for",
    "saturated": "vector saturated",
    "bytes": "bytes",
    "scheme": "scheme",
    "seed": "seed",
    "shared_seed": "seed known before the data",
    "normalization": "normalisation",
    "epsilon": "ε of the bits",
    "delta": "δ of the bits",
    "adjacency": "neighbouring relation",
    "calibration": "calibration",
    "elements_per_user": "elements per user",
    "min_size": "promised least size",
    "total_epsilon": "ε charged to the account so far",
    "total_delta": "δ charged to the account so far",
    "limit_epsilon": "ε that the account may spend in all",
    "limit_delta": "δ that the account may spend in all",
}
_COUNT = {
    "value": "noisy count of distinct digests",
    "mechanism": "noise of the count",
    "scale": "its scale",
    "sensitivity": "its sensitivity",
    "epsilon": "ε of the count",
    "delta": "δ of the count",
}


def release_page(view: View, *, pinned: bool, has_key: bool = False) -> str:
    """The page. pinned: as in `describe_release`. has_key: whether the view was opened with a keyed scheme's secret."""
    facts = describe_release(view, pinned=pinned)
    folder = files("veilset._report")
    return Template(folder.joinpath("page.html").read_text("utf-8")).substitute(
        style=folder.joinpath("page.css").read_text("utf-8"),
        name=escape(f"{facts['set']}/{facts['sequence']}"),
        created_at=escape(str(view.created_at.strftime("%d %B %Y, %H:%M UTC"))),
        states=_states(facts, has_key),
        promise="\n".join(f"<p>{escape(line)}</p>" for line in str(view.statement).splitlines()),
        worth=_worth(facts),
        tiles="\n".join(
            f"<div><dt>{escape(text)}</dt><dd>{_share(name, facts[name])}</dd></div>" for name, text in _RATES.items()
        ),
        roc_chart=roc_chart(facts),
        roc_table=_table("roc", ("accepts_from", "false_positive_rate", "true_positive_rate"), facts["roc"]),
        posterior_chart=posterior_chart(facts, view.decoder),
        posterior_table=_table(
            "posteriors", ("prior", "after_yes", "after_no", "largest", "smallest"), facts["posteriors"]
        ),
        size=_size(facts["size"]),
        parts=_table("parts", tuple(facts["parts"][0]), facts["parts"]),
        parameters=_parameters(facts, view),
        signature=_signature(facts, has_key),
    )


def _data(path: str, value: object, shown: str | None = None) -> str:
    """A value of the JSON, named by its path there."""
    text = _text(value)
    raw = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f'<data data-path="{escape(path)}" value="{escape(raw)}">{escape(text if shown is None else shown)}</data>'


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _share(path: str, value: float) -> str:
    return _data(
        path, value, f"{value:.2%}" if value in (0.0, 1.0) or 0.001 <= value <= 0.999 else f"{100 * value:.4g}%"
    )


def _worth(facts: Mapping[str, Any]) -> str:
    if facts["true_positive_rate"] == 0.0:
        return "This release answers no to every question: its vector is saturated, or its ε too small."
    yes, wrong = facts["true_positive_rate"], facts["false_positive_rate"]
    return escape(
        f"Of 1000 members about {1000 * yes:.0f} are answered yes, of 1000 others about {1000 * wrong:.0f}. No test of a "
        "release under this promise could do better than the dashed line."
    )


def _states(facts: Mapping[str, Any], has_key: bool) -> str:
    trusted = facts["signature"]["trusted"]
    states = [
        ("good", "signed by a key you trust")
        if trusted
        else ("warn", "whole, but signed by a key that no one vouched for")
    ]
    if facts["key_check"] is not None:
        states.append(("good", "your secret fits") if has_key else ("warn", "answers need a secret"))
    return "\n".join(f'<span class="state {style}">{escape(text)}</span>' for style, text in states)


def _table(path: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    body = [
        "<tr>" + "".join(f"<td>{_cell(f'{path}.{index}.{column}', row[column])}</td>" for column in columns) + "</tr>"
        for index, row in enumerate(rows)
    ]
    return f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def _cell(path: str, value: object) -> str:
    return _share(path, value) if isinstance(value, float) else _data(path, value, _grouped(path, value))


def _size(size: Mapping[str, Any] | None) -> str:
    if size is None:
        return "The vector does not show its size; buy a noisy count with a release (publish --count-epsilon)."
    estimate, low = (_data(f"size.{name}", size[name], f"{size[name]:,.0f}") for name in ("estimate", "low"))
    source, sure = _data("size.source", size["source"]), confidence_text(size["confidence"])
    if size["high"] is None:
        return f"At least {low} distinct elements at {sure}, from its {source}: the vector is saturated."
    high = _data("size.high", size["high"], f"{size['high']:,.0f}")
    return f"About {estimate} distinct elements, {low} to {high} at {sure} confidence, from its {source}."


def _parameters(facts: Mapping[str, Any], view: View) -> str:
    encoding = view.header.encoding
    own = {
        name: name.replace("_", " ") for name in (encoding.fields() | encoding.facts() | dict(view.decoder.law.facts))
    }
    shown = _PARAMETERS | own
    rows = [(text, _data(name, facts[name], _grouped(name, facts[name]))) for name, text in shown.items()]
    if facts["count"] is not None:
        rows += [(text, _data(f"count.{name}", facts["count"][name])) for name, text in _COUNT.items()]
    return _rows(rows)


def _grouped(name: str, value: object) -> str | None:
    """Thousands apart in counts; a seed is no count."""
    return f"{value:,}" if type(value) is int and name != "seed" else None


def _signature(facts: Mapping[str, Any], has_key: bool) -> str:
    state = "valid; one of the keys below is a key you trust"
    if not facts["signature"]["trusted"]:
        state = (
            "valid, which shows that the release is whole, not who made it: give the service's key by "
            '<code class="option">--public-key</code>'
        )
    rows = [("signature", state)]
    for index, key in enumerate(facts["signature"]["keys"]):
        path = f"signature.keys.{index}"
        rows.append(
            (
                f"key {index + 1}",
                f"<code>{_data(f'{path}.key_id', key['key_id'])} {_data(f'{path}.public_key', key['public_key'])}</code>",
            )
        )
    check = facts["key_check"]
    if check is None:
        rows.append(("secret", escape(f"none: scheme {facts['scheme']} has no check value, or no secret")))
    else:
        fits = "the one that this page was made with" if has_key else "not given; without it no one can ask"
        rows.append(("secret", f"check value <code>{_data('key_check', check)}</code>, {escape(fits)}"))
    return _rows(rows)


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in rows)
    return f"<table><tbody>{body}</tbody></table>"
