"""The state folder: made once, private to the service's user, held by one server at a time.

lock          flock of the server that holds the folder, and its process id
format.json   version of this layout
ledger.db     sets, uploads, releases, budgets (`ledger`)
tokens.json   hashes of access tokens (`tokens`), if there are any
spools/ runs/   digests: of open uploads, and of what sets hold (`runs`)
artefacts/      releases as they were published (`artefacts`)
quarantine/     runs and spools that the ledger did not know at a start
idle.json     how long open uploads were left alone (`usecases.abandoned_uploads`)
"""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from veilset.errors import FailedPrecondition, StateCorrupted
from veilset_server.ports import Clock
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.durability import (
    FOLDER_MODE,
    TEMPORARY_SUFFIX,
    Held,
    SpaceReserve,
    hold,
    read_regular,
    sync_folder,
    write_file,
)
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.state.tokens import FILE_NAME as TOKENS_NAME

FORMAT_NAME = "format.json"
FORMAT_VERSION = 1
_FOLDER_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)

LOCK_NAME = "lock"
SUBFOLDERS = ("spools", "runs", "artefacts")
# Tokens may be made before the first start.
_NOT_OURS = frozenset(
    {LOCK_NAME, FORMAT_NAME + TEMPORARY_SUFFIX, TOKENS_NAME, TOKENS_NAME + TEMPORARY_SUFFIX, "lost+found"}
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """version: of the layout. folder_id: random, also in the ledger, so that files of two folders cannot be mixed.

    ready: false until the folder was completed for the first time; before that nothing in it was ever acknowledged.
    """

    version: int
    folder_id: str
    ready: bool


def read_format(folder: Path) -> FolderFormat | None:
    """The folder's format, or None if there is no format file. Raises StateCorrupted."""
    path = folder / FORMAT_NAME
    try:
        fields = json.loads(read_regular(path).decode("ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME) from None
    if not isinstance(fields, dict) or fields.keys() != {"version", "folder_id", "ready"}:
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME)
    version, folder_id, ready = fields["version"], fields["folder_id"], fields["ready"]
    if type(version) is not int or type(ready) is not bool or not _FOLDER_ID.fullmatch(str(folder_id)):
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME)
    if version != FORMAT_VERSION:
        raise StateCorrupted(f"{path}: version {version}, this server knows {FORMAT_VERSION}", file=FORMAT_NAME)
    return FolderFormat(version, folder_id, ready)


def write_format(folder: Path, form: FolderFormat) -> None:
    """Put ``form`` in place, durably, in one step. Raises StorageFull."""
    write_file(folder / FORMAT_NAME, json.dumps(asdict(form)).encode("ascii") + b"\n")


class StateFolder:
    """The folder, held until `close`. A new one has to be completed (ledger made) and then marked with `mark_ready`."""

    def __init__(self, path: Path) -> None:
        """Make or open the folder at ``path``, and hold it against a second server.

        Raises FailedPrecondition (held by another server, not private, or not a state folder) and StateCorrupted (of another
        version, or parts are missing), naming the folder or file.
        """
        self.path = path
        _make_private(path)
        self._lock = _hold(path)
        try:
            self._format = self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> FolderFormat:
        form = read_format(self.path)
        if form is None:
            self._refuse_foreign_content()
            form = FolderFormat(FORMAT_VERSION, uuid.uuid4().hex, ready=False)
            write_format(self.path, form)
        if not form.ready:
            for name in SUBFOLDERS:
                (self.path / name).mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(self.path)
        for name in SUBFOLDERS if form.ready else ():
            if not (self.path / name).is_dir():
                raise StateCorrupted(f"{self.path / name}: missing from the state folder", file=name)
        return form

    def _refuse_foreign_content(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} - _NOT_OURS
        if names & {LEDGER_NAME, *SUBFOLDERS}:
            raise StateCorrupted(f"{self.path / FORMAT_NAME}: missing, though the folder holds state", file=FORMAT_NAME)
        if names:
            raise FailedPrecondition(f"{self.path}: not empty and not a state folder; name a new or empty folder")

    @property
    def ready(self) -> bool:
        """False for a folder that was never completed; whatever is in it was never acknowledged."""
        return self._format.ready

    @property
    def folder_id(self) -> str:
        """Random name of this folder, 32 hex digits."""
        return self._format.folder_id

    @property
    def ledger_path(self) -> Path:
        """Path of the ledger's database."""
        return self.path / LEDGER_NAME

    def mark_ready(self) -> None:
        """The folder is complete; from now on a missing part is damage."""
        self._format = FolderFormat(self._format.version, self._format.folder_id, ready=True)
        write_format(self.path, self._format)

    def close(self) -> None:
        """Let another server have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_private(path: Path) -> None:
    """Make the folder if needed; tighten it to 0700 if it is ours, refuse it if it is not and is open to all.

    A volume that belongs to another user but shuts all others out (as container platforms mount them) is accepted:
    every file in it is 0600.
    """
    if not path.exists():
        path.mkdir(mode=FOLDER_MODE, parents=True)
        sync_folder(path.parent)
    if not path.is_dir():
        raise FailedPrecondition(f"{path}: not a folder")
    status = path.stat()
    if status.st_uid == os.geteuid():
        if stat.S_IMODE(status.st_mode) != FOLDER_MODE:
            path.chmod(FOLDER_MODE)
    elif status.st_mode & stat.S_IRWXO:
        raise FailedPrecondition(f"{path}: belongs to another user and is open to all; it has to be private")


def _hold(path: Path) -> int:
    try:
        return hold(path / LOCK_NAME)
    except Held as held:
        raise FailedPrecondition(f"{path}: the state folder is in use by {held}", folder=path, pid=held.pid) from None


@dataclass(frozen=True, slots=True)
class OpenedState:
    """The open parts; valid until `open_state`'s block ends. refusing: ids of the sets of which a run was found damaged."""

    folder: StateFolder
    ledger: SqliteLedger
    runs: Runs
    artefacts: ArtefactFiles
    refusing: frozenset[int]


@contextmanager
def open_state(path: Path, clock: Clock) -> Iterator[OpenedState]:
    """Make or open the state folder at ``path`` and hold it. Raises FailedPrecondition, StateCorrupted, StorageFull."""
    with StateFolder(path) as folder:
        if not folder.ready:  # never completed: nothing in it was ever used, so a half-made ledger may go
            for leftover in (folder.ledger_path, folder.ledger_path.with_name(folder.ledger_path.name + "-journal")):
                leftover.unlink(missing_ok=True)
            SqliteLedger.create(folder.ledger_path, folder.folder_id, clock).close()
            folder.mark_ready()
        reserve = SpaceReserve(folder.path)
        with SqliteLedger(folder.ledger_path, folder.folder_id, clock, reserve) as ledger:
            runs = Runs(folder.path, ledger)
            runs.discard()
            aside = runs.set_unknown_aside()
            if aside:
                log.warning(
                    "runs of another state of the folder are set aside; is ledger.db an older copy?", files=aside
                )
            artefacts = ArtefactFiles(folder.path / "artefacts")
            artefacts.remove_half_made()
            yield OpenedState(folder, ledger, runs, artefacts, frozenset(_damaged(ledger, runs)))


def _damaged(ledger: SqliteLedger, runs: Runs) -> Iterator[int]:
    """Ids of the sets of which a run is missing or cut. That is their own trouble: the log names the file, and a publish of them
    is refused."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        for stored in page:
            try:
                runs.check(stored.set_id)
            except StateCorrupted as error:
                name, file = stored.description.name, error.details["file"]
                log.error("set refuses", set=name, reason=error.reason, file=file)  # noqa: TRY400 - by reason, not by text
                yield stored.set_id
        after = page[-1].description.name
