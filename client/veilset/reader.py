"""Reading a release: fetch and check it once, then answer from memory without telling anyone what was asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.core import bitset
from veilset.core.decoding import Decoder, Rule, count_ones_per_element, make_decoder
from veilset.core.hashing import digests, positions
from veilset.core.normalization import Element, normalize
from veilset.core.params import check_choice, check_name
from veilset.core.release import ReleaseHeader, check_chunk, split_chunks
from veilset.core.signing import open_manifest
from veilset.core.sizes import SizeEstimate, size_from_bits, size_from_count
from veilset.core.statement import Statement, make_statement
from veilset.errors import InvalidInput, NotFound, ReleaseRejected
from veilset.release_file import save_release
from veilset.sources import ReleaseSource, open_source

BATCH = 1 << 16


class View:
    """One checked release in memory. Immutable and thread-safe.

    header: what the release says of itself. decoder: the threshold and the predicted error rates of the answers below.
    """

    def __init__(
        self, header: ReleaseHeader, manifest: bytes, vector: NDArray[np.uint8], decoder: Decoder, key: bytes | None
    ) -> None:
        self.header = header
        self.decoder = decoder
        self._manifest = manifest
        self._vector = vector
        self._key = key

    def __contains__(self, element: Element) -> bool:
        return bool(self.contains_many([element])[0])

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """Whether each element is taken for a member; bool, shape (n,). Raises InvalidInput for what is no element."""
        found = [self.decoder.decide(ones, distinct) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)

    def scores(self, elements: Iterable[Element]) -> NDArray[np.float64]:
        """Log-likelihood ratio (nats) of each element being a member; float64, shape (n,)."""
        found = [self.decoder.scores(ones, distinct) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)

    def posteriors(self, elements: Iterable[Element], prior: float) -> NDArray[np.float64]:
        """Probability of each element being a member, given the prior probability; float64, shape (n,)."""
        found = [self.decoder.posteriors(ones, distinct, prior) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)

    def _read(self, elements: Iterable[Element]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Ones and distinct positions of each element, batch by batch, so that memory does not grow with the input."""
        header = self.header
        if isinstance(elements, str | bytes):
            raise InvalidInput("elements", "a collection of elements, not one of them")
        remaining = iter(elements)
        while batch := list(islice(remaining, BATCH)):
            hashed = digests(
                normalize(batch, header.normalization), header.filter.scheme, header.filter.seed, self._key
            )
            found = positions(hashed, header.filter.bits, header.filter.hashes)
            yield count_ones_per_element(found, bitset.test_bits(self._vector, found))

    @property
    def statement(self) -> Statement:
        """What the release promises: print it, or read its fields."""
        return make_statement(self.header)

    def size(self, confidence: float = 0.95) -> SizeEstimate:
        """How many distinct elements the release stands for, from its bought count if it has one, else from its bits."""
        if self.header.count is not None:
            return size_from_count(self.header, confidence)
        return size_from_bits(self.header, bitset.count_ones(self._vector), confidence)

    @property
    def created_at(self) -> datetime:
        """When the release was made, UTC."""
        return datetime.fromtimestamp(self.header.created_at_us / 1e6, UTC)

    @property
    def vector(self) -> NDArray[np.uint8]:
        """The packed noisy bits, read-only; bit j is bit 7 - (j mod 8) of byte j // 8."""
        return self._vector

    def save(self, path: str | Path) -> None:
        """Write the release to a file that `veilset.open` reads."""
        save_release(Path(path), self._manifest, split_chunks(self._vector))


def open_view(
    target: str | bytes | Path,
    set_name: str | None = None,
    *,
    sequence: int = 0,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
) -> View:
    """Fetch a release, check it whole, and make it ready to answer.

    target: a Redis URL (then set_name is needed), a path, or the bytes of a release file. sequence: 0 for the newest.
    public_keys: raw or hexadecimal Ed25519 keys that the reader trusts; with none the signature shows only that the
    release is whole. min_sequence: refuse older releases, such as one seen before. rule, max_false_positive_rate,
    min_true_positive_rate: how to choose the threshold, see `veilset.core.decoding.make_decoder`. key: the secret of a
    keyed scheme. Raises InvalidInput, NotFound, Unavailable, ReleaseRejected, PoorUtility.
    """
    if set_name is not None:
        check_name("set_name", set_name)
    pinned = [_public_key(public_key) for public_key in public_keys]
    with closing(open_source(target, set_name)) as source:
        header, manifest = _open_header(source, sequence, pinned)
        if set_name not in (None, header.set_name):
            raise ReleaseRejected(f"release: of set {header.set_name}, not {set_name}", check="set_name")
        if header.sequence < min_sequence:
            raise ReleaseRejected(
                f"release {header.set_name}/{header.sequence}: older than {min_sequence}, which was seen",
                check="sequence",
            )
        vector = _fetch(source, header)
    decoder = make_decoder(
        header.filter.bits,
        header.filter.hashes,
        header.flip_probability,
        bitset.count_ones(vector) / header.filter.bits,
        rule=check_choice("rule", rule, Rule),
        max_false_positive_rate=max_false_positive_rate,
        min_true_positive_rate=min_true_positive_rate,
    )
    return View(header, manifest, vector, decoder, key)


def _public_key(value: bytes | str) -> bytes:
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise InvalidInput("public_keys", "Ed25519 public keys: 32 raw bytes or 64 hexadecimal digits")
    return raw


def _open_header(source: ReleaseSource, sequence: int, pinned: list[bytes]) -> tuple[ReleaseHeader, bytes]:
    asked = sequence or source.latest()
    manifest = source.manifest(asked)
    header = open_manifest(manifest, pinned)
    if asked not in (0, header.sequence):
        raise ReleaseRejected(f"release: sequence {header.sequence}, not {asked} as its place says", check="sequence")
    return header, manifest


def _fetch(source: ReleaseSource, header: ReleaseHeader) -> NDArray[np.uint8]:
    """All chunks, each checked before it is used, straight into one array."""
    vector = np.empty(header.vector_bytes, dtype=np.uint8)
    start = 0
    for index in range(len(header.chunk_sha256)):
        chunk = source.chunk(header.sequence, index)
        if not chunk:
            raise NotFound(
                f"release {header.set_name}/{header.sequence}: chunk {index} is gone; open the set again", check="chunk"
            )
        check_chunk(header, index, chunk)
        vector[start : start + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        start += len(chunk)
    if int(vector[-1]) & ~bitset.last_byte_mask(header.filter.bits):
        raise ReleaseRejected(f"release {header.set_name}/{header.sequence}: padding bits are set", check="padding")
    vector.setflags(write=False)
    return vector
