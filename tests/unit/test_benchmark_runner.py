"""The benchmark runner at toy sizes: every row is there, measured or said to be missing. How fast anything is, is no test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import figures, runner, stopwatch
from benchmarks.ingesting import FAMILY as INGEST
from benchmarks.rows import Family, Measured, Missing, Ratio, Row, Run, at_least, at_most, between
from benchmarks.table import Line, as_json

ROW = Row("toy/one", "work", "peer", at_least(2))


def run_json(path: Path, *arguments: str) -> dict[str, dict[str, object]]:
    """Rows by key."""
    assert runner.main([*arguments, "--quick", "--json", str(path)]) == 0
    return {row["key"]: row for row in json.loads(path.read_text())["rows"]}


def test_a_quick_run_measures_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows by prefix, in the table and in the file, with versions and machine."""
    rows = run_json(tmp_path / "out.json", "--rows", "ask/")
    names = ("rbloom", "fastbloom", "pybloomfilter", "one", "one-linear", "node-bloom", "node-linear")
    assert list(rows) == [f"ask/{name}" for name in names]
    for row in rows.values():
        measured = row["measured"]
        assert (row["reached"] == "missing") == (measured is None) == bool(row["problem"])
        if isinstance(measured, dict):
            assert 0 < measured["low"] <= measured["value"] <= measured["high"]
    shown = capsys.readouterr().out
    assert "contains_many" in shown
    assert "load_average" in shown
    assert "numpy" in shown


def test_a_missing_peer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As missing, with the package's name; and so is one that does not run."""

    def gone(run: Run) -> Measured:
        raise ImportError("no module named absent")

    def broken(run: Run) -> Measured:
        raise Missing("it does not start")

    absent = Family("toy", (ROW,), gone, {"absent-package": "absent_package_of_no_name"})
    for family, words in ((absent, "absent-package"), (Family("toy", (ROW,), broken, {}), "does not start")):
        monkeypatch.setattr(runner, "_family", lambda name, family=family: family)
        monkeypatch.setattr(runner, "FAMILIES", ("toy",))
        row = run_json(tmp_path / "out.json")["toy/one"]
        assert row["reached"] == "missing"
        assert words in str(row["problem"])


def test_a_fault_of_ours_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with 1, and the row says so."""

    def fails(run: Run) -> Measured:
        raise AssertionError("wrong result")

    monkeypatch.setattr(runner, "_family", lambda name: Family("toy", (ROW,), fails, {}))
    monkeypatch.setattr(runner, "FAMILIES", ("toy",))
    assert runner.main(["--quick", "--json", str(tmp_path / "out.json")]) == 1


def test_targets() -> None:
    """Reached at the limit itself; between takes both ends."""
    assert at_least(2).reached(2.0)
    assert not at_least(2).reached(1.99)
    assert at_most(5).reached(5.0)
    assert not at_most(5).reached(5.01)
    assert [between(9, 11).reached(value) for value in (8.9, 9.0, 11.0, 11.1)] == [False, True, True, False]


def test_ratios_are_medians_of_pairs() -> None:
    """Turn by turn, so that a slow moment of the machine falls on both; weights for unequal amounts of work."""
    timings = stopwatch.Timings({"ours": [1.0, 2.0, 4.0], "theirs": [2.0, 8.0, 8.0]})
    assert timings.times_faster("ours", "theirs") == Ratio(2.0, 2.0, 4.0, 3, "2 s", "8 s")
    assert timings.times_faster("ours", "theirs", weight=10).value == 20.0
    assert timings.times_slower("ours", "theirs").value == 0.5


def test_everything_takes_its_turn() -> None:
    """One round that does not count, then so many as asked for, in changing order; what is to be done before is."""
    seen: list[str] = []
    work = {name: lambda name=name: seen.append(name) for name in "ab"}
    timings = stopwatch.take_turns(work, 3, {"b": lambda: seen.append("before b")})
    assert " ".join(seen) == "before b b a a before b b before b b a a before b b"
    assert {name: len(seconds) for name, seconds in timings.seconds.items()} == {"a": 3, "b": 3}


def test_every_row_has_a_key_of_its_family() -> None:
    """And no two rows share one."""
    families = [runner._family(name) for name in runner.FAMILIES]
    keys = [row.key for family in families for row in family.rows]
    assert len(set(keys)) == len(keys)
    assert all(row.key.startswith(family.name + "/") for family in families for row in family.rows)
    assert INGEST in families


def test_the_document_has_figures_of_every_row() -> None:
    """A row that is new, or renamed, shows as one that was not measured."""
    document = (Path(__file__).parents[2] / figures.DOCUMENT).read_text()
    keys = [row.key for name in runner.FAMILIES for row in runner._family(name).rows]
    assert re.findall(r"^\| `([\w./-]+)` \| .* \| (?:yes|no|missing) \|$", document, flags=re.MULTILINE) == keys


def test_figures_are_put_between_their_marks() -> None:
    """And nothing else changes; what is missing says why."""
    line = Line(ROW, None, "not installed: peer")
    machine = {"cores": 2, "memory_gib": 23.6, "python": "3.11.7", "load_average": 0.1, "load_average_after": 0.2}
    shown = figures.as_markdown(as_json([line], machine, {"numpy": "2.0"}))
    assert "| `toy/one` |  |  |  | not installed: peer | ≥ 2 | missing |" in shown
    document = f"before\n{figures.BEGIN}old\n{figures.END}behind\n"
    assert figures.replace_figures(document, shown) == f"before\n{figures.BEGIN}{shown}{figures.END}behind\n"
    with pytest.raises(ValueError, match="marks"):
        figures.replace_figures("nothing", shown)
