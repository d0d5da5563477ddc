"""A failed fsync ends the process with one clear line; and it is asked for where it has to be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from storage_examples import digests_of, new_ledger, open_ledger

from veilset.errors import StateCorrupted
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.durability import storage_errors
from veilset_server.state.run_file import write_run
from veilset_server.state.spool import Spool

USES = {
    "a spool's sync": "spool = Spool(folder / '1-1.spool', 1, 1); armed.append(1); spool.sync()",
    "a new spool": "armed.append(1); Spool(folder / '1-1.spool', 1, 1)",
    "a run": "armed.append(1); write_run(folder / '1-1.run', 1, 1, iter([]))",
    "an artefact": "armed.append(1); ArtefactFiles(folder).write(1, 1, iter([b'x']), 1)",
}
SCRIPT = """
import errno, os, sys
from pathlib import Path
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.run_file import write_run
from veilset_server.state.spool import Spool

armed = []

def fail_if_armed(real):
    def call(*arguments):
        if armed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments)
    return call

os.fsync = fail_if_armed(os.fsync)
folder = Path(sys.argv[1])
try:
    {use}
except BaseException:
    print("handled")
finally:
    print("carried on")
"""


@pytest.mark.parametrize("use", USES)
def test_a_failed_sync_ends_the_process(tmp_path: Path, use: str) -> None:
    """At once, with status 74 and one line; no handler runs that might carry on."""
    script = SCRIPT.format(use=USES[use].replace("\n", "\n    "))
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"}
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert ended.returncode == os.EX_IOERR, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("veilset: fatal: ")
    assert "Input/output error" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_input_output_error_of_the_ledger_ends_the_process(tmp_path: Path) -> None:
    """Whether the commit took place is unknown then; the next start finds out, and nothing is half-made."""
    new_ledger(tmp_path).close()
    script = """
import resource, sys
from pathlib import Path
from storage_examples import add_set, open_ledger

with open_ledger(Path(sys.argv[1])) as ledger:
    size = (Path(sys.argv[1]) / "ledger.db").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # a write beyond fails in a way that is no full disk
    for number in range(1000):
        add_set(ledger, f"set-{number:03}")
        print(number, flush=True)
"""
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"}
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert ended.returncode == os.EX_IOERR, ended.stderr
    assert ended.stderr.startswith("veilset: fatal: ledger.db: SQLITE_IOERR")
    made = len(ended.stdout.split())
    assert 0 < made < 1000
    with open_ledger(tmp_path) as ledger:
        assert len(ledger.list_sets("", 1000)) == made


def test_an_unreadable_block_is_told_by_the_name_of_the_file() -> None:
    """EIO from a read is damage of that file; other errors keep their kind."""
    with pytest.raises(StateCorrupted, match="spools/x"), storage_errors("spools/x"):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(PermissionError), storage_errors("spools/x"):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_the_disk_is_asked_before_a_file_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, then its name, then the folder: after a power cut the name never stands for a file that is not whole."""
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        steps.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def rename(path: Path, target: Path) -> Path:
        steps.append("rename to " + target.name)
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    ArtefactFiles(tmp_path).write(1, 2, iter([b"x"]), 1)
    assert steps == ["sync 1-2.noisy.tmp", "rename to 1-2.noisy", f"sync {tmp_path.name}"]
    steps.clear()
    write_run(tmp_path / "1-2.run", 1, 2, iter([]))
    assert steps == ["sync 1-2.run.tmp", "rename to 1-2.run", f"sync {tmp_path.name}"]
    steps.clear()
    spool = Spool(tmp_path / "1-1.spool", 1, 1)
    spool.append(1, digests_of(1))
    assert [step.split()[0] for step in steps] == ["sync", "rename", "sync"]
    spool.sync()
    assert steps[3].endswith(".spool")
    spool.close()
