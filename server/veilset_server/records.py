"""What the service remembers, as frozen records. Nothing here but uploads and runs depends on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.interface import Parameters
from veilset.core.params import Adjacency, HashParameters, Normalization, Operation, PrivacyParameters


@dataclass(frozen=True, slots=True)
class SetDescription:
    """A set as its owner made it: parameters only. Times are microseconds since the Unix epoch.

    encoding, privacy: of each release, unless its publish says otherwise.
    owner: name of the principal that created it, for its quota; empty where authentication was off.
    count_epsilon: how much of each release's ε buys a noisy count for its capacity; 0 where the declared size is the capacity's.
    increments: how many may follow a base release, unless its publish says otherwise. increment_capacity: the number of elements
    that one is made for. removals_epsilon: what a generation pays, beside its base, for vectors of removed elements.
    expire_days: after how many days an element that was not added again leaves the set; 0 for never.
    """

    name: str
    hashing: HashParameters
    encoding: Parameters
    privacy: PrivacyParameters
    normalization: Normalization
    account: str
    created_at_us: int
    declared_size: int
    shared_seed: bool
    owner: str = ""
    count_epsilon: float = 0.0
    increments: int = 0
    increment_capacity: int = 0
    removals_epsilon: float = 0.0
    expire_days: int = 0


@dataclass(frozen=True, slots=True)
class StoredSet:
    """A set in the ledger. ``set_id`` is never reused, so a re-created set shares no file with the deleted one."""

    set_id: int
    description: SetDescription


@dataclass(frozen=True, slots=True)
class UploadQuota:
    """How many uploads may be open. prefix: what the ids of one principal's uploads begin with; "" means all uploads."""

    prefix: str
    own: int
    everybody: int


class UploadState(StrEnum):
    """open → finished (part of the set); a part of an upload is sealed in between."""

    OPEN = "open"
    SEALED = "sealed"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Upload:
    """One producer's upload into one set, or one part of it (part 0: the upload itself).

    serial: of its spool. count, checksum: of a sealed part or, the count alone, of a finished upload.
    """

    set_id: int
    upload_id: str
    part: int
    serial: int
    operation: Operation
    state: UploadState
    count: int
    checksum: bytes = b""


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part as finish lists it. checksum: XXH3-128 of its digests in the order sent."""

    part: int
    count: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of a run. name: below the state folder. sent: digests sent. checksum: of all that is in it."""

    name: str
    sent: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run: what one upload of ``operation`` brought, or what several were folded into (operation None).

    number: its place in the order of finish. removes: whether any upload in it was a removal. day: of its finish, in days since
    the Unix epoch, UTC; never falls as number rises.
    """

    number: int
    operation: Operation | None
    files: tuple[RunFile, ...]
    removes: bool
    day: int

    @property
    def sent(self) -> int:
        """How many digests were sent in it, repeats counted."""
        return sum(file.sent for file in self.files)


@dataclass(frozen=True, slots=True)
class SmallUpload:
    """An upload that is still in the ledger; digests: shape (n,), dtype uint64. number, day: as of `StoredRun`."""

    number: int
    operation: Operation
    digests: NDArray[np.uint64]
    day: int


@dataclass(frozen=True, slots=True)
class SmallBatch:
    """An upload that comes in one call. made_with: how its digests were made, where the producer says so; has to be the set's."""

    set_name: str
    upload_id: str
    operation: Operation
    digests: bytes
    made_with: tuple[HashParameters, Normalization] | None = None


class ReleaseState(StrEnum):
    """charged (pending) → published → expired; lost = charged, but the bits were gone before they became visible."""

    PENDING = "pending"
    PUBLISHED = "published"
    EXPIRED = "expired"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """A charged release. ``manifest`` is the serialized SignedHeader; its bits lie in the artefact file."""

    set_id: int
    set_name: str
    sequence: int
    request_id: str
    state: ReleaseState
    manifest: bytes


@dataclass(frozen=True, slots=True)
class Generation:
    """A base release that increments may follow. base: its sequence. planned, made: how many increments may follow, and did.

    released: all digests that its releases hold.
    """

    base: int
    planned: int
    made: int
    released: RunFile


@dataclass(frozen=True, slots=True)
class Charge:
    """What one release costs: integer nano-ε (rounded up; 0 for an increment only) and exact δ."""

    nano_epsilon: int
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a set's releases, its account's charges and its operations had come, as seen outside the ledger."""

    sequence: int
    nano_epsilon: int
    delta: Fraction
    operation: int = 0


@dataclass(frozen=True, slots=True)
class Charged:
    """The marks of everything that was ever charged: the highest sequence of each set's name, deleted sets' too, and what each
    account has spent, as (nano-ε, δ). operations: the last number of a remove or replace of each set's name that had one."""

    sequences: Mapping[str, int]
    accounts: Mapping[str, tuple[int, Fraction]]
    operations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What a person did to a budget account: a new total, or, with ``lost_set``, the confirmed loss that was charged."""

    at_us: int
    nano_epsilon: int
    delta: Fraction
    lost_set: str
    reason: str


@dataclass(frozen=True, slots=True)
class Account:
    """A budget account; outlives the sets that are charged to it.

    adjacency, elements_per_user: relation and unit of every release that is charged to it; for sums of ε over releases that
    promise different things promise nothing.
    """

    name: str
    adjacency: Adjacency
    elements_per_user: int
    total_nano_epsilon: int
    spent_nano_epsilon: int
    total_delta: Fraction
    spent_delta: Fraction
    charges: int
