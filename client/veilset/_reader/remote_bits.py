"""The bits of one release where they lie in Redis, asked for one by one. Nothing is downloaded, and nothing can be checked.

Plain pipelines, no transactions, one key a command: so a cluster answers too. Redis reads 0 where a key is gone, so each
pipeline asks for the length of every chunk it read from, after the bits: a release does not come back once it has expired,
so a chunk that is whole then was whole when it was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import RedisClient
from veilset._reader.redis_errors import transient
from veilset.core.release.header import CHUNK_BYTES, ReleaseHeader
from veilset.errors import NotFound, ReleaseRejected

PIPELINE_COMMANDS = 4096

_CHUNK_BITS = np.uint64(8 * CHUNK_BYTES)
_COUNTED_CHUNKS = 64  # BITCOUNT of a chunk takes Redis some 0.1 ms


class RemoteBits:
    """Reads bits of the release of ``header``. As thread-safe as the client, which redis-py's are."""

    def __init__(self, client: RedisClient, header: ReleaseHeader) -> None:
        self._client = client
        self._header = header

    def count_ones(self) -> int:
        """Ones of the whole noisy vector. Raises Unavailable, NotFound, ReleaseRejected."""
        ones = 0
        chunks = range(len(self._header.chunk_sha256))
        for start in range(0, len(chunks), _COUNTED_CHUNKS):
            some = chunks[start : start + _COUNTED_CHUNKS]
            for index, counted in zip(some, self._ask(((("BITCOUNT",), c) for c in some), some), strict=True):
                if not 0 <= counted <= 8 * self._size(index):
                    raise self._rejected(f"chunk {index} has {counted} ones", "bitcount")
                ones += counted
        return ones

    def test_bits(self, positions: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The bits at ``positions``, bool of the same shape; each is asked for once. Raises as `count_ones`."""
        distinct, back = np.unique(positions, return_inverse=True)
        bits = np.zeros(len(distinct), dtype=np.bool_)
        for start in range(0, len(distinct), PIPELINE_COMMANDS):
            some = distinct[start : start + PIPELINE_COMMANDS]
            indices = (some // _CHUNK_BITS).tolist()
            offsets = (some % _CHUNK_BITS).tolist()
            asked = ((("GETBIT", offset), index) for offset, index in zip(offsets, indices, strict=True))
            found = self._ask(asked, sorted(set(indices)))
            if not set(found) <= {0, 1}:
                raise self._rejected("a bit is neither 0 nor 1", "bit")
            bits[start : start + len(some)] = found
        return bits[back.reshape(positions.shape)]

    def _ask(self, commands: Iterable[tuple[tuple[Any, ...], int]], chunks: Iterable[int]) -> list[int]:
        """Answers to commands, each (name and arguments behind the key, chunk); then every chunk has to be whole."""
        chunks = list(chunks)
        name, sequence = self._header.set_name, self._header.sequence
        with transient(), self._client.pipeline(transaction=False) as pipe:
            for (command, *arguments), index in commands:
                pipe.execute_command(command, keys.chunk(name, sequence, index), *arguments)
            for index in chunks:
                pipe.execute_command("STRLEN", keys.chunk(name, sequence, index))
            answers = pipe.execute()
        if not all(isinstance(answer, int) for answer in answers):
            raise self._rejected("an answer is no number", "answer")
        found, lengths = answers[: -len(chunks)], answers[-len(chunks) :]
        for index, length in zip(chunks, lengths, strict=True):
            if length == 0:
                raise NotFound(f"release {name}/{sequence}: chunk {index} is gone; open the set again", check="chunk")
            if length != self._size(index):
                raise self._rejected(f"chunk {index} has {length} bytes instead of {self._size(index)}", "chunk_length")
        return list(found)

    def _size(self, index: int) -> int:
        return min(CHUNK_BYTES, self._header.vector_bytes - index * CHUNK_BYTES)

    def _rejected(self, what: str, check: str) -> ReleaseRejected:
        return ReleaseRejected(f"release {self._header.set_name}/{self._header.sequence}: {what}", check=check)
