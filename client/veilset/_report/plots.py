"""Pictures of results, and of a plan as a PNG file, with matplotlib (the extra ``plot``), which is imported when one is drawn.

The title of each says what follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veilset._report.notebook import interval_text, of_1000, promise_text, share_text
from veilset.core.encodings import ENCODINGS
from veilset.core.encodings.decoder import make_decoder, operating_points
from veilset.core.encodings.planning import Plan, PlanRequest, efficiency_curve
from veilset.core.privacy.budget import amount_text
from veilset.core.privacy.limits import true_positive_limit
from veilset.core.privacy.statement import accuracy_text
from veilset.errors import FailedPrecondition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from veilset._service.records import Budget
    from veilset.core.estimates.results import Comparison, Overlap

SIZES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
"""Bits per element at which the efficiency is drawn."""

_MAIN, _OTHERS, _LIMIT, _EVEN, _PALE = "#1f5fa8", ("#c2571a", "#3f7f3f", "#7f3f7f"), "#333333", "#999999", "#d8dfe8"
_MISSING = "plot: needs matplotlib; install it with: pip install 'veilset[plot]'"
_FULL = 1.35


def draw_result(result: Any, axes: Axes | None) -> Axes:
    """Draw a result on ``axes``, or on a new figure of pyplot's, which a notebook shows; returns the axes.

    Raises FailedPrecondition if matplotlib is missing.
    """
    if axes is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise FailedPrecondition(_MISSING) from None
        square = isinstance(result, Plan)
        _, axes = pyplot.subplots(figsize=(6.4, 6.0) if square else (7.6, 3.4), layout="constrained")
    draw = next(_DRAWN[kind.__name__] for kind in type(result).__mro__ if kind.__name__ in _DRAWN)
    draw(axes, result)
    return axes


def plot_plan(request: PlanRequest, chosen: Plan, path: Path) -> None:
    """Write `draw_plan` as a PNG; a file at ``path`` is replaced. Raises as it does, and OSError if it cannot be written."""
    draw_plan(request, chosen).savefig(path, format="png", dpi=130)


def draw_plan(request: PlanRequest, chosen: Plan) -> Figure:
    """The plan's ROC curve under the limit that (ε, δ) sets, and every encoding's efficiency against bits per
    element. Raises FailedPrecondition if matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise FailedPrecondition(_MISSING) from None
    figure = Figure(figsize=(11.0, 5.6), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen
    roc, efficiency = figure.subplots(1, 2)
    _draw_plan(roc, chosen)
    _draw_efficiency(efficiency, request, chosen)
    privacy = request.privacy
    figure.suptitle(
        f"{request.size:,} elements, ε = {privacy.epsilon:g}, δ = {privacy.delta:g}, {privacy.adjacency}, "
        f"{privacy.calibration}, {privacy.elements_per_user} per user"
    )
    return figure


def _draw_plan(axes: Axes, plan: Plan) -> None:
    """The ROC curve; with increments the rates after the last one too."""
    privacy, name = plan.privacy, plan.parameters.encoding
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 600), np.linspace(0.0, 1.0, 400)])
    rates.sort()
    limit = true_positive_limit(privacy.epsilon, privacy.delta, rates)
    axes.plot(
        100 * rates, 100 * limit, color=_LIMIT, linestyle="--", label=f"limit of any test under {promise_text(privacy)}"
    )
    points = operating_points(make_decoder(plan.parameters.expected_law(plan.size)))
    mistaken = [100 * point.false_positive_rate for point in points]
    detected = [100 * point.true_positive_rate for point in points]
    axes.plot(mistaken, detected, color=_MAIN, marker=".", label=f"{name}: every test")
    _mark(axes, plan.false_positive_rate, plan.true_positive_rate, _MAIN, f"plan: {plan.parameters}")
    for last in plan.milestones[-1:]:
        text = f"after {last.increments} increments: others {share_text(last.false_positive_rate)}"
        _mark(axes, last.false_positive_rate, last.true_positive_rate, _OTHERS[0], text)
    axes.plot([0.0, 100.0], [0.0, 100.0], color=_EVEN, linestyle=":", label="a coin")
    axes.set(
        xlabel="non-members answered yes: false positive rate (%)",
        ylabel="members answered yes: true positive rate (%)",
        xlim=(-2.0, 102.0),
        ylim=(-2.0, 102.0),
        title=f"Of 1,000 members {of_1000(plan.true_positive_rate)} are answered yes, of 1,000 others "
        f"{of_1000(plan.false_positive_rate)};\na guess at one user's presence is right at most "
        f"{accuracy_text(privacy.epsilon, privacy.delta)} of the time (a coin: 50%)",
    )
    _finish(axes)
    axes.legend(loc="lower right", fontsize="small")


def _mark(axes: Axes, x: float, y: float, color: str, label: str) -> None:
    axes.plot(100 * x, 100 * y, color=color, marker="o", markersize=10, linestyle="", label=label)


def _finish(axes: Axes) -> None:
    """The style of all pictures."""
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.title.set_fontsize("medium")


def _draw_overlap(axes: Axes, overlap: Overlap) -> None:
    size = overlap.own_size
    axes.barh(["the list", "in the set"], [size, overlap.estimate], color=[_PALE, _MAIN], height=0.55)
    _whisker(axes, 1, overlap.estimate, overlap.low, overlap.high)
    share = f", {overlap.estimate / size:.1%} of the list" if size else ""
    axes.set(
        xlabel="distinct elements (number)",
        xlim=(0.0, 1.05 * max(size, 1)),
        title=f"About {overlap.estimate:,.0f} of {size:,} listed elements are in the set{share}\n({interval_text(overlap)})",
    )
    axes.invert_yaxis()
    _numbers(axes)


def _draw_comparison(axes: Axes, comparison: Comparison) -> None:
    found = {
        "left set": comparison.left,
        "right set": comparison.right,
        "in either": comparison.union,
        "in common": comparison.intersection,
    }
    ends = [end for part in found.values() for end in (part.estimate, part.low, part.high) if math.isfinite(end)]
    most = _FULL * max(ends, default=1.0) or 1.0
    colors = [_PALE, _PALE, _PALE, _MAIN]
    axes.barh(list(found), [part.estimate for part in found.values()], color=colors, height=0.6)
    for place, part in enumerate(found.values()):
        _whisker(axes, place, part.estimate, part.low, min(part.high, most))
        if math.isinf(part.high):
            axes.annotate(
                "no upper limit: may be full", (0.99 * most, place - 0.08), ha="right", va="bottom", fontsize="small"
            )
    common, jaccard = comparison.intersection, comparison.jaccard
    axes.set(
        xlabel="distinct elements (number)",
        xlim=(0.0, most),
        title=f"About {common.estimate:,.0f} elements in common ({interval_text(common)}),\n"
        f"{share_text(jaccard.estimate)} of those in either ({interval_text(jaccard, '{:.1%}'.format)})",
    )
    axes.invert_yaxis()
    _numbers(axes)


def _draw_budget(axes: Axes, budget: Budget) -> None:
    """ε, and δ where there is any; each as a share of its total, as they have no common unit."""
    spent_delta, total_delta = (float(text) for text in (budget.delta_spent, budget.delta_total))
    amounts = {"ε": (budget.epsilon_spent, budget.epsilon_total)}
    if total_delta:
        amounts["δ"] = (spent_delta, total_delta)
    names = [f"{name}: {amount_text(spent)}\nof {amount_text(total)}" for name, (spent, total) in amounts.items()]
    spent = np.array([100 * spent / total if total else 0.0 for spent, total in amounts.values()])
    axes.barh(names, spent, color=_MAIN, height=0.5, label="spent")
    axes.barh(names, 100.0 - spent, left=spent, color=_PALE, height=0.5, label="left")
    axes.set(
        xlabel="share of the account's total (%)",
        xlim=(0.0, 100.0),
        ylim=(len(names) - 0.4, -0.9),
        title=f"{budget.account}: ε = {budget.epsilon_left:g} of {amount_text(budget.epsilon_total)} is left.\n"
        f"A guess at one user's presence is right at most {accuracy_text(budget.epsilon_spent, spent_delta)} of the time now, "
        f"{accuracy_text(budget.epsilon_total, total_delta)} once all is spent",
    )
    _finish(axes)
    axes.legend(loc="upper right", ncols=2, fontsize="small")


def _whisker(axes: Axes, place: int, estimate: float, low: float, high: float) -> None:
    """The interval; a comparison's estimate may lie outside its interval only where that is cut to what is drawn."""
    spread = [[max(0.0, estimate - low)], [max(0.0, high - estimate)]]
    axes.errorbar([estimate], [place], xerr=spread, color=_LIMIT, capsize=6, linewidth=1.5)


def _numbers(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    _finish(axes)
    axes.grid(visible=False, axis="y")


def _draw_efficiency(axes: Axes, request: PlanRequest, chosen: Plan) -> None:
    others = iter(_OTHERS)
    for name, family in ENCODINGS.items():
        curve = efficiency_curve(family, request, SIZES)
        color = _MAIN if name == chosen.parameters.encoding else next(others)
        axes.plot(
            [size for size, _ in curve], [plan.efficiency for _, plan in curve], color=color, marker=".", label=name
        )
    axes.plot(
        chosen.bits_per_element,
        chosen.efficiency,
        color=_MAIN,
        marker="o",
        markersize=10,
        linestyle="",
        label="plan",
    )
    axes.set_xscale("log", base=2)
    axes.set(xlabel="bits per element", ylabel="efficiency = advantage / limit", ylim=(-0.02, 1.08))
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.set_title("Efficiency by size")
    _finish(axes)
    axes.legend(loc="best", fontsize="small")


_DRAWN: dict[str, Callable[[Axes, Any], None]] = {
    "Budget": _draw_budget,
    "Comparison": _draw_comparison,
    "Overlap": _draw_overlap,
    "Plan": _draw_plan,
}
