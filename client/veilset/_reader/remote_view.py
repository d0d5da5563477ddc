"""Asking a release in Redis without downloading it: for a few elements, where two things may be given up.

Redis, and whatever watches it, sees which bytes are asked for, and so can test elements of its own against them: this mode
keeps no secret of the queries. And the bytes cannot be checked: hashes are of whole chunks. The header is checked as always
(signature, set, place, sequence, age), so name, parameters and error rates are those the service signed; the bytes are
whatever Redis says they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType

from veilset._input import columns
from veilset._input.digests import digest_batch
from veilset._reader.age import ReleaseAge
from veilset._reader.answers import Answers
from veilset._reader.fetching import make_demands, open_headers, refuse_older
from veilset._reader.redis_client import RedisClient, connect_redis
from veilset._reader.remote_vector import RemoteVector
from veilset._reader.sources import RedisSource
from veilset._reader.view import decoder_of, read_all
from veilset._service.spec import Spec
from veilset.core.elements.hashing import check_key
from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Decoder, Rule
from veilset.core.encodings.interface import Parameters, Readings
from veilset.core.params import check_name
from veilset.core.release.header import ReleaseHeader

_BATCH = 1024


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

    What is given up against `veilset.open`: **Redis sees which bytes are asked for**, so anyone who runs or watches it learns
    about the queries what it could learn from their hashes; and **the bytes cannot be checked**, as hashes are of whole chunks:
    a Redis that lies about them decides the answers. The header is checked as always. Cost: what the encoding needs to know its
    law when opened (bloom: one BITCOUNT a MiB), then a few GETRANGE an element, pipelined. It stays with its release; once that
    has expired, NotFound says to open again.

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
    """As `veilset._reader.view.generation_vectors`."""
    main, removed = [], []
    for header in headers:
        length = header.encoding.vector_bytes
        main.append((header.encoding, RemoteVector(client, header, 0, length)))
        if header.tombstones is not None:
            vector = RemoteVector(client, header, length, header.tombstones.vector_bytes)
            removed.append((header.tombstones, vector))
    return main + removed
