"""What the service remembers, as frozen records. Nothing here but `Upload` and `StoredSet.proven_size` depends on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from veilset.core.params import Adjacency, FilterParameters, Normalization, PrivacyParameters


@dataclass(frozen=True, slots=True)
class SetDescription:
    """A set as its owner made it: parameters only. Times are microseconds since the Unix epoch.

    owner: name of the principal that created it, for its quota; empty where nobody was asked.
    """

    name: str
    filter: FilterParameters
    privacy: PrivacyParameters
    normalization: Normalization
    account: str
    created_at_us: int
    declared_size: int
    shared_seed: bool
    owner: str = ""


@dataclass(frozen=True, slots=True)
class StoredSet:
    """A set in the ledger. ``set_id`` is never reused, so a re-created set shares no file with the deleted one.

    proven_size: a lower bound on the number of distinct elements of finished uploads; secret, for the min_size check.
    """

    set_id: int
    description: SetDescription
    proven_size: int


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """What the ledger says that a set's raw vector has to be; secret.

    root: SHA-256 of the vector's checksums as the last finished upload left them; b"" if none is finished; None if the ledger
    is from before it kept this and has not yet taken it on. accepted: ids of the uploads between accepted and finished.
    """

    root: bytes | None
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UploadQuota:
    """How many uploads may be open. prefixes: what the ids of one principal's uploads begin with; "" means all uploads."""

    prefixes: tuple[str, ...]
    own: int
    everybody: int


class UploadState(StrEnum):
    """open → merging (finish accepted and on disk) → finished (part of the raw vector)."""

    OPEN = "open"
    MERGING = "merging"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Upload:
    """One producer's upload into one set; ``count`` is its number of elements once finish was accepted."""

    set_id: int
    upload_id: str
    state: UploadState
    count: int


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
class Charge:
    """What one release costs: integer nano-ε (rounded up, ≥ 1) and exact δ."""

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
