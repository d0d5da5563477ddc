"""One open upload's digests in a file of its own (`spools.format`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from veilset.core.params import DIGEST_BYTES
from veilset.errors import OutOfSequence
from veilset_server.state.spools.format import DIGEST_MAGIC, MAX_UNITS
from veilset_server.state.spools.frame_file import FrameFile
from veilset_server.state.spools.scan import SpoolContent


class DigestContent(SpoolContent):
    """Frames of digests: how many there are, and the XXH3-128 of all."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.checksum = xxhash.xxh3_128()

    def _take(self, payload: bytes | memoryview) -> None:
        self.elements += len(payload) // DIGEST_BYTES
        self.checksum.update(payload)


class SpoolFile(FrameFile[DigestContent]):
    """UploadSpool port. Not to be shared between threads."""

    def __init__(self, path: Path, set_id: int, upload_hash: bytes) -> None:
        """Open the spool, make it if new, cut off what a crash tore. Raises StorageFull, StateCorrupted."""
        super().__init__(path, set_id, upload_hash, DIGEST_MAGIC, DigestContent())

    @property
    def sequence(self) -> int:
        """Highest batch held; 0 for none."""
        return self._content.sequence

    @property
    def elements(self) -> int:
        """Elements in those batches."""
        return self._content.elements

    def append(self, sequence: int, digests: NDArray[np.uint64]) -> None:
        """Hold the next batch, shape (n,).

        Raises OutOfSequence (not sequence + 1, or another stream went on), NotFound (the upload was dropped), StorageFull
        (nothing held).
        """
        if sequence != self.sequence + 1:
            raise OutOfSequence(f"batch {sequence}: the next one is {self.sequence + 1}", field="sequence")
        if digests.ndim != 1 or len(digests) > MAX_UNITS:
            raise ValueError(f"digests: shape {digests.shape}, has to be (n,) with n up to {MAX_UNITS}")
        self._hold(np.ascontiguousarray(digests, dtype="<u8").view(np.uint8).data)

    def checksum(self) -> bytes:
        """XXH3-128 of all digests held, in order."""
        return self._content.checksum.digest()

    def read(self) -> Iterator[NDArray[np.uint64]]:
        """The digests again, a batch at a time, shape (n,). Raises StateCorrupted."""
        for payload in self._payloads():
            yield np.frombuffer(payload, dtype="<u8")
