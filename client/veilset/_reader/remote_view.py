"""Asking a release in Redis without downloading it: for a few elements, where two things may be given up.

Redis, and whatever watches it, sees which bytes are asked for, and so can test elements of its own against them: this mode
keeps no secret of the queries. And the bytes cannot be checked: hashes are of whole chunks. The header is checked as always
(signature, set, place, sequence, age), so name, parameters and error rates are those the service signed; the bytes are
whatever Redis returns.

Plain pipelines, no transactions, one key a command: so a cluster answers too. Redis reads 0 where a key is gone, so each
pipeline asks for the length of every chunk it read from, after the bits: a release does not come back once it has expired,
so a chunk that is whole then was whole when it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilset._input import columns
from veilset._input.digests import digest_batch
from veilset._reader import redis_keys as keys
from veilset._reader.answers import Answers, decoder_of, read_all
from veilset._reader.fetching import ReleaseAge, make_demands, open_headers, refuse_older
from veilset._reader.redis_client import RedisClient, connect_redis, transient
from veilset._reader.sources import RedisSource
from veilset._service.spec import Spec
from veilset.core.elements.hashing import check_key
from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Decoder, Rule
from veilset.core.encodings.interface import CHUNK_BYTES, Parameters, Readings
from veilset.core.params import check_name
from veilset.core.release.header import ReleaseHeader
from veilset.errors import NotFound, ReleaseRejected

PIPELINE_COMMANDS = 4096

Answer = TypeVar("Answer", int, bytes)

_COUNTED_CHUNKS = 64  # BITCOUNT of a chunk takes Redis some 0.1 ms

_BATCH = 1024


class RemoteVector:
    """``length`` bytes, from ``start`` on, of the packed vector of a release in Redis. Thread-safe, as redis-py's clients are."""

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


class RemoteView(Answers):
    """A generation in Redis, asked byte by byte; made by `veilset.remote`, used as a context manager. Thread-safe.

    **Redis sees which bytes are asked for, and they cannot be checked**: see `veilset.remote`. header, decoder: as of `View`.
    Every question raises Unavailable while Redis is away, NotFound once the release has expired, and InvalidInput.
    """

    def __init__(
        self,
        client: RedisClient,
        header: ReleaseHeader,
        vectors: Sequence[tuple[Parameters, RemoteVector]],
        decoder: Decoder,
        key: bytes | None,
    ) -> None:
        self.header = header
        self.decoder = decoder
        self._client = client
        self._vectors = vectors
        self._key = key
        self._age = ReleaseAge(header.created_at_us)

    @property
    def age_seconds(self) -> float:
        """As `View.age_seconds`."""
        return self._age.seconds

    def _read(self, elements: Iterable[Element]) -> Iterator[Readings]:
        return (readings for _, readings in self.read_batches(elements))

    def read_batches(self, elements: Iterable[Element], start: int = 0) -> Iterator[tuple[list[Element], Readings]]:
        """As `View.read_batches`, in smaller batches."""
        for batch in columns.batches(elements, _BATCH):
            hashed = digest_batch(batch, start, self.header.hashing, self.header.normalization, self._key)
            yield batch, read_all(self._vectors, hashed)
            start += len(batch)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> RemoteView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remote(
    url: str,
    set_name: str,
    *,
    sequence: int = 0,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    max_age_seconds: float | None = None,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
    spec: Spec | None = None,
) -> RemoteView:
    """Ask a release in Redis about a few elements without downloading it; use the result as a context manager.

    Two protections of `veilset.open` are missing: **Redis sees which bytes are asked for**, so its operator learns about the
    queries what their hashes show; and **the bytes cannot be checked**, as hashes are of whole chunks: a Redis that changes them
    decides the answers. The header is checked as always. Cost: at the start what the encoding needs to know its law (bloom: one
    BITCOUNT per MiB), then a few GETRANGE per element, pipelined. The view stays with its release; once that has expired,
    NotFound says to open the set again.

    Arguments and errors as of `veilset.open`.
    """
    demands = make_demands(check_name("set_name", set_name), public_keys, min_sequence, max_age_seconds, spec)
    with closing(RedisSource(url, set_name)) as source:
        chosen = sequence or source.latest()
        refuse_older(set_name, chosen, min_sequence)
        headers = open_headers(source, chosen, demands)
    header = headers[-1]
    key = check_key(header.hashing, key, f"{header.set_name}/{header.sequence}")
    client = connect_redis(url)
    try:
        vectors = _remote_vectors(client, headers)
        decoder = decoder_of(
            headers,
            [encoding.law(vector) for encoding, vector in vectors],
            rule=rule,
            max_false_positive_rate=max_false_positive_rate,
            min_true_positive_rate=min_true_positive_rate,
        )
    except BaseException:
        client.close()
        raise
    return RemoteView(client, header, vectors, decoder, key)


def _remote_vectors(client: RedisClient, headers: Sequence[ReleaseHeader]) -> list[tuple[Parameters, RemoteVector]]:
    """As `veilset._reader.answers.generation_vectors`."""
    main, removed = [], []
    for header in headers:
        length = header.encoding.vector_bytes
        main.append((header.encoding, RemoteVector(client, header, 0, length)))
        if header.tombstones is not None:
            vector = RemoteVector(client, header, length, header.tombstones.vector_bytes)
            removed.append((header.tombstones, vector))
    return main + removed
