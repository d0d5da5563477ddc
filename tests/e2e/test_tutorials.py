"""The pages of docs/tutorials run as they stand, and what they say holds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.service_process import ServiceProcess
from veilset.core.estimates.intervals import binomial_interval

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
CONFIDENCE = 1 - 1e-8
"""Of each statistical check below; there are about 20, so a run raises a false alarm with chance below 1e-6."""


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial_runner", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page(
    request: pytest.FixtureRequest, service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What a page's code defined; its figure has to be there."""
    for name in ("VEILSET_SERVER", "VEILSET_REDIS", "TUTORIAL_FIGURES"):
        monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.setenv("LIST_SIZE", "20000")  # of the page that takes them
    monkeypatch.setenv("LIST_DAYS", "6")
    names: dict[str, Any] = _runner().run(request.param, service.address, service.redis, tmp_path)
    (figure,) = tmp_path.iterdir()
    assert figure.name == f"{request.param}.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert (FOLDER / "figures" / figure.name).stat().st_size > 10_000
    return names


@pytest.mark.parametrize("page", ["anonymous_login"], indirect=True)
def test_anonymous_login(page: dict[str, Any]) -> None:
    """`check` costs no more than the best other policy. A mean of 20,000 visits strays by less than 0.007 (one sigma)."""
    assert len(page["subscribers"]) >= 50_000
    bloom, linear = page["plans"].values()
    assert linear.bytes < bloom.bytes / 7
    assert linear.false_positive_rate < bloom.false_positive_rate
    assert page["gateway"].header.encoding.encoding == "linear"
    measured = page["measured"]
    for place, cost in enumerate(measured.pop("check")):
        assert cost <= min(costs[place] for costs in measured.values()) + 0.06


@pytest.mark.parametrize("page", ["partner_overlap"], indirect=True)
def test_partner_overlap(page: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Both readers' intervals hold the truth, and sets that were not made alike are told apart by name."""
    webster, gcide, truth = page["webster"], page["gcide"], page["truth"]
    assert min(len(webster), len(gcide)) >= 50_000
    theirs, ours = page["theirs"], page["ours"]
    for found in (theirs.overlap(gcide, CONFIDENCE), theirs.compare(ours, CONFIDENCE).intersection):
        assert found.low <= truth <= found.high
    assert "seed" in str(page["refused"])


@pytest.mark.parametrize("page", ["exclusion_list"], indirect=True)
def test_exclusion_list(page: dict[str, Any]) -> None:
    """Predicted and measured rates agree at each length, and of the linear release."""
    chosen = page["chosen"]
    assert chosen.sum() >= 50_000
    asked = (len(chosen) - int(chosen.sum()), int(chosen.sum()))
    linear = page["linear"]
    assert linear["kilobytes"] < 60
    for number, expected, rate in zip(asked, linear["predicted"], linear["measured"], strict=True):
        low, high = binomial_interval(number, expected, CONFIDENCE)
        assert low / number <= rate <= high / number
    for predicted, measured in zip(page["predicted"], page["measured"], strict=True):
        for number, expected, rate in zip(asked, predicted, measured, strict=True):
            low, high = binomial_interval(number, expected, CONFIDENCE)
            # the share of ones of the vector varies too, from set to set: by 0.1% at most here
            assert low / number - 0.006 <= rate <= high / number + 0.006


@pytest.mark.parametrize("page", ["changing_list"], indirect=True)
def test_changing_list(page: dict[str, Any]) -> None:
    """Rates as planned after the last increment; whole releases under the same promise are hardly better than a coin.

    The means of 20,000 answers stray by less than 0.0035 each (one sigma).
    """
    measured = page["advantages"]
    assert abs(measured["increments"][-1] - page["after"].advantage) < 6 * 0.005
    assert measured["whole releases"][-1] < 0.6
    assert page["spent"]["increments"] == page["total_epsilon"]
    assert page["spent"]["whole releases"] <= page["total_epsilon"] + 1e-6
