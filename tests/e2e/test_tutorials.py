"""The pages of docs/tutorials run as they stand, what they say holds, and the notebooks are the pages."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib import pyplot

from harness.notebooks import run_notebook
from harness.service_process import ServiceProcess
from veilset.core.estimates.intervals import binomial_interval

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
CONFIDENCE = 1 - 1e-8
"""Of each statistical check below; there are about 20, so a run raises a false alarm with chance below 1e-6."""


PAGES = ("anonymous_login", "partner_overlap", "exclusion_list", "changing_list")


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial_runner", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the page that takes them; what the pages read from the environment is put back."""
    for name in ("VEILSET_SERVER", "VEILSET_REDIS", "TUTORIAL_FIGURES"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("LIST_SIZE", "20000")
    monkeypatch.setenv("LIST_DAYS", "6")


@pytest.fixture
def page(
    request: pytest.FixtureRequest, service: ServiceProcess, tmp_path: Path, small_lists: None
) -> Iterator[dict[str, Any]]:
    """What a page's code defined; its figure has to be there."""
    names: dict[str, Any] = _runner().run(request.param, service.address, service.redis, tmp_path)
    (figure,) = tmp_path.iterdir()
    assert figure.name == f"{request.param}.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert (FOLDER / "figures" / figure.name).stat().st_size > 10_000
    yield names
    pyplot.close("all")


@pytest.mark.parametrize("name", PAGES)
def test_notebook_is_made_from_the_page(name: str) -> None:
    """`python docs/tutorials/run.py --write` makes the four anew."""
    assert (FOLDER / f"{name}.ipynb").read_text() == _runner().notebook_text(name)


@pytest.fixture(scope="module")
def own_service() -> Iterator[tuple[str, str]]:
    """Address and Redis URL of a service beside that of the pages, which make the same sets."""
    with _runner().service() as found:
        yield found


@pytest.mark.examples
@pytest.mark.parametrize("name", PAGES)
def test_notebook_runs_in_a_kernel(
    name: str, own_service: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_lists: None
) -> None:
    """No cell fails, and the last cell of a picture shows it."""
    monkeypatch.setenv("VEILSET_SERVER", own_service[0])
    monkeypatch.setenv("VEILSET_REDIS", own_service[1])
    monkeypatch.setenv("TUTORIAL_FIGURES", str(tmp_path))
    shown = run_notebook((FOLDER / f"{name}.ipynb").read_text())
    assert any("image/png" in output for output in shown)
    assert name != "anonymous_login" or any("<strong>View</strong>" in output.get("text/html", "") for output in shown)


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
