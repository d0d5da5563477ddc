"""Fetching a release from a source that is not trusted: what a reader demands, and every check before a bit is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilset._reader.age import ReleaseAge, check_max_age, refuse_stale, tell_if_ahead
from veilset._reader.sources import ReleaseSource
from veilset._service.spec import Spec
from veilset.core.encodings.interface import MemoryVector, Parameters
from veilset.core.params import check_name
from veilset.core.release.header import ReleaseHeader, check_chunk
from veilset.core.release.signing import open_manifest
from veilset.errors import NotFound, ReleaseRejected, must_be

_PUBLIC_KEY_BYTES = 32
_ALIKE = ("set_name", "generation", "hashing", "normalization", "privacy", "planned_increments", "removals_epsilon")
"""Fields that all releases of a generation share."""


class ChunkSource(Protocol):
    """The part of a `ReleaseSource` that gives the bits."""

    def chunk(self, sequence: int, index: int) -> bytes:
        """One chunk of the packed bits; empty if it is not there."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a reader demands of a release; make it with `make_demands`.

    set_name: None takes any. public_keys: raw keys, one of which must have signed; with none the signature shows only that
    the release is whole. min_sequence: the oldest that will do. max_age_seconds: how old it may be; None for any age.
    spec: what its bits have to mean; None for anything.
    """

    set_name: str | None
    public_keys: frozenset[bytes] = frozenset()
    min_sequence: int = 0
    max_age_seconds: float | None = None
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class CheckedRelease:
    """A release that passed all checks. vector: packed noisy bits, read-only uint8 (vector_bytes,)."""

    header: ReleaseHeader
    manifest: bytes
    vector: NDArray[np.uint8]

    @property
    def main(self) -> MemoryVector:
        """The vector of the elements."""
        return MemoryVector(self.vector[: self.header.encoding.vector_bytes])

    @property
    def tombstones(self) -> tuple[Parameters, MemoryVector] | None:
        """The vector of removed elements and how it was made; None without one."""
        if self.header.tombstones is None:
            return None
        return self.header.tombstones, MemoryVector(self.vector[self.header.encoding.vector_bytes :])


def make_demands(
    set_name: str | None,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    max_age_seconds: float | None = None,
    spec: Spec | None = None,
) -> Demands:
    """Check and gather what a reader demands; public_keys raw or hexadecimal. Raises InvalidInput."""
    if set_name is not None:
        check_name("set_name", set_name)
    if isinstance(public_keys, str | bytes):
        raise must_be("public_keys", "a collection of keys, not one of them")
    pinned = frozenset(map(_public_key, public_keys))
    return Demands(set_name, pinned, min_sequence, check_max_age(max_age_seconds), spec)


def _public_key(value: bytes | str) -> bytes:
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raw = b""
    if len(raw) != _PUBLIC_KEY_BYTES:
        raise must_be("public_keys", "Ed25519 public keys: 32 raw bytes or 64 hexadecimal digits")
    return raw


def open_header(source: ReleaseSource, sequence: int, demands: Demands) -> tuple[ReleaseHeader, bytes]:
    """Header and manifest of a release, checked for signature, place, set, sequence, age and meaning.

    sequence: 0 for whatever the source holds. Raises NotFound, Unavailable, ReleaseRejected, StaleRelease,
    NotComparable.
    """
    manifest = source.manifest(sequence)
    header = open_manifest(manifest, demands.public_keys)
    if sequence not in (0, header.sequence):
        raise ReleaseRejected(
            f"release: sequence {header.sequence}, not {sequence} as its place says", check="sequence"
        )
    if demands.set_name not in (None, header.set_name):
        raise ReleaseRejected(f"release: of set {header.set_name}, not {demands.set_name}", check="set_name")
    refuse_older(header.set_name, header.sequence, demands.min_sequence)
    name = f"{header.set_name}/{header.sequence}"
    refuse_stale(name, ReleaseAge(header.created_at_us).seconds, demands.max_age_seconds)
    tell_if_ahead(name, header.created_at_us, demands.max_age_seconds)
    if demands.spec is not None:
        demands.spec.check_release(header)
    return header, manifest


def refuse_older(set_name: str, sequence: int, min_sequence: int) -> None:
    """Raise ReleaseRejected where a release is older than one that was seen."""
    if sequence < min_sequence:
        raise ReleaseRejected(
            f"release {set_name}/{sequence}: older than {min_sequence}, which was seen", check="sequence"
        )


def fetch_generation(
    source: ReleaseSource, sequence: int, demands: Demands, known: Collection[CheckedRelease] = ()
) -> tuple[CheckedRelease, ...]:
    """A release and all earlier ones of its generation, the base first, each checked.

    known: releases that need not be fetched again. Raises as `fetch_release`, and ReleaseRejected or NotFound for a part that is
    missing or is not the one that the newest release names.
    """
    newest = _known(known, sequence) or fetch_release(source, sequence, demands)
    return with_earlier(
        newest, lambda earlier: _known(known, earlier) or fetch_release(source, earlier, part_demands(demands))
    )


def _known(known: Collection[CheckedRelease], sequence: int) -> CheckedRelease | None:
    return next((part for part in known if part.header.sequence == sequence), None)


def part_demands(demands: Demands) -> Demands:
    """What is demanded of an earlier release of a generation, whose newest met ``demands``."""
    return replace(demands, min_sequence=0, max_age_seconds=None)


def open_headers(source: ReleaseSource, sequence: int, demands: Demands) -> list[ReleaseHeader]:
    """The checked headers of a generation up to a release, the base first. Raises as `fetch_generation`."""

    def find(wanted: int, asked: Demands) -> CheckedRelease:
        return CheckedRelease(*open_header(source, wanted, asked), np.empty(0, dtype=np.uint8))

    parts = with_earlier(find(sequence, demands), lambda earlier: find(earlier, part_demands(demands)))
    return [part.header for part in parts]


def with_earlier(newest: CheckedRelease, find: Callable[[int], CheckedRelease]) -> tuple[CheckedRelease, ...]:
    """A release behind all earlier ones of its generation, which ``find`` gives by their sequences. Raises what it raises, and
    ReleaseRejected for one that is not what the newest names."""
    header = newest.header
    parts: list[CheckedRelease] = []
    for number, named in enumerate(header.earlier):
        name = f"release {header.set_name}/{named.sequence}"
        try:
            part = find(named.sequence)
        except NotFound as error:
            raise NotFound(
                f"{name}: gone, though release {header.sequence} needs it; open the set again, or have the service reconcile "
                f"({error.message})",
                field="sequence",
            ) from None
        own = part.header
        if hashlib.sha256(part.manifest).digest() != named.manifest_sha256 or own.earlier != header.earlier[:number]:
            raise ReleaseRejected(f"{name}: not the one that release {header.sequence} names", check="earlier")
        if any(getattr(own, field) != getattr(header, field) for field in _ALIKE):
            raise ReleaseRejected(f"{name}: of another generation than release {header.sequence}", check="generation")
        parts.append(part)
    return (*parts, newest)


def fetch_release(source: ReleaseSource, sequence: int, demands: Demands) -> CheckedRelease:
    """A whole release, each chunk checked before it is used, in one array in memory.

    Raises as `open_header` does, and NotFound where a release expires while it is read.
    """
    header, manifest = open_header(source, sequence, demands)
    try:
        vector = np.empty(header.vector_bytes, dtype=np.uint8)
    except MemoryError:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: {header.vector_bytes} bytes do not fit into memory",
            check="vector_bytes",
        ) from None
    start = 0
    for chunk in checked_chunks(source, header):
        vector[start : start + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        start += len(chunk)
    vector.setflags(write=False)
    return whole_release(header, manifest, vector)


def whole_release(header: ReleaseHeader, manifest: bytes, vector: NDArray[np.uint8]) -> CheckedRelease:
    """A release of which header and chunks are checked. Raises ReleaseRejected where padding bits are set."""
    release = CheckedRelease(header, manifest, vector)
    vectors = [(header.encoding, release.main)] + ([release.tombstones] if release.tombstones is not None else [])
    for encoding, part in vectors:
        mask = np.frombuffer(encoding.padding, dtype=np.uint8)
        if np.any(part.array[len(part.array) - len(mask) :] & mask):
            name = f"release {header.set_name}/{header.sequence}"
            raise ReleaseRejected(f"{name}: padding bits are set", check="padding")
    return release


def checked_chunks(source: ChunkSource, header: ReleaseHeader) -> Iterator[bytes]:
    """The chunks of a release whose header is checked, in order. Raises NotFound, Unavailable, ReleaseRejected."""
    name = f"release {header.set_name}/{header.sequence}"
    for index in range(len(header.chunk_sha256)):
        chunk = source.chunk(header.sequence, index)
        if not chunk:
            raise NotFound(f"{name}: chunk {index} is gone; open the set again", check="chunk")
        check_chunk(header, index, chunk)
        yield chunk
