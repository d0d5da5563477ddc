"""``veilset query`` and ``overlap`` hold as much memory for a long list as for a short one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.peak_memory import peak_of_veilset
from harness.releases import release_bytes
from harness.shapes import FilterParameters

MIB = 1 << 20
LIMIT = 300 * 10**6
MORE = 16 * MIB
"""What a list ten times as long may add: batches are of one size, so only chance."""

SHAPE = FilterParameters(8_000_000, 1, seed=1)
COMMANDS = {
    "answers": ("query", "members", "--from", "{lines}", "--scores"),
    "summary": ("query", "members", "--from", "{lines}", "--summary"),
    "overlap": ("overlap", "members", "{lines}"),
}


def peak(command: str, folder: Path, length: int) -> int:
    """The most memory that a command holds for ``length`` lines."""
    release, lines = folder / "release", folder / f"lines-{length}"
    if not release.exists():
        release.write_bytes(release_bytes([f"user{number}@example.org" for number in range(5000)], SHAPE, 4.0))
    if not lines.exists():
        with lines.open("w") as file:
            file.writelines(f"user{number}@example.org\n" for number in range(length))
    arguments = [argument.format(lines=lines) for argument in COMMANDS[command]]
    found, last = peak_of_veilset(*arguments, "--release", str(release))
    assert last.count(b"\n") >= 1
    return found


def test_a_query_holds_no_more_for_a_longer_list(tmp_path: Path) -> None:
    """Three batches or six: the same."""
    short, longer = (peak("answers", tmp_path, length) for length in (200_000, 400_000))
    assert longer < LIMIT
    assert longer - short < MORE


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", COMMANDS)
def test_ten_million_lines(command: str, tmp_path: Path) -> None:
    """Issue 5: within 300 MB; an overlap's digests go to files."""
    found = peak(command, tmp_path, 10_000_000)
    print(f"{command}: 10,000,000 lines, {found / 1e6:.0f} MB")
    assert found < LIMIT
