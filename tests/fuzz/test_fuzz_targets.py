"""The fuzz targets take their seeds, and what a blunt knife makes of them. The long runs are `make fuzz`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_TARGETS = ("fuzzing", "test_fuzz_targets")
TARGETS = sorted(
    path.stem for path in HERE.glob("*.py") if path.stem not in NOT_TARGETS and path.stem != "rpc_messages"
)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_pieces_of_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the errors that a target names comes of seeds that are cut, doubled, or have a byte changed."""
    monkeypatch.syspath_prepend(str(HERE))
    target = importlib.import_module(name)
    try:
        for seed in target.seeds():
            for data in (seed, seed[: len(seed) // 3], seed[:1] + seed, seed + seed):
                target.one_input(data)
            for place in range(1, len(seed), 1 + len(seed) // 40):
                target.one_input(seed[:place] + bytes([seed[place] ^ 0x41]) + seed[place + 1 :])
    finally:
        sys.modules.pop(name)
