"""The VectorStore port on the state folder's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset_server.adapters import raw_vectors
from veilset_server.adapters.artefact_files import ArtefactFiles
from veilset_server.adapters.durability import TEMPORARY_SUFFIX
from veilset_server.adapters.raw_vectors import RawVectors
from veilset_server.adapters.spools.files import SpoolFiles
from veilset_server.adapters.spools.upload_spool import SpoolFile


class VectorFiles:
    """Raw vectors, upload spools and release artefacts, each in a subfolder of its own. Methods are those of the port."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is a state folder that this process holds; files that a crash left half-made are removed."""
        self._vectors = RawVectors(folder / "vectors")
        self._spools = SpoolFiles(folder / "spools")
        self._artefacts = ArtefactFiles(folder / "artefacts")
        for name in ("vectors", "spools", "artefacts"):
            for leftover in (folder / name).glob(f"*{TEMPORARY_SUFFIX}"):
                leftover.unlink()

    def create_vector(self, set_id: int, length: int) -> None:
        self._vectors.create(set_id, length)

    def open_vector(self, set_id: int, length: int) -> AbstractContextManager[NDArray[np.uint8]]:
        return self._vectors.open(set_id, length)

    def sync_vector(self, vector: NDArray[np.uint8]) -> None:
        raw_vectors.sync_vector(vector)

    def has_vector(self, set_id: int) -> bool:
        return self._vectors.exists(set_id)

    def vectors(self) -> list[int]:
        return self._vectors.set_ids()

    def open_spool(self, set_id: int, upload_id: str, *, accepted: bool = False) -> SpoolFile:
        return self._spools.open(set_id, upload_id, accepted=accepted)

    def remove_spool(self, set_id: int, upload_id: str) -> None:
        self._spools.remove(set_id, upload_id)

    def remove_idle_spool(self, set_id: int, upload_id: str, before_us: int) -> bool:
        return self._spools.remove_idle(set_id, upload_id, before_us)

    def write_artefact(self, set_id: int, sequence: int, chunks: Iterator[bytes], length: int) -> None:
        self._artefacts.write(set_id, sequence, chunks, length)

    def read_artefact(self, set_id: int, sequence: int, chunk_bytes: int) -> Iterator[bytes]:
        return self._artefacts.read(set_id, sequence, chunk_bytes)

    def artefacts(self) -> list[tuple[int, int]]:
        return self._artefacts.list()

    def remove_artefact(self, set_id: int, sequence: int) -> None:
        self._artefacts.remove(set_id, sequence)

    def remove_set(self, set_id: int) -> None:
        self._spools.remove_all(set_id)
        self._vectors.remove(set_id)
