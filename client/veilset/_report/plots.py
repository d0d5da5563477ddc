"""Pictures of a plan, as PNG files; needs matplotlib (the extra ``plot``), which is imported only when one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilset.core.encodings import ENCODINGS
from veilset.core.encodings.planning import Plan, PlanRequest, efficiency_curve, planned_decoder
from veilset.core.estimates.answer_curves import operating_points
from veilset.core.privacy.limits import true_positive_limit
from veilset.errors import FailedPrecondition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
"""Bits per element at which the efficiency is drawn."""

_PLAN, _OTHERS, _LIMIT, _COIN = "#1f5fa8", ("#c2571a", "#3f7f3f", "#7f3f7f"), "#333333", "#999999"


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
        raise FailedPrecondition("plot: needs matplotlib; install it with: pip install 'veilset[plot]'") from None
    figure = Figure(figsize=(11.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a screen
    roc, efficiency = figure.subplots(1, 2)
    _draw_roc(roc, request, chosen)
    _draw_efficiency(efficiency, request, chosen)
    privacy = request.privacy
    figure.suptitle(
        f"{request.size:,} elements, ε = {privacy.epsilon:g}, δ = {privacy.delta:g}, {privacy.adjacency}, "
        f"{privacy.calibration}, {privacy.elements_per_user} per user"
    )
    return figure


def _draw_roc(axes: Axes, request: PlanRequest, chosen: Plan) -> None:
    privacy = request.privacy
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 600), np.linspace(0.0, 1.0, 400)])
    rates.sort()
    limit = true_positive_limit(privacy.epsilon, privacy.delta, rates)
    axes.plot(rates, limit, color=_LIMIT, linestyle="--", label="limit: TPR = $e^ε$·FPR + δ, and its mirror image")
    points = operating_points(planned_decoder(chosen.parameters, request))
    mistaken = [point.false_positive_rate for point in points]
    detected = [point.true_positive_rate for point in points]
    axes.plot(mistaken, detected, color=_PLAN, marker=".", label=f"{chosen.parameters.encoding}: every test")
    axes.plot(
        chosen.false_positive_rate,
        chosen.true_positive_rate,
        color=_PLAN,
        marker="o",
        markersize=10,
        linestyle="",
        label=f"plan: {chosen.parameters}",
    )
    axes.plot([0.0, 1.0], [0.0, 1.0], color=_COIN, linestyle=":", label="a coin")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(f"ROC: advantage {chosen.advantage:.3f} of at most {chosen.advantage_limit:.3f}")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize="small")


def _draw_efficiency(axes: Axes, request: PlanRequest, chosen: Plan) -> None:
    others = iter(_OTHERS)
    for name, family in ENCODINGS.items():
        curve = efficiency_curve(family, request, SIZES)
        color = _PLAN if name == chosen.parameters.encoding else next(others)
        axes.plot(
            [size for size, _ in curve], [plan.efficiency for _, plan in curve], color=color, marker=".", label=name
        )
    axes.plot(
        chosen.bits_per_element,
        chosen.efficiency,
        color=_PLAN,
        marker="o",
        markersize=10,
        linestyle="",
        label="plan",
    )
    axes.set_xscale("log", base=2)
    axes.set(xlabel="bits per element", ylabel="efficiency = advantage / limit", ylim=(-0.02, 1.08))
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.set_title("Efficiency by size")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", fontsize="small")
