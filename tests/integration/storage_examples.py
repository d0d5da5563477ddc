"""Sets, releases and folders for the storage tests, and a worker process to race and to kill.

Run as a script it is the worker: ``storage_examples.py COMMAND FOLDER ARGUMENT``. It writes a line for everything that it
was told is done, so that a test that kills it knows what must have survived.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.shapes import parameters
from veilset.core.params import Adjacency, HashParameters, Normalization, Operation, PrivacyParameters
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.errors import AlreadyExists, BudgetExceeded, FailedPrecondition
from veilset_server.records import (
    Charge,
    ReleaseState,
    SetDescription,
    StoredRelease,
    StoredSet,
    Upload,
    UploadState,
)
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.state.spool import Spool

LEDGER_ID = "0123456789abcdef0123456789abcdef"
MAX_SETS = 1000


class StoppedClock:
    """Clock port that the test turns by hand."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.time_us = now_us

    def now_us(self) -> int:
        """The time that was set."""
        return self.time_us


def new_ledger(folder: Path) -> SqliteLedger:
    """An empty ledger in ``folder``."""
    return SqliteLedger.create(folder / LEDGER_NAME, LEDGER_ID, StoppedClock())


def open_ledger(folder: Path) -> SqliteLedger:
    """The ledger in ``folder``, verified."""
    return SqliteLedger(folder / LEDGER_NAME, LEDGER_ID, StoppedClock())


def new_runs(folder: Path, ledger: SqliteLedger) -> Runs:
    """The runs and spools of ``folder``, made a state folder's if it is not one."""
    for name in ("spools", "runs", "artefacts"):
        (folder / name).mkdir(exist_ok=True)
    return Runs(folder, ledger)


def upload_of(serial: int = 1, set_id: int = 1) -> Upload:
    """An open upload, for a spool that no ledger knows."""
    return Upload(set_id, "u", 0, serial, Operation.ADD, UploadState.OPEN, 0)


PRIVACY = PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE, elements_per_user=2, min_size=50)


def description(name: str = "guests", account: str | None = None) -> SetDescription:
    """A set whose every parameter differs from its default."""
    return SetDescription(
        name=name,
        hashing=HashParameters(seed=77),
        encoding=parameters(1 << 16, 3, PRIVACY),
        privacy=PRIVACY,
        normalization=Normalization.EMAIL,
        account=account or name,
        created_at_us=1_700_000_000_000_000,
        declared_size=10_000,
        shared_seed=True,
    )


def add_set(
    ledger: SqliteLedger, name: str = "guests", account: str | None = None, epsilon: int = 100, delta: float = 1e-6
) -> StoredSet:
    """A set, with the budget of its account if that is new."""
    return ledger.create_set(description(name, account), epsilon * NANO, charge_delta(delta), MAX_SETS)


def charge_of(epsilon: int = 1, delta: float = 1e-9) -> Charge:
    """What a release costs."""
    return Charge(epsilon * NANO, charge_delta(delta))


def release_of(stored: StoredSet, sequence: int, request_id: str) -> StoredRelease:
    """A pending release with a manifest of its own."""
    name = stored.description.name
    manifest = f"manifest of {name} {sequence} for {request_id}".encode()
    return StoredRelease(stored.set_id, name, sequence, request_id, ReleaseState.PENDING, manifest)


def publish(ledger: SqliteLedger, stored: StoredSet, request_id: str, charge: Charge) -> StoredRelease:
    """Charge the set's next release as the use case does: read, then commit what was read, and again if it moved."""
    while True:
        spent = ledger.get_account(stored.description.account).spent_nano_epsilon
        release = release_of(stored, ledger.next_sequence(stored.description.name), request_id)
        try:
            ledger.charge_release(release, stored.description.account, charge, spent)
        except BudgetExceeded:
            raise
        except (FailedPrecondition, AlreadyExists):
            continue
        return release


def digests_of(batch: int, count: int = 5) -> NDArray[np.uint64]:
    """The digests of one batch, the same each time."""
    return np.random.default_rng(batch).integers(0, 1 << 64, count, np.uint64)


def start_worker(command: str, folder: Path, argument: str) -> subprocess.Popen[str]:
    """The worker process, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", __file__, command, str(folder), argument],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_line(worker: subprocess.Popen[str]) -> str:
    """The next line that the worker writes."""
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def kill(worker: subprocess.Popen[str]) -> list[str]:
    """SIGKILL; returns the lines that the worker had written and nobody read."""
    assert worker.stdout is not None
    worker.kill()
    rest = worker.stdout.read()  # not communicate(), which passes by what readline() took in advance
    worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    return rest.split()


def main(command: str, folder: Path, argument: str) -> None:
    """What the worker does."""
    match command:
        case "hold":  # the ledger, until told to let go
            with open_ledger(folder):
                print("held", flush=True)
                sys.stdin.readline()
        case "charge":  # until killed
            with open_ledger(folder) as ledger:
                stored = ledger.get_set(argument)
                for number in range(sys.maxsize):
                    print(publish(ledger, stored, f"{number}", Charge(1, Fraction(0))).sequence, flush=True)
        case "append":  # until killed, batches of 1 to 1 MiB
            (folder / "spools").mkdir(exist_ok=True)
            spool = Spool(folder / "spools" / "1-1.spool", 1, 1)
            for batch in range(spool.sequence + 1, sys.maxsize):
                spool.append(batch, digests_of(batch, 1 << (batch * 7 % 17)))
                print(batch, flush=True)
        case "crash":  # end in the middle of a transaction, with its pages in the file and the journal beside it
            crash_in_transaction(folder, argument)


def crash_in_transaction(folder: Path, set_name: str) -> None:
    """Write rows until pages spill into the file, then die before the commit."""
    ledger = open_ledger(folder)
    with ledger._file.transaction() as transaction:
        transaction.execute("PRAGMA cache_size = 1")
        for number in range(2000):
            transaction.execute("INSERT INTO accounts VALUES (?, 'add-remove', 1, x'')", (f"{set_name}-{number}",))
        print("spilled", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
