"""SHA-256 of a packed vector that comes as chunks, of which those without ones may be left out."""

from __future__ import annotations

import hashlib

from veilset.core.release.header import CHUNK_BYTES

_ZEROS = bytes(CHUNK_BYTES)


class VectorDigest:
    """Takes chunks in the order of their indexes; what is left out counts as zeros.

    chunks: all below this index were taken, or left out.
    """

    def __init__(self) -> None:
        self.chunks = 0
        self._length = 0
        self._sha256 = hashlib.sha256()

    def add(self, index: int, bits: bytes | memoryview) -> None:
        """Take the bytes from index · `CHUNK_BYTES` on; ``index`` is at least `chunks`."""
        if index < self.chunks:
            raise ValueError(f"chunk {index}: the next one is {self.chunks} or a later one")
        self._fill_to(index * CHUNK_BYTES)
        self._sha256.update(bits)
        self._length += len(bits)
        self.chunks = index + 1

    def finish(self, length: int) -> bytes:
        """The digest of a vector of ``length`` bytes. Nothing can be added then."""
        self._fill_to(length)
        self.chunks = max(self.chunks, -(-length // CHUNK_BYTES))
        return self._sha256.digest()

    def _fill_to(self, length: int) -> None:
        while self._length < length:
            zeros = min(CHUNK_BYTES, length - self._length)
            self._sha256.update(_ZEROS[:zeros] if zeros < CHUNK_BYTES else _ZEROS)
            self._length += zeros
