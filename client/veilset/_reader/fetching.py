"""Fetching a release from a source that is not trusted: what a reader demands, and every check before a bit is used.

Age. The service writes the time into the signed header, so no one can make an old release look new; the reader's clock decides
the rest. A clock that is behind the service's makes releases look younger, at worst of age 0, and is logged. A clock that is set
back while the program runs does not, as the time since the release was opened is measured by one that only goes forward.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilset._reader.sources import ReleaseSource
from veilset._service.spec import Spec
from veilset.core.encodings.interface import MemoryVector, Parameters
from veilset.core.params import check_name
from veilset.core.release.header import ReleaseHeader, check_chunk
from veilset.core.release.signing import open_manifest
from veilset.errors import NotFound, ReleaseRejected, StaleRelease, must_be

Clock = Callable[[], float]
LONGEST_AGE_SECONDS = 3.2e9  # a century
AHEAD_SECONDS = 5.0
"""How far two clocks may differ without a warning; synchronised clocks differ by less."""

_log = logging.getLogger("veilset")

_PUBLIC_KEY_BYTES = 32
_ALIKE = ("set_name", "generation", "hashing", "normalization", "privacy", "planned_increments", "removals_epsilon")
"""Fields that all releases of a generation share."""


class ReleaseAge:
    """The age of a release made at ``created_at_us`` (microseconds since 1970, UTC), from now on. Thread-safe.

    wall: seconds since 1970. monotonic: seconds since any moment.
    """

    def __init__(self, created_at_us: int, wall: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._created = created_at_us / 1e6
        self._wall, self._monotonic = wall, monotonic
        self._opened = monotonic()
        self._when_opened = max(0.0, wall() - self._created)

    @property
    def seconds(self) -> float:
        """Seconds, at least 0 and at least what passed since this was made."""
        passed = self._monotonic() - self._opened
        return max(self._wall() - self._created, self._when_opened + passed)


def check_max_age(max_age_seconds: float | None) -> float | None:
    """Return it if it is None or a number of seconds above 0. Raises InvalidInput."""
    if max_age_seconds is not None and not 0 < max_age_seconds <= LONGEST_AGE_SECONDS:
        raise must_be("max_age_seconds", f"a number in (0, {LONGEST_AGE_SECONDS:g}]", max_age_seconds)
    return max_age_seconds


def refuse_stale(name: str, age_seconds: float, max_age_seconds: float | None) -> None:
    """Raise StaleRelease if the release ``name`` is older than it may be."""
    if max_age_seconds is not None and not age_seconds <= max_age_seconds:
        raise StaleRelease(
            f"release {name} is {age_seconds:.0f} s old; at most {max_age_seconds:g} s are allowed",
            release=name,
            age_seconds=f"{age_seconds:.0f}",
            max_age_seconds=f"{max_age_seconds:g}",
        )


def tell_if_ahead(name: str, created_at_us: int, max_age_seconds: float | None, wall: Clock = time.time) -> None:
    """Log a warning if the release ``name`` was made in the future and its age is limited: the limit then acts late."""
    ahead = created_at_us / 1e6 - wall()
    if max_age_seconds is not None and ahead > AHEAD_SECONDS:
        _log.warning(
            "veilset: warning: release %s was made %.0f s in the future by this machine's clock: that clock or the service's is "
            "wrong, and a release may be %.0f s older than max_age_seconds before it is refused",
            name,
            ahead,
            ahead,
        )


class ChunkSource(Protocol):
    """The part of a `ReleaseSource` that returns the vector."""

    def chunk(self, sequence: int, index: int) -> bytes:
        """One chunk of the packed bits; empty if it is not there."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a reader demands of a release; make it with `make_demands`.

    set_name: None for any. public_keys: raw keys, one of which must have signed; with none the signature shows only that
    the release is whole. min_sequence: the lowest sequence that is accepted. max_age_seconds: how old it may be; None for any
    age. spec: what it must have been made from; None for anything.
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
        """The vector of the elements, without that of removed elements."""
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
    """Check what a reader demands; public_keys: raw or hexadecimal. Raises InvalidInput."""
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

    sequence: 0 for the one that the source holds. Raises NotFound, Unavailable, ReleaseRejected, StaleRelease,
    NotComparable.
    """
    manifest = source.manifest(sequence)
    header = open_manifest(manifest, demands.public_keys)
    if sequence not in (0, header.sequence):
        raise ReleaseRejected(
            f"release: its sequence is {header.sequence}, not {sequence} as its key says", check="sequence"
        )
    if demands.set_name not in (None, header.set_name):
        raise ReleaseRejected(f"release: it is of the set {header.set_name}, not {demands.set_name}", check="set_name")
    refuse_older(header.set_name, header.sequence, demands.min_sequence)
    name = f"{header.set_name}/{header.sequence}"
    refuse_stale(name, ReleaseAge(header.created_at_us).seconds, demands.max_age_seconds)
    tell_if_ahead(name, header.created_at_us, demands.max_age_seconds)
    if demands.spec is not None:
        demands.spec.check_release(header)
    return header, manifest


def refuse_older(set_name: str, sequence: int, min_sequence: int) -> None:
    """Raise ReleaseRejected for a release that is older than one seen before."""
    if sequence < min_sequence:
        raise ReleaseRejected(
            f"release {set_name}/{sequence}: older than {min_sequence}, which was seen before", check="sequence"
        )


def fetch_generation(
    source: ReleaseSource, sequence: int, demands: Demands, known: Collection[CheckedRelease] = ()
) -> tuple[CheckedRelease, ...]:
    """A release and all earlier ones of its generation, the base first, each checked.

    known: releases that need not be fetched again. Raises as `fetch_release`; ReleaseRejected or NotFound for a part that is
    missing, or is not the one that the newest release names.
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
    """All earlier releases of a generation, found by their sequences, and then the newest. Raises what ``find`` raises, and
    ReleaseRejected for one that is not what the newest names."""
    header = newest.header
    parts: list[CheckedRelease] = []
    for number, named in enumerate(header.earlier):
        name = f"release {header.set_name}/{named.sequence}"
        try:
            part = find(named.sequence)
        except NotFound as error:
            raise NotFound(
                f"{name} is gone, and release {header.sequence} needs it; open the set again, or restore it by veilset reconcile "
                f"({error.message})",
                field="sequence",
            ) from None
        own = part.header
        if hashlib.sha256(part.manifest).digest() != named.manifest_sha256 or own.earlier != header.earlier[:number]:
            raise ReleaseRejected(f"{name}: it is not the one that release {header.sequence} names", check="earlier")
        if any(getattr(own, field) != getattr(header, field) for field in _ALIKE):
            raise ReleaseRejected(
                f"{name}: it is of another generation than release {header.sequence}", check="generation"
            )
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
    """The release of a checked header and checked chunks. Raises ReleaseRejected if padding bits are set."""
    release = CheckedRelease(header, manifest, vector)
    vectors = [(header.encoding, release.main)] + ([release.tombstones] if release.tombstones is not None else [])
    for encoding, part in vectors:
        mask = np.frombuffer(encoding.padding, dtype=np.uint8)
        if np.any(part.array[len(part.array) - len(mask) :] & mask):
            name = f"release {header.set_name}/{header.sequence}"
            raise ReleaseRejected(f"{name}: its padding bits are not 0", check="padding")
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
