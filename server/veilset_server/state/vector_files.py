"""The VectorStore port on the state folder's files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset_server.ports import SpoolTrace
from veilset_server.records import VectorRecord
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.durability import TEMPORARY_SUFFIX
from veilset_server.state.raw_vectors import RawVectors
from veilset_server.state.spools.files import SpoolFiles
from veilset_server.state.spools.upload_spool import SpoolFile
from veilset_server.state.spools.vector_spool import VectorSpoolFile


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

    def read_vector(self, set_id: int, length: int, record: VectorRecord) -> Iterator[NDArray[np.uint8]]:
        return self._vectors.read(set_id, length, record)

    def vector_root(self, set_id: int, length: int) -> bytes:
        return self._vectors.root(set_id, length)

    def change_vector(
        self,
        set_id: int,
        length: int,
        upload_id: str,
        record: VectorRecord,
        touched: Callable[[], Collection[int]],
        positions: int | None,
    ) -> AbstractContextManager[NDArray[np.uint8]]:
        return self._vectors.change(set_id, length, upload_id, record, touched, positions)

    def check_vector(self, set_id: int, length: int, record: VectorRecord) -> None:
        """Whether vector and checksums are there and the ledger's, as far as can be told without reading the vector. Raises
        StateCorrupted."""
        self._vectors.check(set_id, length, record)

    def vectors(self) -> list[int]:
        return self._vectors.set_ids()

    def open_spool(self, set_id: int, upload_id: str, *, accepted: bool = False) -> SpoolFile:
        return self._spools.open(set_id, upload_id, accepted=accepted)

    def open_vector_spool(self, set_id: int, upload_id: str, *, accepted: bool = False) -> VectorSpoolFile:
        return self._spools.open_vector(set_id, upload_id, accepted=accepted)

    def remove_spool(self, set_id: int, upload_id: str) -> None:
        self._spools.remove(set_id, upload_id)

    def remove_other_spools(self, kept: Collection[tuple[int, str]]) -> int:
        return self._spools.remove_others(kept)

    def spool_trace(self, set_id: int, upload_id: str) -> SpoolTrace:
        return self._spools.trace(set_id, upload_id)

    def remove_idle_spool(self, set_id: int, upload_id: str, trace: SpoolTrace) -> bool:
        return self._spools.remove_idle(set_id, upload_id, trace)

    def write_artefact(self, set_id: int, sequence: int, chunks: Iterator[bytes], length: int) -> None:
        self._artefacts.write(set_id, sequence, chunks, length)

    def read_artefact(self, set_id: int, sequence: int, chunk_bytes: int) -> Iterator[bytes]:
        return self._artefacts.read(set_id, sequence, chunk_bytes)

    def artefact_name(self, set_id: int, sequence: int) -> str:
        return self._artefacts.name(set_id, sequence)

    def artefacts(self) -> list[tuple[int, int]]:
        return self._artefacts.list()

    def remove_artefact(self, set_id: int, sequence: int) -> None:
        self._artefacts.remove(set_id, sequence)

    def remove_set(self, set_id: int) -> None:
        self._spools.remove_all(set_id)
        self._vectors.remove(set_id)
