"""What results show of themselves: their repr, a table in a notebook, and a progress bar."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import veilset
from harness.notebooks import run_notebook
from harness.releases import PUBLIC_KEY, linear_parameters, release_view
from harness.shapes import FilterParameters
from veilset import Budget, Comparison, Release, SetInfo, Spec, UploadResult
from veilset._display import Displayed
from veilset.core.elements.hashing import key_check
from veilset.core.encodings.planning import PlanRequest
from veilset.core.estimates.intervals import Estimate
from veilset.core.params import Adjacency, HashScheme
from veilset.core.release.header import NoisyCount

MEMBERS = [f"user{number}@example.com" for number in range(2000)]
KEY = bytes(range(32))
VIEW = release_view(MEMBERS, FilterParameters(16_384, 1, HashScheme.BLAKE2B, 11, key_check(KEY)), 4.0, key=KEY)
HEADER = VIEW.header
ESTIMATE = Estimate(1000.0, 900.0, 1100.0, 0.95)
RESULTS: list[Any] = [
    VIEW,
    HEADER,
    VIEW.decoder,
    VIEW.statement,
    VIEW.size(),
    VIEW.overlap(MEMBERS[:100]),
    VIEW.check(MEMBERS[0], prior=0.1),
    Comparison(ESTIMATE, ESTIMATE, ESTIMATE, ESTIMATE, Estimate(0.5, 0.4, 0.6, 0.95)),
    type(linear_parameters(2000, 4.0)).plan(PlanRequest(2000, HEADER.privacy)),
    Release("members", 1, "pending", "request-1", HEADER, (PUBLIC_KEY,), "redis <down>"),
    Budget("<b>", 9.0, 6.0, 3.0, "1e-6", "5e-7", "5e-7", 2, Adjacency.ADD_REMOVE, 1),
    SetInfo("members", HEADER.hashing, HEADER.encoding, HEADER.privacy, HEADER.normalization, "marketing", 0, False),
    Spec(2000, HEADER.hashing, HEADER.encoding, HEADER.privacy, HEADER.normalization),
    UploadResult("u-1", 2000, 0, 3),
]


class Text(HTMLParser):
    """The texts of a page, and its tags, which have to be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_results_show_a_line_and_a_table(result: Any) -> None:
    """The line begins the table, and a sentence ends it; neither has a secret or an element in it."""
    line, page = repr(result), result._repr_html_()
    name = re.escape(type(result).__name__)
    assert re.fullmatch(rf"<{name}: [^\n]{{3,160}}>", line)
    cells = Text(page).cells
    assert "".join(cells).startswith(line[1:-1])
    assert cells[-1].endswith(".")
    for shown in (line, page):
        assert not any(secret in shown for secret in (KEY.hex(), repr(KEY), "@example.com", PUBLIC_KEY.hex()))


def test_all_results_of_the_library_show_themselves() -> None:
    """All public records but parameters and parts; what asks Redis is tried where a Redis is."""
    public = [getattr(veilset, name) for name in veilset.__all__]
    shown = {found for found in public if isinstance(found, type) and issubclass(found, Displayed)}
    assert shown == {type(result) for result in RESULTS} | {veilset.Follower, veilset.RemoteView}


def test_texts_of_others_are_escaped() -> None:
    """A name or a message that looks like HTML is shown as it is."""
    page = RESULTS[10]._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "redis &lt;down&gt;" in RESULTS[9]._repr_html_()


def test_what_a_table_says_is_the_results_own() -> None:
    """Rates, intervals and promises as the fields have them."""
    decoder, overlap = VIEW.decoder, VIEW.overlap(MEMBERS[:100])
    assert f"TPR {decoder.true_positive_rate:.1%}, FPR {decoder.false_positive_rate:.1%}" in repr(VIEW)
    assert f"{overlap.low:,.0f} to {overlap.high:,.0f} at 95% confidence" in repr(overlap)
    assert repr(RESULTS[10]) == "<Budget: <b>: ε = 6 of 9 spent>"
    assert "right at most 98.21% of the time" in VIEW.statement._repr_html_()  # e^4 / (1 + e^4), rounded up


def test_a_release_shows_all_that_was_charged_for_it() -> None:
    """A bought count is on top of the vector's ε."""
    count = NoisyCount(2000, "discrete-laplace", 20.0, 1, 0.5, 0.0)
    counted = replace(HEADER, count=count, total_nano_epsilon=5 * 10**9, limit_nano_epsilon=9 * 10**9)
    for shown in (counted, Release("members", 1, "published", "request-1", counted, (PUBLIC_KEY,))):
        assert "ε = 4.5, δ = 0" in repr(shown)
        assert "ε = 4.5, δ = 0" in shown._repr_html_()


def test_showing_loads_nothing_until_then() -> None:
    """Results cost no report and no matplotlib until one is shown."""
    script = "import sys, veilset; veilset.Plan, veilset.Budget, veilset.View; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "veilset._display" in loaded
    assert not {"veilset._report", "matplotlib", "rich", "html"} & set(loaded)


def test_a_notebook_shows_tables_pictures_and_progress() -> None:
    """In a real kernel."""
    code = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path.endswith("tests")]!r}
import veilset
from unit.test_displays import RESULTS
with veilset.progress("adding", total=3) as show:
    show(3)
RESULTS[10].plot()
RESULTS[10]
"""
    cell: dict[str, Any] = {"id": "only", "cell_type": "code", "metadata": {}, "source": code, "execution_count": None}
    cell["outputs"] = []
    shown = run_notebook(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    kinds = [kind for output in shown for kind in output]
    assert "application/vnd.jupyter.widget-view+json" in kinds  # rich's bar
    assert "image/png" in kinds
    assert RESULTS[10]._repr_html_() in [output.get("text/html") for output in shown]


def test_no_progress_where_no_one_watches(capfd: pytest.CaptureFixture[str]) -> None:
    """Standard error is a file here; a terminal and a notebook are tried by the commands and the notebooks."""
    with veilset.progress("adding", total=3) as show:
        show(3)
    assert capfd.readouterr() == ("", "")
