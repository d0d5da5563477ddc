"""docs/scale.md: its table is what its script prints from its rates, and what it says of the contract holds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.params import MAX_BITS
from veilset_server.settings import Settings

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "scale.md").read_text()


def test_the_table_is_what_the_script_prints() -> None:
    """A change of a rate, or of the planner, has to print it anew."""
    done = subprocess.run([sys.executable, "docs/scale.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 14
    assert done.stdout in DOCUMENT


def load_script() -> ModuleType:
    """docs/scale.py as a module."""
    found = importlib.util.spec_from_file_location("scale", ROOT / "docs" / "scale.py")
    assert found is not None
    assert found.loader is not None
    scale = importlib.util.module_from_spec(found)
    sys.modules["scale"] = scale
    found.loader.exec_module(scale)
    return scale


def test_everything_that_it_measures_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """At toy sizes; the figures in the document are of the same kinds, and the picture is drawn from them."""
    scale = load_script()
    monkeypatch.setattr(scale, "REPEATS", 1)
    toys = {"n": 100, "m": 8000, "sets": 3, "releases": 3}
    monkeypatch.setattr(scale, "GROWTH", {name: (name, [size]) for name, size in toys.items()})
    assert all(rate > 0 for rate in scale.measure(80_000, 1000).values())
    measured = {name for name, _, seconds in scale.measure_growth() if seconds > 0}
    told = scale.read_growth(DOCUMENT)
    assert measured == told.keys()
    assert all(len(points) >= 4 for points in told.values())


def test_amounts_and_durations_read_well() -> None:
    """Two digits, in the unit that a person would choose."""
    scale = load_script()
    assert [scale.amount(10**6), scale.amount(1 << 37), scale.amount(5 << 40)] == ["980 KiB", "130 GiB", "5 TiB"]
    assert [scale.duration(value) for value in (0.0, 1.26, 89, 90, 7200, 2e5)] == [
        "0.01 s", "1.3 s", "89 s", "1.5 min", "2 h", "2.3 days",
    ]  # fmt: skip


def test_its_limits_are_the_codes() -> None:
    """Chunks, longest vector, default cap, and the public calls in its examples."""
    assert CHUNK_BYTES == 1 << 20
    assert f"--max-bits {MAX_BITS}" in DOCUMENT
    assert Settings(state=Path("state")).max_bits == 1 << 35
    assert re.search(r"`make large`", DOCUMENT)
    assert "large:" in (ROOT / "Makefile").read_text()
