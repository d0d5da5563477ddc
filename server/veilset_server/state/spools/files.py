"""The folder of upload spools. A file's name is the set's id and the SHA-256 of the upload id: no producer's text names a
file."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.ports import SpoolTrace
from veilset_server.state.durability import relative_name, sync_folder
from veilset_server.state.spools.upload_spool import SpoolFile
from veilset_server.state.spools.vector_spool import VectorSpoolFile

_NAME = re.compile(r"[1-9][0-9]*-[0-9a-f]{64}\.spool", re.ASCII)


class SpoolFiles:
    """Opens and removes spools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, set_id: int, upload_id: str, *, accepted: bool = False) -> SpoolFile:
        """The spool of an upload, made if new, unless its finish was accepted: an empty one in place of a lost one would
        lose what is acknowledged without a word. Raises StorageFull, StateCorrupted."""
        upload_hash = _upload_hash(upload_id)
        return SpoolFile(self._existing(set_id, upload_hash, accepted), set_id, upload_hash)

    def open_vector(self, set_id: int, upload_id: str, *, accepted: bool = False) -> VectorSpoolFile:
        """The same for the spool of a merge."""
        upload_hash = _upload_hash(upload_id)
        path = self._existing(set_id, upload_hash, accepted)
        return VectorSpoolFile(path, set_id, upload_hash, accepted=accepted)

    def _existing(self, set_id: int, upload_hash: bytes, accepted: bool) -> Path:
        path = self._path(set_id, upload_hash)
        if accepted and not path.exists():
            name = relative_name(path)
            raise StateCorrupted(
                f"{name}: missing, though its upload was accepted; restore the file, or upload into a new set",
                file=name,
            )
        return path

    def remove(self, set_id: int, upload_id: str) -> None:
        """Delete a spool; no error if it is gone."""
        _unlink(self._path(set_id, _upload_hash(upload_id)))

    def trace(self, set_id: int, upload_id: str) -> SpoolTrace:
        """The spool's length and time of change, in nanoseconds; None if there is none."""
        try:
            return _trace(self._path(set_id, _upload_hash(upload_id)).stat())
        except FileNotFoundError:
            return None

    def remove_idle(self, set_id: int, upload_id: str, trace: SpoolTrace) -> bool:
        """Delete a spool unless it was opened or appended to since it had that trace; whether it is gone."""
        return _unlink(self._path(set_id, _upload_hash(upload_id)), (trace,))

    def remove_all(self, set_id: int) -> None:
        """Delete the set's spools."""
        for path in self._folder.glob(f"{set_id:d}-*.spool*"):
            _unlink(path)
        sync_folder(self._folder)

    def remove_others(self, kept: Collection[tuple[int, str]]) -> int:
        """Delete every spool but those of these uploads (set id, upload id); returns how many. What is not named as a spool
        is, or is no file, is not ours and stays."""
        names = {self._path(set_id, _upload_hash(upload_id)).name for set_id, upload_id in kept}
        with os.scandir(self._folder) as entries:
            spools = [
                entry for entry in entries if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
        others = [entry.name for entry in spools if entry.name not in names]
        for name in others:
            _unlink(self._folder / name)
        if others:
            sync_folder(self._folder)
        return len(others)

    def _path(self, set_id: int, upload_hash: bytes) -> Path:
        return self._folder / f"{set_id:d}-{upload_hash.hex()}.spool"


def _upload_hash(upload_id: str) -> bytes:
    return hashlib.sha256(upload_id.encode("utf-8", "surrogatepass")).digest()


def _trace(status: os.stat_result) -> SpoolTrace:
    return status.st_size, status.st_mtime_ns


def _unlink(path: Path, only_if: tuple[SpoolTrace] | None = None) -> bool:
    """Under the lock that appends take, so that a batch is either refused or was held before the file went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if only_if not in (None, (_trace(os.fstat(descriptor)),)):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)
