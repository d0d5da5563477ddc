"""Releases kept as files on the reader's machine; processes map them, so that they are in memory once.

    FOLDER/<set>/<sequence>.veilset   release files, as `View.save` writes them; mode 0600, the newest two generations kept
    FOLDER/<set>/<sequence>.unpinned.veilset    the same, of readers that pin no key
    FOLDER/<set>/seen-pinned          highest sequence that was verified whole, with a pinned key; decimal digits
    FOLDER/<set>/seen                 the same, pinned or not
    FOLDER/<set>/lock                 held while names and ``seen`` change

A file gets its name when it is whole and on disk, and never changes afterwards, so a mapping stays what was checked. Files are
trusted no more than Redis: each is checked like any release when it is opened, and one that fails is fetched again and replaced.
Only ``seen`` is trusted. It is written only after a release was verified whole, so that a forged one cannot lock a reader out,
and only rises. A reader that pins keys uses ``seen-pinned``, since anyone can make a release for a reader that pins none; and the
files of the two kinds are counted separately, or forged ones of high sequences would push the genuine ones out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from veilset._reader.fetching import CheckedRelease, Demands, checked_chunks, open_header, whole_release
from veilset._reader.sources import FileSource, ReleaseSource, read_manifest, write_release
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.params import check_name
from veilset.core.release.signing import open_manifest
from veilset.errors import NotFound, ReleaseRejected, StateCorrupted, StorageFull, must_be

KEPT_GENERATIONS = 2
FILE_MODE = 0o600
FOLDER_MODE = 0o700

_SUFFIX = ".veilset"
_UNPINNED_SUFFIX = ".unpinned.veilset"
_PART = ".part"
_ABANDONED_SECONDS = 3600.0
_MAX_DIGITS = 19
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ReleaseCache:
    """The kept releases of one set; several processes may share a folder. Thread-safe.

    A folder is for the sets of one service: two services with sets of one name would be confused, and the one with the lower
    sequences refused.
    """

    def __init__(self, folder: str | Path, set_name: str) -> None:
        """Raises InvalidInput if the folder cannot be made."""
        self._set_name = check_name("set_name", set_name)
        self._folder = Path(folder) / set_name
        with _folder_errors():
            Path(folder).mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)

    def seen(self, *, pinned: bool) -> int:
        """The highest sequence verified here; 0 for none. Raises StateCorrupted if the file does not say it."""
        path = self._seen_path(pinned)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return 0
        if not text.isdigit() or len(text) > _MAX_DIGITS:
            raise StateCorrupted(
                f"{path} does not hold a sequence; write the newest one that this machine has seen into it, or remove it to "
                "accept the next release whatever its sequence",
                file=path,
            )
        return int(text)

    def sequences(self) -> list[int]:
        """Sequences of the files in the folder, whole or not, highest first."""
        return sorted({*self._sequences(pinned=True), *self._sequences(pinned=False)}, reverse=True)

    def load(self, sequence: int, demands: Demands) -> CheckedRelease | None:
        """A kept release, mapped and checked; None if there is none that passes.

        Raises StaleRelease and NotComparable, which do not mean that the file is bad.
        """
        for pinned in (True, False):
            path = self._path(sequence, pinned)
            try:
                with path.open("rb") as file:
                    found = _mapped(file, sequence, demands)
                    if demands.public_keys and not pinned:
                        self._promote(file, path, sequence)
                    return found
            except (ReleaseRejected, NotFound, OSError):
                continue
        return None

    def store(self, source: ReleaseSource, sequence: int, demands: Demands) -> CheckedRelease:
        """Fetch a release into a file, chunk by checked chunk, and map that.

        Raises as `fetch_release` does, StorageFull, and InvalidInput where the folder cannot be written.
        """
        header, manifest = open_header(source, sequence, demands)
        part = self._folder / f"{sequence}.{os.getpid()}.{secrets.token_hex(4)}{_PART}"
        with _folder_errors():
            try:
                with _new_file(part) as file:
                    write_release(file, manifest, checked_chunks(source, header))
                    _sync(file)
                    found = _mapped(file, sequence, demands)
                    with self._locked():
                        part.rename(self._path(sequence, bool(demands.public_keys)))
                        self._prune(sequence)
                        self._sync_names()
            finally:
                part.unlink(missing_ok=True)
        return found

    def remember(self, release: CheckedRelease, *, pinned: bool) -> None:
        """Raise ``seen`` to a release that was verified whole, durably. Raises as `store` does, and StateCorrupted."""
        sequence = release.header.sequence
        kinds = (True, False) if pinned else (False,)
        if all(sequence <= self.seen(pinned=kind) for kind in kinds):
            return
        with _folder_errors(), self._locked():
            for kind in kinds:
                if sequence > self.seen(pinned=kind):
                    self._write_seen(kind, sequence)
            self._sync_names()

    def _sequences(self, *, pinned: bool) -> list[int]:
        suffix = _SUFFIX if pinned else _UNPINNED_SUFFIX
        stems = [path.name.removesuffix(suffix) for path in self._folder.glob(f"*{suffix}")]
        return sorted((int(stem) for stem in stems if stem.isdecimal() and len(stem) <= _MAX_DIGITS), reverse=True)

    def _path(self, sequence: int, pinned: bool) -> Path:
        return self._folder / f"{sequence}{_SUFFIX if pinned else _UNPINNED_SUFFIX}"

    def _seen_path(self, pinned: bool) -> Path:
        return self._folder / ("seen-pinned" if pinned else "seen")

    def _write_seen(self, pinned: bool, sequence: int) -> None:
        path = self._seen_path(pinned)
        part = path.with_name(path.name + _PART)
        part.unlink(missing_ok=True)
        with _new_file(part) as file:
            file.write(b"%d" % sequence)
            _sync(file)
        part.rename(path)

    def _promote(self, file: BinaryIO, path: Path, sequence: int) -> None:
        """Count a file that a pinned key signed among the pinned ones. If this fails, the file is only deleted earlier."""
        with suppress(OSError), self._locked():
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # not what another reader put there meanwhile
                path.replace(self._path(sequence, pinned=True))  # what had that name failed its checks
                self._prune(sequence)
                self._sync_names()

    def _prune(self, stored: int) -> None:
        """Delete files: what stays are the newest generations of each kind, ``stored``, which may be old, and the release of
        ``seen-pinned``. A process that maps a deleted file keeps it in memory."""
        wanted = {stored}
        with suppress(StateCorrupted):
            wanted.add(self.seen(pinned=True))
        for pinned in (True, False):
            generations = {sequence: self._generation(sequence, pinned) for sequence in self._sequences(pinned=pinned)}
            kept = set(sorted(set(generations.values()), reverse=True)[:KEPT_GENERATIONS])
            kept |= {generations[sequence] for sequence in wanted & generations.keys()}
            for sequence, generation in generations.items():
                if generation not in kept:
                    self._path(sequence, pinned).unlink(missing_ok=True)
        for part in self._folder.glob(f"*{_PART}"):
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > _ABANDONED_SECONDS:  # its writer was killed
                    part.unlink()

    def _generation(self, sequence: int, pinned: bool) -> int:
        """The generation in the header of a kept file, not checked; a damaged file counts by its sequence."""
        try:
            with self._path(sequence, pinned).open("rb") as file:
                return open_manifest(read_manifest(file)).generation
        except (ReleaseRejected, OSError):
            return sequence

    def _sync_names(self) -> None:
        """Sync the folder, so that its names are on disk."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process and thread at a time; held for a few file operations, never while Redis is asked."""
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class _MappedChunks:
    """The chunks of a mapped vector, to be checked like those from Redis."""

    def __init__(self, vector: NDArray[np.uint8]) -> None:
        self._vector = vector

    def chunk(self, sequence: int, index: int) -> bytes:  # noqa: ARG002 - a mapping is of one release
        return self._vector[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES].tobytes()


def _mapped(file: BinaryIO, sequence: int, demands: Demands) -> CheckedRelease:
    """A release file as a shared read-only mapping. The checks go through the mapping, as that is what will be used."""
    file.seek(0)
    source = FileSource(file)
    header, manifest = open_header(source, sequence, demands)
    if os.fstat(file.fileno()).st_size < source.start(header.sequence) + header.vector_bytes:
        raise ReleaseRejected("file: it ends within the vector", check="chunk_length")
    vector = np.memmap(
        file, dtype=np.uint8, mode="r", offset=source.start(header.sequence), shape=(header.vector_bytes,)
    )
    for _ in checked_chunks(_MappedChunks(vector), header):
        pass
    return whole_release(header, manifest, vector.view(np.ndarray))


def _new_file(path: Path) -> BinaryIO:
    """A file that was not there, for this user alone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return cast(BinaryIO, os.fdopen(os.open(path, flags, FILE_MODE), "w+b"))


def _sync(file: BinaryIO) -> None:
    """Return once the file's content is on disk."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _folder_errors() -> Iterator[None]:
    """Turn errors of the file system into errors that name the option."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("cache_dir: the disk of the folder is full; free some space") from None
        reason = error.strerror or type(error).__name__
        raise must_be("cache_dir", f"a folder that can be made and written ({reason})") from None
