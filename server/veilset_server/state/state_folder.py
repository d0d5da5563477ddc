"""The state folder: made once, private to the service's user, held by one server at a time.

lock          flock of the server that holds the folder, and its process id
format.json   version of this layout (`folder_format`)
ledger.db     sets, uploads, releases, budgets (`sqlite_ledger`)
tokens.json   hashes of access tokens (`token_file`), if there are any
spools/ runs/   digests: of open uploads, and of what sets hold (`runs`)
artefacts/      releases as they were published (`artefacts`)
quarantine/     runs and spools that the ledger did not know at a start
idle.json     how long open uploads were left alone (`idle_file`)
"""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

from veilset.errors import FailedPrecondition, StateCorrupted
from veilset_server.state.durability import FOLDER_MODE, TEMPORARY_SUFFIX, sync_folder
from veilset_server.state.files import Held, hold
from veilset_server.state.folder_format import (
    FORMAT_NAME,
    FORMAT_VERSION,
    FolderFormat,
    read_format,
    write_format,
)
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.token_file import FILE_NAME as TOKENS_NAME

LOCK_NAME = "lock"
SUBFOLDERS = ("spools", "runs", "artefacts")
# Tokens may be made before the first start.
_NOT_OURS = frozenset(
    {LOCK_NAME, FORMAT_NAME + TEMPORARY_SUFFIX, TOKENS_NAME, TOKENS_NAME + TEMPORARY_SUFFIX, "lost+found"}
)


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
        """Where the ledger is."""
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
