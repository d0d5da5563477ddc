"""The folder of upload spools. A file's name is the set's id and the SHA-256 of the upload id: no producer's text names a
file."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.adapters.durability import relative_name, sync_folder
from veilset_server.adapters.spools.upload_spool import SpoolFile


class SpoolFiles:
    """Opens and removes spools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, set_id: int, upload_id: str, *, accepted: bool = False) -> SpoolFile:
        """The spool of an upload, made if new, unless its finish was accepted: an empty one in place of a lost one would
        lose what is acknowledged without a word. Raises StorageFull, StateCorrupted."""
        upload_hash = _upload_hash(upload_id)
        path = self._path(set_id, upload_hash)
        if accepted and not path.exists():
            name = relative_name(path)
            raise StateCorrupted(f"{name}: missing, though its upload was accepted", file=name)
        return SpoolFile(path, set_id, upload_hash)

    def remove(self, set_id: int, upload_id: str) -> None:
        """Delete a spool; no error if it is gone."""
        _unlink(self._path(set_id, _upload_hash(upload_id)), idle_since_us=None)

    def remove_idle(self, set_id: int, upload_id: str, before_us: int) -> bool:
        """Delete a spool unless it was opened or appended to since ``before_us``; whether it is gone."""
        return _unlink(self._path(set_id, _upload_hash(upload_id)), idle_since_us=before_us)

    def remove_all(self, set_id: int) -> None:
        """Delete the set's spools."""
        for path in self._folder.glob(f"{set_id:d}-*.spool*"):
            _unlink(path, idle_since_us=None)
        sync_folder(self._folder)

    def _path(self, set_id: int, upload_hash: bytes) -> Path:
        return self._folder / f"{set_id:d}-{upload_hash.hex()}.spool"


def _upload_hash(upload_id: str) -> bytes:
    return hashlib.sha256(upload_id.encode("utf-8", "surrogatepass")).digest()


def _unlink(path: Path, idle_since_us: int | None) -> bool:
    """Under the lock that appends take, so that a batch is either refused or was held before the file went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if idle_since_us is not None and os.fstat(descriptor).st_mtime_ns // 1000 >= idle_since_us:
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)
