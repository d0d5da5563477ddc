"""Pictures of a plan: what is drawn, and the file."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray

from harness.shapes import evaluate
from veilset._report.plots import SIZES, draw_plan, plot_plan
from veilset.core.encodings import ENCODINGS
from veilset.core.encodings.bloom.planner import plan
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.core.privacy.limits import true_positive_limit
from veilset.errors import FailedPrecondition

PRIVACY = PrivacyParameters(8.0, 1e-6, Adjacency.ADD_REMOVE, Calibration.WORST_CASE)
REQUEST = PlanRequest(100_000, PRIVACY, bits_per_element=8.0)
CHOSEN = plan(REQUEST)


def line(axes: Axes, label: str) -> NDArray[np.float64]:
    """The points, (n, 2), of the one line whose label begins so."""
    found = [drawn for drawn in axes.get_lines() if str(drawn.get_label()).startswith(label)]
    assert len(found) == 1
    return np.asarray(found[0].get_xydata())


def test_roc_shows_plan_and_limit() -> None:
    """Every threshold from never to always, the chosen one, all under the limit."""
    roc = draw_plan(REQUEST, CHOSEN).axes[0]
    thresholds = line(roc, "bloom: every test")
    assert thresholds[[0, -1]].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    limit = line(roc, "limit")
    assert limit[:, 1] == pytest.approx(true_positive_limit(8.0, 0.0, limit[:, 0]))
    assert (thresholds[:, 1] <= true_positive_limit(8.0, 0.0, thresholds[:, 0]) + 1e-12).all()
    assert line(roc, "plan: ").tolist() == [[CHOSEN.false_positive_rate, CHOSEN.true_positive_rate]]


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
    """1430 × 650 pixels, for a poor explicit setting of a tiny set too."""
    path = tmp_path / "plan.png"
    path.write_bytes(b"old")
    tiny = PlanRequest(3, PRIVACY, max_bytes=10)
    plot_plan(tiny, evaluate(3, PRIVACY, 8, 32), path)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", head[16:]) == (1430, 650)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file is left behind."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "plan.png"
    with pytest.raises(FailedPrecondition, match=r"veilset\[plot\]"):
        plot_plan(REQUEST, CHOSEN, path)
    assert not path.exists()
