"""The vector of one release where it lies in Redis, asked for byte by byte. Nothing is downloaded, and nothing is checked.

Plain pipelines, no transactions, one key a command: so a cluster answers too. Redis reads 0 where a key is gone, so each
pipeline asks for the length of every chunk it read from, after the bits: a release does not come back once it has expired,
so a chunk that is whole then was whole when it was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilset._reader import redis_keys as keys
from veilset._reader.redis_client import RedisClient
from veilset._reader.redis_errors import transient
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.header import ReleaseHeader
from veilset.errors import NotFound, ReleaseRejected

PIPELINE_COMMANDS = 4096

Answer = TypeVar("Answer", int, bytes)

_COUNTED_CHUNKS = 64  # BITCOUNT of a chunk takes Redis some 0.1 ms


class RemoteVector:
    """Reads from the release of ``header``: ``length`` bytes of its packed vector from ``start`` on. As thread-safe as the
    client, which redis-py's are."""

    def __init__(self, client: RedisClient, header: ReleaseHeader, start: int, length: int) -> None:
        self._client = client
        self._header = header
        self._start = start
        self._length = length

    def count_ones(self) -> int:
        """Ones of the whole noisy vector. Raises Unavailable, NotFound, ReleaseRejected."""
        ones = 0
        pieces = list(_pieces(self._start, self._length))
        for start in range(0, len(pieces), _COUNTED_CHUNKS):
            some = pieces[start : start + _COUNTED_CHUNKS]
            asked = ((("BITCOUNT", at, at + size - 1), index) for index, at, size in some)
            answers = self._ask(asked, [index for index, _, _ in some], int)
            for (index, _, size), counted in zip(some, answers, strict=True):
                if not 0 <= counted <= 8 * size:
                    raise self._rejected(f"chunk {index} has {counted} ones", "bitcount")
                ones += counted
        return ones

    def fetch(self, offsets: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """The ``length`` bytes from each offset on; uint8 of shape offsets.shape + (length,). Raises as `count_ones`.

        The same bytes are asked for once; two commands where they lie in two chunks.
        """
        distinct, back = np.unique(offsets, return_inverse=True)
        found = np.empty((len(distinct), length), dtype=np.uint8)
        for start in range(0, len(distinct), PIPELINE_COMMANDS // 2):
            some = distinct[start : start + PIPELINE_COMMANDS // 2]
            pieces = [piece for offset in some.tolist() for piece in _pieces(self._start + offset, length)]
            asked = ((("GETRANGE", at, at + size - 1), index) for index, at, size in pieces)
            answers = self._ask(asked, sorted({index for index, _, _ in pieces}), bytes)
            if [len(answer) for answer in answers] != [size for _, _, size in pieces]:
                raise self._rejected("an answer is too short", "answer")
            packed = np.frombuffer(b"".join(answers), dtype=np.uint8)
            found[start : start + len(some)] = packed.reshape(len(some), length)
        return found[back.reshape(offsets.shape)]

    def _ask(
        self, commands: Iterable[tuple[tuple[Any, ...], int]], chunks: Iterable[int], kind: type[Answer]
    ) -> list[Answer]:
        """Answers to commands, each (name and arguments behind the key, chunk); then every chunk has to be whole."""
        chunks = list(chunks)
        name, sequence = self._header.set_name, self._header.sequence
        with transient(), self._client.pipeline(transaction=False) as pipe:
            for (command, *arguments), index in commands:
                pipe.execute_command(command, keys.chunk(name, sequence, index), *arguments)
            for index in chunks:
                pipe.execute_command("STRLEN", keys.chunk(name, sequence, index))
            answers = pipe.execute()
        found, lengths = answers[: -len(chunks)], answers[-len(chunks) :]
        if not all(isinstance(answer, kind) for answer in found) or not all(isinstance(size, int) for size in lengths):
            raise self._rejected("an answer is of another kind than the command's", "answer")
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


def _pieces(offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """(chunk, offset in it, length) of the pieces of a range."""
    while length:
        index, at = divmod(offset, CHUNK_BYTES)
        size = min(length, CHUNK_BYTES - at)
        yield index, at, size
        offset, length = offset + size, length - size
