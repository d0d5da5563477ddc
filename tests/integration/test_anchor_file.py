"""Where an anchor may be, that a start finds out whether it can be written, and that it never forgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.programs import veilset
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.errors import InvalidInput, Unavailable
from veilset_server.records import Charged, Mark
from veilset_server.state.anchor import AnchorFile, open_anchor

NONE = Charged({}, {})

PLACES: dict[str, Callable[[Path], Path]] = {
    "in a folder that is missing": lambda folder: folder / "missing" / "anchor.json",
    "in a file": lambda folder: folder / "file" / "anchor.json",
    "in the state folder": lambda folder: folder / "state" / "anchor.json",
    "deep in the state folder": lambda folder: folder / "state" / "vectors" / "anchor.json",
    "in the state folder by a detour": lambda folder: folder / "state" / "vectors" / ".." / "anchor.json",
    "in the state folder by a link": lambda folder: folder / "link" / "anchor.json",
    "a folder": lambda folder: folder / "elsewhere",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder, a file, a folder, and a link into the first."""
    (tmp_path / "state" / "vectors").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "state" / "vectors")
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_an_anchor_that_would_protect_nothing_is_refused(place: str, folder: Path) -> None:
    """Naming the option; nothing is made."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(InvalidInput, match=r"^anchor: "):
        open_anchor(PLACES[place](folder), folder / "state")
    assert sorted(folder.rglob("*")) == before


def test_one_that_cannot_be_written_is_found_out(folder: Path) -> None:
    """Where no file can be made, and where one can."""
    with pytest.raises(Unavailable, match=r"^anchor: .*anchor\.json cannot be written"):
        open_anchor(Path("/proc/anchor.json"), folder / "state").raise_to(NONE)
    open_anchor(folder / "elsewhere" / "anchor.json", folder / "state").raise_to(NONE)
    assert [path.name for path in (folder / "elsewhere").iterdir()] == ["anchor.json"]


@pytest.mark.parametrize("anchor", ["missing/anchor.json", "state/anchor.json", "/proc/anchor.json"])
def test_a_service_does_not_start_without_its_anchor(anchor: str, tmp_path: Path) -> None:
    """One line that names it."""
    done = veilset("serve", "--state", "state", "--port", "0", "--anchor", anchor, cwd=tmp_path)
    assert done.code in (1, 2)
    assert done.out == ""
    (complaint,) = [line for line in done.err.splitlines() if not line.startswith("{")]
    assert complaint.startswith("veilset: anchor: ")


def test_all_marks_are_raised_in_one_write_and_none_is_lowered(folder: Path) -> None:
    """Sets and accounts apart, ε and δ apart; another process reads the same."""
    path = folder / "elsewhere" / "anchor.json"
    anchor = AnchorFile(path)
    assert anchor.missing
    anchor.write("s", "a", Mark(3, 3 * NANO, charge_delta(1e-9)))
    anchor.raise_to(Charged({"s": 2, "t": 1}, {"a": (4 * NANO, charge_delta(1e-10)), "b": (1, charge_delta(0.0))}))
    expected = Charged({"s": 3, "t": 1}, {"a": (4 * NANO, charge_delta(1e-9)), "b": (1, charge_delta(0.0))})
    again = AnchorFile(path)
    assert anchor.charged() == again.charged() == expected
    assert not again.missing
    assert again.read("s", "b") == Mark(3, 1, charge_delta(0.0))


def test_what_could_not_be_written_is_part_of_the_next_write(folder: Path) -> None:
    """Also where that one is of another set, or finds that the whole file is gone."""
    volume, gone = folder / "elsewhere", folder / "gone"
    anchor = open_anchor(volume / "anchor.json", folder / "state")
    anchor.write("s", "s", Mark(1, NANO, charge_delta(1e-9)))
    volume.rename(gone)
    with pytest.raises(Unavailable):
        anchor.write("s", "s", Mark(2, 2 * NANO, charge_delta(2e-9)))
    volume.mkdir()
    anchor.write("t", "t", Mark(1, 1, charge_delta(0.0)))
    assert json.loads((volume / "anchor.json").read_text())["sets"] == {"s": 2, "t": 1}
    assert AnchorFile(volume / "anchor.json").read("s", "s") == Mark(2, 2 * NANO, charge_delta(2e-9))
