"""The demo, as a fresh user runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.programs import veilset
from veilset.core.estimates.intervals import binomial_interval

CONFIDENCE = 1 - 1e-7
"""Of the interval around each predicted rate; members that share a bit widen the truth by a hundredth."""


def check(result: dict[str, Any], streamed: int, held_out: int) -> None:
    """Counts, rates, keys and charges of a demo's report."""
    assert (result["streamed"], result["held_out"]) == (streamed, held_out)
    assert list(result["encodings"]) == ["bloom", "linear"]
    for encoding, found in result["encodings"].items():
        for rate, asked in (("true_positive_rate", streamed), ("false_positive_rate", held_out)):
            row = found["rates"][rate]
            low, high = binomial_interval(asked, row["predicted"], CONFIDENCE)
            assert row["asked"] == asked
            assert low <= round(row["measured"] * asked) <= high, row
            assert row["interval"][0] <= row["predicted"] <= row["interval"][1]
        name = f"veilset:demo-{encoding}"
        assert 200 < result["redis"].pop(f"{name}:1:manifest") < 1000
        assert result["redis"].pop(f"{name}:1:bits:0") == found["bytes"]
        assert result["redis"].pop(f"{name}:latest") == 1
        assert found["budget"] == {"epsilon_spent": 5.0, "epsilon_total": 10.0}
    assert result["redis"] == {}
    small, large = (result["encodings"][encoding] for encoding in ("linear", "bloom"))
    assert small["bytes"] < large["bytes"] / 4
    assert small["rates"]["false_positive_rate"]["predicted"] < large["rates"]["false_positive_rate"]["predicted"]


def assert_nothing_runs(folder: Path) -> None:
    """Neither service nor Valkey is left."""
    own = [p for p in psutil.process_iter(["cwd"]) if str(p.info["cwd"] or "").startswith(str(folder))]
    assert own == []


def test_the_demo_on_the_real_list_and_then_on_ones_own(tmp_path: Path) -> None:
    """At least 50,000 real entries, rates as predicted. The next run starts over, and people get it as a report."""
    done = veilset("demo", "--json", cwd=tmp_path)
    result = done.json()
    assert result["streamed"] + result["held_out"] >= 50_000
    assert "mailchecker" in result["origin"]
    check(result, result["streamed"], result["held_out"])
    assert "asking from another process" in done.err
    assert_nothing_runs(tmp_path)
    lists = [tmp_path / f"demo-state-{name}.txt" for name in ("members", "non-members")]
    assert [path.stat().st_mode & 0o777 for path in lists] == [0o600, 0o600]
    lists[0].chmod(0o644)

    own = tmp_path / "own.txt"
    own.write_text("".join(f"entry {number % 3000}\n\n" for number in range(6000)))
    report = veilset("demo", "--file", own, cwd=tmp_path)
    assert report.code == 0
    assert lists[0].stat().st_mode & 0o777 == 0o600
    for part in (
        "2700 entries streamed, 300 held out",
        "members answered yes (TPR)",
        "others answered yes (FPR)",
        "bloom: ",
        "linear: ",
        "veilset:demo-linear:1:bits:0",
        "charged: ε 5 of 10; unit: one entry, relation: add-remove",
        "Try it:",
    ):
        assert part in report.out
    assert_nothing_runs(tmp_path)


@pytest.mark.parametrize("content", ["nothing of ours", ""], ids=["a foreign folder", "an empty folder"])
def test_the_demo_removes_only_its_own_state(content: str, tmp_path: Path) -> None:
    """A folder with anything else in it is left alone."""
    own = tmp_path / "own.txt"
    own.write_text("one\n" * 5)
    state = tmp_path / "state"
    state.mkdir()
    if content:
        (state / "letter.txt").write_text(content)
    done = veilset(
        "demo", "--file", own if not content else "-", "--state", state, stdin=b"\n".join(b"%d" % i for i in range(50))
    )
    assert done.code == 2
    assert ("state" if content else "different entries") in done.complaint()
    assert [path.name for path in state.iterdir()] == (["letter.txt"] if content else [])
