"""One open merge's chunks of a partial vector in a file of its own (`spools.format`).

A frame's payload is the chunk's index (u64), its length in bytes (u64), its bytes, and zeros up to a whole unit. Indexes
rise, so the file is at most as long as the vector and a head for each chunk.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bloom.vector_digest import VectorDigest
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import OutOfSequence
from veilset_server.state.spools.format import UNIT_BYTES, VECTOR_MAGIC
from veilset_server.state.spools.frame_file import FrameFile
from veilset_server.state.spools.scan import SpoolContent

_PREFIX = struct.Struct("<QQ")


class VectorContent(SpoolContent):
    """Frames of chunks: which there are, and, if ``hashed``, the SHA-256 of the vector up to the last of them."""

    def __init__(self, hashed: bool) -> None:
        super().__init__()
        self.indexes = array("Q")
        self.digest = VectorDigest() if hashed else None

    def _take(self, payload: bytes | memoryview) -> None:
        index, bits = _unpack(payload)
        if self.digest is not None:
            self.digest.add(index, bits)
        self.indexes.append(index)


class VectorSpoolFile(FrameFile[VectorContent]):
    """VectorSpool port. Not to be shared between threads."""

    def __init__(self, path: Path, set_id: int, upload_hash: bytes, *, accepted: bool = False) -> None:
        """Open the spool, make it if new, cut off what a crash tore. Raises StorageFull, StateCorrupted.

        accepted: it was compared with its finish, so its checksum is asked for no more.
        """
        super().__init__(path, set_id, upload_hash, VECTOR_MAGIC, VectorContent(hashed=not accepted))

    @property
    def chunks(self) -> int:
        """Chunks below this index are held, or were left out as they are zero."""
        return self._content.indexes[-1] + 1 if self._content.indexes else 0

    @property
    def indexes(self) -> Sequence[int]:
        """The chunks held, by rising index."""
        return self._content.indexes

    def append(self, index: int, bits: bytes) -> None:
        """Hold the next chunk.

        Raises OutOfSequence (an index below `chunks`, or another stream went on), NotFound (the merge was dropped),
        StorageFull (nothing held).
        """
        if index < self.chunks:
            raise OutOfSequence(f"chunk {index}: the next one is {self.chunks} or a later one", field="index")
        padding = bytes(-len(bits) % UNIT_BYTES)
        self._hold(memoryview(b"".join((_PREFIX.pack(index, len(bits)), bits, padding))))

    def sha256(self, length: int) -> bytes:
        """SHA-256 of the vector of ``length`` bytes; chunks that were left out are zeros. Nothing can be appended then."""
        if self._content.digest is None:
            raise ValueError("sha256: of an accepted merge")
        return self._content.digest.finish(length)

    def read(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The chunks again: first byte in the vector, and the bytes. Raises StateCorrupted."""
        for payload in self._payloads():
            index, bits = _unpack(payload)
            yield index * CHUNK_BYTES, np.frombuffer(bits, dtype=np.uint8)


def _unpack(payload: bytes | memoryview) -> tuple[int, memoryview]:
    index, length = _PREFIX.unpack_from(payload)
    return index, memoryview(payload)[_PREFIX.size : _PREFIX.size + length]
