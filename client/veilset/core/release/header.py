"""The release header: all that a release shows beside its vector, and its exact bytes.

Nothing in it is computed from the data except the noisy count where one was bought. The decoder trusts nothing: every
field is checked, so that a hostile store can neither make a reader allocate without bound nor answer from wrong lengths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import pairwise

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from veilset._display import Displayed
from veilset.core.encodings.interface import CHUNK_BYTES, Parameters
from veilset.core.encodings.planning import MAX_INCREMENTS
from veilset.core.params import (
    MAX_DELTA,
    MAX_EPSILON,
    MAX_SIZE,
    HashParameters,
    Normalization,
    PrivacyParameters,
    check_integer,
    check_name,
)
from veilset.core.privacy.budget import parse_delta
from veilset.core.privacy.counts import CountMechanism
from veilset.core.release import wire
from veilset.errors import InvalidInput, ReleaseRejected
from veilset.v1 import release_pb2 as pb

FORMAT_VERSION = 1
_HASH_BYTES = 32
_LARGEST_SCALE = 1e18
_YEAR_10000_US = 253_402_300_800_000_000


@dataclass(frozen=True, slots=True)
class NoisyCount:
    """A bought count: ``value`` is the noisy statistic, with the law of its noise. Fields as in release.proto."""

    value: int
    mechanism: str
    scale: float
    sensitivity: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class EarlierPart:
    """A release of the same generation that was made before; ``manifest_sha256`` is of its serialized SignedHeader."""

    sequence: int
    manifest_sha256: bytes


@dataclass(frozen=True, slots=True, repr=False)
class ReleaseHeader(Displayed):
    """A checked release header; fields as in release.proto. generation: 0 means the release's own sequence."""

    set_name: str
    sequence: int
    hashing: HashParameters
    encoding: Parameters
    privacy: PrivacyParameters
    normalization: Normalization
    capacity: int
    created_at_us: int
    chunk_sha256: tuple[bytes, ...]
    total_nano_epsilon: int
    total_delta: str
    limit_nano_epsilon: int
    limit_delta: str
    shared_seed: bool = False
    count: NoisyCount | None = None
    chunk_bytes: int = CHUNK_BYTES
    generation: int = 0
    earlier: tuple[EarlierPart, ...] = ()
    planned_increments: int = 0
    tombstones: Parameters | None = None
    removals_epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not self.generation:
            object.__setattr__(self, "generation", self.sequence)

    @property
    def is_base(self) -> bool:
        """Whether the release is a generation's first, of everything the set held."""
        return not self.earlier

    @property
    def vector_bytes(self) -> int:
        """Length of the packed vector, that of tombstones included."""
        return self.encoding.vector_bytes + (self.tombstones.vector_bytes if self.tombstones is not None else 0)

    @property
    def chunk_sizes(self) -> list[int]:
        """Length of each chunk in bytes."""
        return chunk_sizes(self.vector_bytes, self.chunk_bytes)


def chunk_sizes(vector_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> list[int]:
    """Lengths of the chunks of a packed vector: all ``chunk_bytes`` long but the last."""
    whole, rest = divmod(vector_bytes, chunk_bytes)
    return [chunk_bytes] * whole + ([rest] if rest else [])


def encode_header(header: ReleaseHeader) -> bytes:
    """The exact bytes that are signed."""
    message = pb.ReleaseHeader(
        format_version=FORMAT_VERSION,
        set_name=header.set_name,
        sequence=header.sequence,
        hashing=wire.hashing_to_proto(header.hashing),
        encoding=wire.encoding_to_proto(header.encoding),
        privacy=wire.privacy_to_proto(header.privacy),
        normalization=wire.to_number(wire.NORMALIZATION, header.normalization),  # type: ignore[arg-type]
        capacity=header.capacity,
        created_at_us=header.created_at_us,
        chunk_bytes=header.chunk_bytes,
        chunk_sha256=header.chunk_sha256,
        vector_bytes=header.vector_bytes,
        total_nano_epsilon=header.total_nano_epsilon,
        total_delta=header.total_delta,
        shared_seed=header.shared_seed,
        limit_nano_epsilon=header.limit_nano_epsilon,
        limit_delta=header.limit_delta,
        generation=header.generation,
        earlier=[
            pb.EarlierPart(sequence=part.sequence, manifest_sha256=part.manifest_sha256) for part in header.earlier
        ],
        planned_increments=header.planned_increments,
        tombstones=wire.encoding_to_proto(header.tombstones) if header.tombstones is not None else None,
        removals_epsilon=header.removals_epsilon,
    )
    if header.count is not None:
        message.count.CopyFrom(pb.NoisyCount(**asdict(header.count)))
    return message.SerializeToString(deterministic=True)


def decode_header(data: bytes) -> ReleaseHeader:
    """Decode and check a header. Raises ReleaseRejected naming what is wrong."""
    try:
        message = pb.ReleaseHeader.FromString(data)
    except DecodeError:
        raise ReleaseRejected("release header: it is not a veilset release header", check="format") from None
    if message.format_version != FORMAT_VERSION:
        raise ReleaseRejected(
            f"release header: its format version is {message.format_version}, and this reader knows {FORMAT_VERSION}",
            check="format_version",
        )
    try:
        header = _from_message(message)
    except InvalidInput as error:
        raise ReleaseRejected(f"release header: {error.message}", check=error.field) from None
    _check(header, message.vector_bytes)
    return header


def _from_message(message: pb.ReleaseHeader) -> ReleaseHeader:
    count = message.count if message.HasField("count") else None
    return ReleaseHeader(
        set_name=check_name("set_name", message.set_name),
        sequence=message.sequence,
        hashing=wire.hashing_from_proto(message.hashing),
        encoding=wire.encoding_from_proto(message.encoding),
        privacy=wire.privacy_from_proto(message.privacy),
        normalization=wire.from_number("normalization", wire.NORMALIZATION, message.normalization),
        capacity=check_integer("capacity", message.capacity, 1, MAX_SIZE),
        created_at_us=message.created_at_us,
        chunk_sha256=tuple(message.chunk_sha256),
        total_nano_epsilon=message.total_nano_epsilon,
        total_delta=message.total_delta,
        limit_nano_epsilon=message.limit_nano_epsilon,
        limit_delta=message.limit_delta,
        shared_seed=message.shared_seed,
        count=count and NoisyCount(**{field.name: getattr(count, field.name) for field in fields(NoisyCount)}),
        chunk_bytes=message.chunk_bytes,
        generation=check_integer("generation", message.generation, 1, (1 << 64) - 1),
        earlier=tuple(EarlierPart(part.sequence, part.manifest_sha256) for part in message.earlier),
        planned_increments=message.planned_increments,
        tombstones=wire.encoding_from_proto(message.tombstones) if message.HasField("tombstones") else None,
        removals_epsilon=message.removals_epsilon,
    )


def _check(header: ReleaseHeader, vector_bytes: int) -> None:
    count = header.count
    checks = {
        "count": count is None or _is_count(header, count),
        "created_at_us": 0 <= header.created_at_us < _YEAR_10000_US,
        "total_delta": _is_delta(header.total_delta),
        "limit_nano_epsilon": header.limit_nano_epsilon >= header.total_nano_epsilon,
        "limit_delta": _is_delta(header.limit_delta)
        and _is_delta(header.total_delta)
        and parse_delta(header.limit_delta) >= parse_delta(header.total_delta),
        "sequence": header.sequence >= 1,
        "generation": header.generation == (header.earlier[0].sequence if header.earlier else header.sequence),
        "earlier": _is_before(header.earlier, header.sequence),
        "planned_increments": len(header.earlier) <= header.planned_increments <= MAX_INCREMENTS
        and (header.planned_increments == 0 or header.privacy.delta == 0.0),
        "removals_epsilon": 0.0 <= header.removals_epsilon <= MAX_EPSILON,
        "tombstones": (header.tombstones is not None) == (not header.is_base and header.removals_epsilon > 0),
        "vector_bytes": vector_bytes == header.vector_bytes,
        "chunk_bytes": header.chunk_bytes == CHUNK_BYTES,
        "chunk_sha256": len(header.chunk_sha256) == -(-header.vector_bytes // CHUNK_BYTES)
        and all(len(digest) == _HASH_BYTES for digest in header.chunk_sha256),
    }
    for name, holds in checks.items():
        if not holds:
            raise ReleaseRejected(f"release header: {name} is inconsistent", check=name)


def _is_count(header: ReleaseHeader, count: NoisyCount) -> bool:
    return (
        count.mechanism in list(CountMechanism)
        and 0 < count.scale < _LARGEST_SCALE
        and count.sensitivity == header.privacy.elements_per_user
        and 0 < count.epsilon <= MAX_EPSILON
        and 0 <= count.delta <= MAX_DELTA
    )


def _is_before(earlier: tuple[EarlierPart, ...], sequence: int) -> bool:
    sequences = [part.sequence for part in earlier]
    return all(a < b for a, b in pairwise([0, *sequences, sequence])) and all(
        len(part.manifest_sha256) == _HASH_BYTES for part in earlier
    )


def _is_delta(text: str) -> bool:
    try:
        parse_delta(text)
    except InvalidInput:
        return False
    return True


def split_chunks(vector: NDArray[np.uint8], chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """A packed vector in chunks."""
    for start in range(0, len(vector), chunk_bytes):
        yield vector[start : start + chunk_bytes].tobytes()


def check_chunk(header: ReleaseHeader, index: int, chunk: bytes) -> bytes:
    """Return ``chunk`` if it is the header's chunk ``index``. Raises ReleaseRejected naming the check that failed."""
    expected = min(header.chunk_bytes, header.vector_bytes - index * header.chunk_bytes)
    if len(chunk) != expected:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: chunk {index} has {len(chunk)} bytes instead of {expected}",
            check="chunk_length",
        )
    if hashlib.sha256(chunk).digest() != header.chunk_sha256[index]:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: chunk {index} does not match its hash", check="chunk_sha256"
        )
    return chunk
