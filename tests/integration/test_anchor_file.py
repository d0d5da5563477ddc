"""Where an anchor may be, what it may be, whose it is, that one service holds it, and that it never forgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.programs import veilset
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.errors import FailedPrecondition, InvalidInput, StateCorrupted, Unavailable
from veilset_server.records import Charged, Mark
from veilset_server.state.anchor import FEW_LINES, AnchorFile, open_anchor

NONE = Charged({}, {})

PLACES: dict[str, Callable[[Path], Path]] = {
    "in a folder that is missing": lambda folder: folder / "missing" / "anchor.json",
    "in a file": lambda folder: folder / "file" / "anchor.json",
    "in the state folder": lambda folder: folder / "state" / "anchor.json",
    "deep in the state folder": lambda folder: folder / "state" / "runs" / "anchor.json",
    "in the state folder by a detour": lambda folder: folder / "state" / "runs" / ".." / "anchor.json",
    "in the state folder by a link": lambda folder: folder / "link" / "anchor.json",
    "a link into the state folder": lambda folder: folder / "link to a file",
    "links in a circle": lambda folder: folder / "circle",
    "a folder": lambda folder: folder / "elsewhere",
    "a pipe": lambda folder: folder / "pipe",
    "a device": lambda folder: Path("/dev/zero"),
}

CONTENTS = {
    "nothing": b"",
    "no JSON": b"sequence: 3",
    "nested deeply": b"[" * 200_000,
    "nested deeply under a name": b'{"a":' * 200_000,
    "a number too long to read": b"9" * 100_000,
    "a list": b"[]",
    "of another version": b'{"version": 1, "sets": {}, "accounts": {}, "sha256": ""}',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder, a file, a folder, a pipe, and links."""
    (tmp_path / "state" / "runs").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "state" / "runs")
    (tmp_path / "link to a file").symlink_to(tmp_path / "state" / "anchor.json")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_an_anchor_that_would_protect_nothing_is_refused(place: str, folder: Path) -> None:
    """Naming the option; nothing is made."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(InvalidInput, match=r"^anchor "), open_anchor(PLACES[place](folder), folder / "state"):
        pass
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_that_is_no_anchor_is_refused_unchanged(content: str, folder: Path) -> None:
    """By the same error, whatever is wrong with it."""
    path = folder / "file"
    path.write_bytes(CONTENTS[content])
    with pytest.raises(StateCorrupted, match="not an anchor of this version"), open_anchor(path, folder / "state"):
        pass
    assert path.read_bytes() == CONTENTS[content]


def test_a_symbolic_link_is_followed_and_stays(folder: Path) -> None:
    """Also where it leads to a file that is not there yet; the lock is beside the file that it leads to."""
    path, target = folder / "named", folder / "elsewhere" / "anchor.json"
    path.symlink_to(target)
    for sequence in (1, 2):
        with open_anchor(path, folder / "state") as anchor:
            assert anchor.missing == (sequence == 1)
            anchor.write("s", "s", Mark(sequence, NANO, charge_delta(0.0)))
            with pytest.raises(FailedPrecondition, match="in use"), open_anchor(target, folder / "state"):
                pass
        assert path.is_symlink()
        assert AnchorFile(target).charged().sequences == {"s": sequence}


def test_another_process_cannot_open_an_anchor_that_is_held(folder: Path) -> None:
    """The refusal names the holder; once it is gone, by SIGKILL too, the anchor is free."""
    path = folder / "elsewhere" / "anchor.json"
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom veilset_server.state.anchor import open_anchor\n"
        "with open_anchor(Path(sys.argv[1]), Path(sys.argv[2])):\n    print(flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(path), str(folder / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"\n"
            refusal = f"^anchor: .*anchor.json is in use by process {holder.pid}; each service"
            with pytest.raises(FailedPrecondition, match=refusal), open_anchor(path, folder / "state"):
                pass
        finally:
            holder.kill()
    with open_anchor(path, folder / "state") as anchor:
        assert anchor.missing


def test_one_that_cannot_be_written_is_found_out(folder: Path) -> None:
    """Where no file can be made, and where one can."""
    unwritable = pytest.raises(Unavailable, match=r"^anchor: .*anchor\.json cannot be written")
    with unwritable, open_anchor(Path("/proc/anchor.json"), folder / "state"):
        pass
    with open_anchor(folder / "elsewhere" / "anchor.json", folder / "state") as anchor:
        anchor.raise_to(NONE)
    assert sorted(path.name for path in (folder / "elsewhere").iterdir()) == ["anchor.json", "anchor.json.lock"]


@pytest.mark.parametrize("anchor", ["missing/anchor.json", "state/anchor.json", "/proc/anchor.json", "pipe"])
def test_a_service_does_not_start_without_its_anchor(anchor: str, tmp_path: Path) -> None:
    """One line that names it."""
    os.mkfifo(tmp_path / "pipe")
    done = veilset("serve", "--state", "state", "--port", "0", "--anchor", anchor, cwd=tmp_path)
    assert done.code in (1, 2)
    assert done.out == ""
    (complaint,) = [line for line in done.err.splitlines() if not line.startswith("{")]
    assert complaint.startswith(("veilset: anchor ", "veilset: anchor: "))


def test_an_anchor_belongs_to_the_ledger_that_names_its_id(folder: Path) -> None:
    """A missing one takes on the ledger's; another ledger's is refused and stays as it is."""
    path = folder / "elsewhere" / "anchor.json"
    first = AnchorFile(path)
    first.bind("a" * 32)
    first.write("s", "s", Mark(1, NANO, charge_delta(0.0)))
    before = path.read_bytes()
    again = AnchorFile(path)
    assert again.anchor_id == "a" * 32
    again.bind("a" * 32)
    with pytest.raises(FailedPrecondition, match="belongs to another state folder"):
        again.bind("b" * 32)
    assert path.read_bytes() == before


def test_all_marks_are_raised_in_one_write_and_none_is_lowered(folder: Path) -> None:
    """Sets, operations and accounts apart, ε and δ apart; another process reads the same."""
    path = folder / "elsewhere" / "anchor.json"
    anchor = AnchorFile(path)
    assert anchor.missing
    anchor.write("s", "a", Mark(3, 3 * NANO, charge_delta(1e-9), 4))
    spent = {"a": (4 * NANO, charge_delta(1e-10)), "b": (1, charge_delta(0.0))}
    anchor.raise_to(Charged({"s": 2, "t": 1}, spent, {"s": 3, "u": 8}))
    spent["a"] = (4 * NANO, charge_delta(1e-9))
    again = AnchorFile(path)
    assert anchor.charged() == again.charged() == Charged({"s": 3, "t": 1}, spent, {"s": 4, "u": 8})
    assert not again.missing
    assert again.read("s", "b") == Mark(3, 1, charge_delta(0.0), 4)


def test_what_could_not_be_written_is_part_of_the_next_write(folder: Path) -> None:
    """Also where that one is of another set, or finds that the whole file is gone."""
    volume, gone = folder / "elsewhere", folder / "gone"
    anchor = AnchorFile(volume / "anchor.json")
    anchor.write("s", "s", Mark(1, NANO, charge_delta(1e-9)))
    volume.rename(gone)
    with pytest.raises(Unavailable):
        anchor.write("s", "s", Mark(2, 2 * NANO, charge_delta(2e-9)))
    volume.mkdir()
    anchor.write("t", "t", Mark(1, 1, charge_delta(0.0)))
    sets = json.loads((volume / "anchor.json").read_text())["sets"]
    assert {name: numbers["sequence"] for name, numbers in sets.items()} == {"s": 2, "t": 1}
    assert AnchorFile(volume / "anchor.json").read("s", "s") == Mark(2, 2 * NANO, charge_delta(2e-9))


def test_a_mark_costs_one_line_and_old_lines_go(folder: Path) -> None:
    """However many sets there are; the lock beside the file is all that is left of writing all of them."""
    path = folder / "elsewhere" / "anchor.json"
    anchor = AnchorFile(path)
    anchor.raise_to(Charged({f"set{number}": 1 for number in range(5000)}, {}))
    whole = path.stat().st_size
    for sequence in range(2, FEW_LINES):
        anchor.write("set7", "a", Mark(sequence, NANO, charge_delta(1e-9)))
    assert (path.stat().st_size - whole) / FEW_LINES < 300
    for sequence in range(FEW_LINES, 6000):
        anchor.write("set7", "a", Mark(sequence, NANO, charge_delta(1e-9)))
    assert path.stat().st_size < 2 * whole + 300 * FEW_LINES
    assert AnchorFile(path).charged() == anchor.charged()
    assert AnchorFile(path).read("set7", "a") == Mark(5999, NANO, charge_delta(1e-9))


def test_a_line_that_a_crash_cut_short_costs_its_own_mark(folder: Path) -> None:
    """Wherever it was cut; a changed byte of any line, its end included, is refused. The next write makes it whole."""
    path = folder / "elsewhere" / "anchor.json"
    anchor = AnchorFile(path)
    for sequence in (1, 2, 3):
        anchor.write("s", "s", Mark(sequence, sequence * NANO, charge_delta(0.0)))
    good = path.read_bytes()
    last = good.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(good)):
        path.write_bytes(good[:length])
        assert AnchorFile(path).read("s", "s").sequence == 2
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(StateCorrupted, match="not an anchor of this version"):
            AnchorFile(path)
    path.write_bytes(good[:-9])
    anchor.write("t", "s", Mark(1, NANO, charge_delta(0.0)))
    assert AnchorFile(path).charged() == anchor.charged()
    assert anchor.read("s", "s").sequence == 3
