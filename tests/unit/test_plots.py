"""Pictures of results: what is drawn, what the title says, and the file of a plan."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from harness.shapes import evaluate
from veilset import Budget, Comparison, Overlap
from veilset._report.plots import SIZES, draw_plan, plot_plan
from veilset.core.encodings import ENCODINGS
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.planning import PlanRequest
from veilset.core.estimates.intervals import Estimate
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.core.privacy.limits import true_positive_limit
from veilset.errors import FailedPrecondition

PRIVACY = PrivacyParameters(8.0, 1e-6, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)
REQUEST = PlanRequest(100_000, PRIVACY, bits_per_element=8.0)
CHOSEN = plan(REQUEST)

OVERLAP = Overlap(1234.4, 1180.0, 1290.0, 0.95, 5000, 1234.4)
LEFT, RIGHT, UNION = (Estimate(value, value - 500, value + 900, 0.95) for value in (50_000.0, 61_000.0, 80_000.0))
COMPARISON = Comparison(LEFT, RIGHT, UNION, Estimate(31_210, 29_000, 33_500, 0.95), Estimate(0.39, 0.36, 0.42, 0.95))
BUDGET = Budget("marketing", 9.0, 6.0, 3.0, "1e-6", "5e-7", "5e-7", 2, Adjacency.ADD_REMOVE, 1)
RESULTS = (CHOSEN, OVERLAP, COMPARISON, BUDGET)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Pyplot keeps those that it made."""
    yield
    pyplot.close("all")


def line(axes: Axes, label: str) -> NDArray[np.float64]:
    """The points, (n, 2), of the one line whose label begins so."""
    found = [drawn for drawn in axes.get_lines() if str(drawn.get_label()).startswith(label)]
    assert len(found) == 1
    return np.asarray(found[0].get_xydata())


def test_roc_shows_plan_and_limit() -> None:
    """Every threshold from never to always, the chosen one, all under the limit."""
    roc = draw_plan(REQUEST, CHOSEN).axes[0]
    thresholds = line(roc, "bloom: every test")
    assert thresholds[[0, -1]] == pytest.approx(np.array([[0.0, 0.0], [100.0, 100.0]]))
    limit = line(roc, "limit") / 100
    assert limit[:, 1] == pytest.approx(true_positive_limit(8.0, 0.0, limit[:, 0]))
    assert (thresholds[:, 1] / 100 <= true_positive_limit(8.0, 0.0, thresholds[:, 0] / 100) + 1e-12).all()
    chosen = [100 * CHOSEN.false_positive_rate, 100 * CHOSEN.true_positive_rate]
    assert line(roc, "plan: ").tolist() == [pytest.approx(chosen)]


def test_efficiency_is_drawn_for_every_size() -> None:
    """Every encoding's best at each size, and the plan's own point on the curve of its own."""
    efficiency = draw_plan(REQUEST, CHOSEN).axes[1]
    best = line(efficiency, "bloom")
    assert best[:, 0].tolist() == list(SIZES)
    for name in ENCODINGS:
        assert len(line(efficiency, name))
    assert (np.diff(best[:, 1]) > 0.0).all()
    point = line(efficiency, "plan")
    assert point.tolist() == [[8.0, CHOSEN.efficiency]]
    assert best[SIZES.index(8.0), 1] == CHOSEN.efficiency


def test_file_is_a_png_and_replaces_the_old_one(tmp_path: Path) -> None:
    """1430 × 728 pixels, for a poor explicit setting of a tiny set too."""
    path = tmp_path / "plan.png"
    path.write_bytes(b"old")
    tiny = PlanRequest(3, PRIVACY, max_bytes=10)
    plot_plan(tiny, evaluate(3, PRIVACY, 8, 32), path)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", head[16:]) == (1430, 728)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file is left behind."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "plan.png"
    with pytest.raises(FailedPrecondition, match=r"veilset\[plot\]"):
        plot_plan(REQUEST, CHOSEN, path)
    assert not path.exists()


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_every_picture_has_title_and_named_axes(result: Any) -> None:
    """On a new figure, or on the axes that are given, which are returned; nothing is drawn outside of the limits."""
    given = Figure().subplots()
    assert result.plot(given) is given
    axes = result.plot()
    assert axes is not given
    for drawn in (axes, given):
        assert drawn.get_title()
        assert drawn.get_xlabel().endswith(("(%)", "(number)"))
        assert drawn.get_ylabel().endswith("(%)") or [text.get_text() for text in drawn.get_yticklabels()]
        (left, right), (low, high) = drawn.get_xlim(), sorted(drawn.get_ylim())
        for bar in (found for found in drawn.patches if isinstance(found, Rectangle)):
            assert left <= bar.get_x() <= bar.get_x() + bar.get_width() <= right + 1e-9
            assert low <= bar.get_y() <= bar.get_y() + bar.get_height() <= high


def test_plan_picture_says_what_answers_are_worth() -> None:
    """And with increments where they lead."""
    found, mistaken = 1000 * CHOSEN.true_positive_rate, 1000 * CHOSEN.false_positive_rate
    assert (
        CHOSEN.plot()
        .get_title()
        .startswith(f"Of 1,000 members {found:.0f} are answered yes, of 1,000 others {mistaken:.0f}")
    )
    growing = plan(PlanRequest(100_000, PRIVACY, increments=30))
    last = growing.after(30)
    rates = [100 * last.false_positive_rate, 100 * last.true_positive_rate]
    assert line(growing.plot(), "after 30 increments").tolist() == [pytest.approx(rates)]


def test_overlap_picture_shows_estimate_and_interval() -> None:
    axes = OVERLAP.plot()
    assert widths(axes) == [5000, 1234.4]
    assert "About 1,234 of 5,000 listed elements" in axes.get_title()
    assert "1,180 to 1,290 at 95% confidence" in axes.get_title()
    assert interval(axes, 0) == pytest.approx((1180.0, 1290.0))
    assert "About 0 of 0" in Overlap(0.0, 0.0, 0.0, 0.95, 0, 0.0).plot().get_title()


def test_comparison_picture_shows_four_sizes() -> None:
    """An interval without an upper end reaches the picture's edge and says so."""
    axes = COMPARISON.plot()
    assert widths(axes) == [50_000, 61_000, 80_000, 31_210]
    assert interval(axes, 3) == pytest.approx((29_000.0, 33_500.0))
    assert "39.0% of those in either" in axes.get_title()
    full = Estimate(31_210, 0.0, math.inf, 0.95)
    axes = Comparison(LEFT, RIGHT, Estimate(80_000, 79_000, math.inf, 0.95), full, COMPARISON.jaccard).plot()
    assert interval(axes, 3) == pytest.approx((0.0, axes.get_xlim()[1]))
    assert [text.get_text() for text in axes.texts] == ["no upper limit: may be full"] * 2
    assert "at least 0 at 95%" in axes.get_title()


def test_budget_picture_shows_what_is_left() -> None:
    """δ only where the account has any."""
    axes = BUDGET.plot()
    assert widths(axes) == pytest.approx([200 / 3, 50, 100 / 3, 50])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ε: 6\nof 9", "δ: 5e-07\nof 1e-06"]
    assert "ε = 3 of 9 is left" in axes.get_title()
    assert "at most 99.76% of the time now, 99.99% once all is spent" in axes.get_title()
    fresh = Budget("marketing", 9.0, 0.0, 9.0, "0", "0", "0", 0, Adjacency.ADD_REMOVE, 1).plot()
    assert widths(fresh) == [0, 100]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_plot_without_matplotlib_names_the_extra(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("matplotlib.pyplot")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(FailedPrecondition, match=r"veilset\[plot\]"):
        result.plot()


def interval(axes: Axes, place: int) -> tuple[float, float]:
    """The ends of the bar of uncertainty at a place."""
    bars = [found for found in axes.containers if isinstance(found, ErrorbarContainer)][place].lines[2][0]
    ((low, _), (high, _)) = bars.get_segments()[0]
    return float(low), float(high)


def widths(axes: Axes) -> list[float]:
    """Of the bars, in order."""
    return [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
