"""Asking a release in Redis without downloading it: for a few elements, where two things may be given up.

Redis, and whoever watches it, sees the positions asked for, and so can test elements of its own against what was asked: this
mode keeps no secret of the queries. And the bits cannot be checked: hashes are of whole chunks. The header is checked as
always (signature, set, place, sequence, age), so name, parameters and error rates are those the service signed; the bits
are whatever Redis says they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from veilset._input import columns
from veilset._input.element_digests import digest_batch
from veilset._reader.age import ReleaseAge
from veilset._reader.answers import Answers, Reading
from veilset._reader.fetching import make_demands, open_header, refuse_older
from veilset._reader.redis_client import RedisClient, connect_redis
from veilset._reader.remote_bits import PIPELINE_COMMANDS, RemoteBits
from veilset._reader.sources import RedisSource
from veilset._service.spec import Spec
from veilset.core.elements.hashing import positions
from veilset.core.elements.keys import check_key
from veilset.core.elements.normalization import Element
from veilset.core.encodings.bloom.decoding import Decoder, Rule, count_ones_per_element
from veilset.core.encodings.bloom.release_decoder import make_release_decoder
from veilset.core.params import check_name
from veilset.core.release.header import ReleaseHeader


class RemoteView(Answers):
    """One release in Redis, asked bit by bit; made by `veilset.remote`, used as a context manager. Thread-safe.

    **Redis sees the positions asked for, and the bits cannot be checked**: see `veilset.remote`. header, decoder: as of `View`.
    Every question raises Unavailable while Redis is away, NotFound once the release has expired, and InvalidInput.
    """

    def __init__(self, client: RedisClient, header: ReleaseHeader, decoder: Decoder, key: bytes | None) -> None:
        self.header = header
        self.decoder = decoder
        self._client = client
        self._bits = RemoteBits(client, header)
        self._key = key
        self._age = ReleaseAge(header.created_at_us)

    @property
    def age_seconds(self) -> float:
        """As `View.age_seconds`."""
        return self._age.seconds

    def _read(self, elements: Iterable[Element]) -> Iterator[Reading]:
        return ((ones, distinct) for _, ones, distinct in self.read_batches(elements))

    def read_batches(
        self, elements: Iterable[Element], start: int = 0
    ) -> Iterator[tuple[list[Element], NDArray[np.int64], NDArray[np.int64]]]:
        """As `View.read_batches`, in smaller batches: one pipeline of GETBIT each."""
        shape = self.header.filter
        for batch in columns.batches(elements, max(1, PIPELINE_COMMANDS // shape.hashes)):
            hashed = digest_batch(batch, start, shape, self.header.normalization, self._key)
            found = positions(hashed, shape.bits, shape.hashes)
            ones, distinct = count_ones_per_element(found, self._bits.test_bits(found))
            yield batch, ones, distinct
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

    What is given up against `veilset.open`: **Redis sees the positions asked for**, so whoever runs or watches it learns about
    the queries what it could learn from their hashes; and **the bits cannot be checked**, since hashes are of whole chunks: a
    Redis that lies about bits decides the answers. The header is checked as always. Cost: one BITCOUNT a MiB of the vector when
    opened, then one GETBIT a position, pipelined. It stays with its release; once that has expired, NotFound says to open again.

    Arguments and errors as of `veilset.open`.
    """
    demands = make_demands(check_name("set_name", set_name), public_keys, min_sequence, max_age_seconds, spec)
    with closing(RedisSource(url, set_name)) as source:
        chosen = sequence or source.latest()
        refuse_older(set_name, chosen, min_sequence)
        header, _ = open_header(source, chosen, demands)
    key = check_key(header.filter, key, f"{header.set_name}/{header.sequence}")
    client = connect_redis(url)
    try:
        decoder = make_release_decoder(
            header,
            RemoteBits(client, header).count_ones() / header.filter.bits,
            rule=rule,
            max_false_positive_rate=max_false_positive_rate,
            min_true_positive_rate=min_true_positive_rate,
        )
    except BaseException:
        client.close()
        raise
    return RemoteView(client, header, decoder, key)
