"""What the use cases need from the outside world. Adapters implement these; tests may use the real ones too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilset.core.release.header import CHUNK_BYTES, ReleaseHeader
from veilset_server.records import (
    Account,
    Charge,
    Charged,
    Mark,
    SetDescription,
    StoredRelease,
    StoredSet,
    Upload,
    UploadQuota,
    VectorRecord,
)

VECTOR_CHUNK_BYTES = CHUNK_BYTES
"""Raw vectors are read and checked in pieces as long as a release's chunks."""


class Clock(Protocol):
    """Wall clock, injected so that tests can stop it."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch."""


class Entropy(Protocol):
    """Cryptographic randomness from the operating system."""

    def seed32(self) -> int:
        """A uniform 32-bit integer."""

    def keystream(self) -> KeyStream:
        """A fresh stream, keyed anew; never the same twice."""


class KeyStream(Protocol):
    """Callable source of uniform random bytes; each call continues where the last one stopped."""

    def __call__(self, length: int, /) -> bytes | bytearray | memoryview:
        """The next ``length`` bytes."""


class Ledger(Protocol):
    """The durable record of sets, uploads, releases and budgets. Every method is one transaction; all are thread-safe.

    A method that returns has committed to disk; one that raises has changed nothing.
    """

    def create_set(
        self,
        description: SetDescription,
        budget_nano_epsilon: int,
        budget_delta: Fraction,
        max_sets: int,
        max_sets_of_owner: int | None = None,
    ) -> StoredSet:
        """Raises InvalidInput, AlreadyExists, LimitExceeded (so many are there already, in all or of the same owner).

        The budget is used only if the account is new.
        """

    def get_set(self, name: str) -> StoredSet:
        """Raises NotFound."""

    def get_set_by_id(self, set_id: int) -> StoredSet:
        """Raises NotFound, also for a deleted set."""

    def list_sets(self, after: str, limit: int) -> list[StoredSet]:
        """Up to ``limit`` sets with names above ``after``, by name."""

    def delete_set(self, name: str) -> StoredSet:
        """Forget the set and its uploads; its releases, charges and highest sequence stay. Raises NotFound.

        Its pending releases become lost and its published ones expired, so that nothing delivers or restores them.
        """

    def open_upload(self, set_id: int, upload_id: str, quota: UploadQuota | None = None) -> Upload:
        """The upload of that id, made if new. Raises NotFound if the set is gone, LimitExceeded if a new one passes the quota."""

    def accept_upload(self, set_id: int, upload_id: str, count: int) -> None:
        """Open → merging: the upload's elements are on disk and will be part of the set whatever happens now."""

    def finish_upload(self, set_id: int, upload_id: str, new_elements: int, vector_root: bytes) -> None:
        """Merging → finished, proven_size grows by ``new_elements``, and the raw vector has to be that of ``vector_root``."""

    def vector_record(self, set_id: int) -> VectorRecord:
        """What the set's raw vector has to be."""

    def merging_uploads(self, set_id: int | None = None) -> list[Upload]:
        """Uploads that a crash or a fault left between accepted and finished, of one set or of all, by set and age."""

    def open_uploads(self, set_id: int) -> int:
        """Number of uploads of the set that are open."""

    def finished_uploads(self, set_id: int) -> int:
        """Number of uploads of the set that are finished."""

    def all_open_uploads(self) -> list[Upload]:
        """Open uploads of all sets."""

    def drop_upload(self, set_id: int, upload_id: str) -> bool:
        """Forget an upload if it is still open; whether it was forgotten."""

    def next_sequence(self, set_name: str) -> int:
        """The sequence that the next charge under this name must carry; rises across deletion and re-creation."""

    def charge_release(self, release: StoredRelease, account: str, charge: Charge, expected_spent: int) -> None:
        """Commit the charge and the pending release together.

        expected_spent: the account's spent nano-ε that the release's header was computed from.
        Raises NotFound (the set was deleted), BudgetExceeded, AlreadyExists (request id or sequence taken), or
        FailedPrecondition if another charge came between (then compute the header anew; the noise need not change as
        nothing left the process).
        """

    def charge_lost_releases(
        self, set_name: str, last_sequence: int, account: str, charge: Charge, reason: str
    ) -> Account:
        """Charge what releases cost that this ledger does not know, since an older copy took its place.

        last_sequence: the highest sequence that was seen; later releases go on above it. charge: all that the account
        lost. reason: 1 to 500 characters, for the audit. Raises InvalidInput, NotFound, AlreadyExists (that sequence is
        known), BudgetExceeded (raise the budget first).
        """

    def mark_release(self, set_id: int, sequence: int, state: str) -> None:
        """Move a release along its states; a step back is refused with FailedPrecondition."""

    def get_release(self, set_name: str, sequence: int) -> StoredRelease:
        """The release of that sequence, or the newest for 0. Raises NotFound."""

    def find_release(self, set_name: str, request_id: str) -> StoredRelease | None:
        """The release that this request id made of the set that now bears the name, if any."""

    def list_releases(self, set_name: str, below: int, limit: int) -> list[StoredRelease]:
        """Newest first, with sequences below ``below`` (0: from the newest)."""

    def releases_in_state(self, state: str) -> list[StoredRelease]:
        """All releases in a state, oldest first."""

    def sequences_in_state(self, set_name: str, state: str) -> list[int]:
        """Of a set's releases in a state, newest first."""

    def charged(self) -> Charged:
        """The marks of every account and of every set's name that was ever charged, whether there still is such a set."""

    def get_account(self, name: str) -> Account:
        """Raises NotFound."""

    def raise_budget(self, account: str, nano_epsilon: int, delta: Fraction, reason: str, at_us: int) -> Account:
        """Set new totals, at least the present ones (else InvalidInput), and leave an audit row."""


class UploadSpool(Protocol):
    """The digests of one open upload on disk, in batches; survives SIGKILL after every append."""

    @property
    def sequence(self) -> int:
        """Highest batch held; 0 for none."""

    @property
    def elements(self) -> int:
        """Elements in those batches."""

    def append(self, sequence: int, digests: NDArray[np.uint64]) -> None:
        """Hold the next batch, shape (n,).

        Raises OutOfSequence (not sequence + 1, or another stream goes on with the upload), NotFound (it was dropped),
        StorageFull (nothing held).
        """

    def checksum(self) -> bytes:
        """XXH3-128 of all digests held, in order."""

    def sync(self) -> None:
        """Return once everything held is on disk. Raises OutOfSequence and NotFound as ``append`` does."""

    def read(self) -> Iterator[NDArray[np.uint64]]:
        """The digests again, in chunks of shape (n,)."""

    def close(self) -> None:
        """Let go of the file; what is held stays."""


class VectorSpool(Protocol):
    """The chunks of one open merge on disk; survives SIGKILL after every append."""

    @property
    def chunks(self) -> int:
        """Chunks below this index are held, or were left out as they are zero."""

    @property
    def indexes(self) -> Sequence[int]:
        """The chunks held, by rising index."""

    def append(self, index: int, bits: bytes) -> None:
        """Hold a chunk at or above `chunks`.

        Raises OutOfSequence (below it, or another stream goes on with the merge), NotFound (it was dropped), StorageFull
        (nothing held).
        """

    def sha256(self, length: int) -> bytes:
        """SHA-256 of the vector of ``length`` bytes; what was left out is zeros. Nothing can be appended then.

        ValueError for a spool that was opened as accepted.
        """

    def sync(self) -> None:
        """Return once everything held is on disk. Raises OutOfSequence and NotFound as ``append`` does."""

    def read(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The chunks again, each with the place of its first byte in the vector."""

    def close(self) -> None:
        """Let go of the file; what is held stays."""


SpoolTrace = tuple[int, int] | None
IdleAges = dict[tuple[int, str], tuple[float, SpoolTrace]]
"""(set id, SHA-256 of the upload id in hexadecimal) → (seconds left alone, trace of its spool)."""


class IdleRecord(Protocol):
    """How long open uploads were left alone, over restarts. A help for memory: losing it only makes them stay longer."""

    def read(self) -> IdleAges:
        """What was last written; empty if there is nothing."""

    def write(self, ages: IdleAges) -> None:
        """Put ``ages`` in its place. Raises StorageFull."""


class VectorStore(Protocol):
    """The files of the state folder: raw vectors, upload spools, release artefacts."""

    def create_vector(self, set_id: int, length: int) -> None:
        """A raw vector of ``length`` zero bytes, its blocks allocated; one that is there stays. Raises StorageFull."""

    def read_vector(self, set_id: int, length: int, record: VectorRecord) -> Iterator[NDArray[np.uint8]]:
        """The raw vector by chunks of `VECTOR_CHUNK_BYTES`, each a copy that was found to be what was last merged.

        Raises StateCorrupted naming the file at the first chunk that is not, or at once if the file is not as declared or
        of another age than the ledger's ``record``.
        """

    def vector_root(self, set_id: int, length: int) -> bytes:
        """SHA-256 of the checksums of the vector as it was last merged, for the ledger. Raises StateCorrupted."""

    def change_vector(
        self,
        set_id: int,
        length: int,
        upload_id: str,
        record: VectorRecord,
        touched: Callable[[], Collection[int]],
        positions: int | None,
    ) -> AbstractContextManager[NDArray[np.uint8]]:
        """The raw vector as a writable array of shape (length,), to OR an accepted upload's bits into.

        touched: tells the chunks in which the upload has bits, exactly; asked only if that is needed. positions: at most how
        many bits it has; None if touched knows without looking. Every chunk that may change is checked; where an earlier
        merge of this same upload was interrupted, what becomes of them is (in a long vector, those that it touches may be
        half-way and pass). The array may be a copy.
        Behind the block all is on disk, checksums too; the ledger has to be told their root then. A vector that is ahead of
        ``record`` by merges of accepted uploads only, as a crash between the two leaves it, passes.
        Raises StateCorrupted naming the file, StorageFull. If the block raises, the merge counts as interrupted.
        """

    def open_spool(self, set_id: int, upload_id: str, *, accepted: bool = False) -> UploadSpool:
        """The spool of an upload, made if new unless ``accepted``; a torn last batch is cut off.

        Raises StorageFull, StateCorrupted (an acknowledged batch is damaged or missing, or an accepted upload's spool is).
        """

    def open_vector_spool(self, set_id: int, upload_id: str, *, accepted: bool = False) -> VectorSpool:
        """The same for a merge; ids of both kinds of upload have to differ."""

    def spool_trace(self, set_id: int, upload_id: str) -> SpoolTrace:
        """What changes whenever the spool is opened or appended to; None if there is no spool."""

    def remove_idle_spool(self, set_id: int, upload_id: str, trace: SpoolTrace) -> bool:
        """Delete a spool unless it was opened or appended to since it had that trace; whether it is gone."""

    def remove_spool(self, set_id: int, upload_id: str) -> None:
        """Delete a spool; no error if it is gone."""

    def remove_other_spools(self, kept: Collection[tuple[int, str]]) -> int:
        """Delete all spools but those of these uploads (set id, upload id); returns how many. Not to run while any is open."""

    def write_artefact(self, set_id: int, sequence: int, chunks: Iterator[bytes], length: int) -> None:
        """Write a release's bits, fsync file and folder, and make them appear whole. Raises StorageFull.

        Takes the place of an artefact of that sequence, which was never charged then.
        """

    def read_artefact(self, set_id: int, sequence: int, chunk_bytes: int) -> Iterator[bytes]:
        """The bits again, by chunks. Raises StateCorrupted if the file is missing or of the wrong length."""

    def artefact_name(self, set_id: int, sequence: int) -> str:
        """How errors call its file."""

    def artefacts(self) -> list[tuple[int, int]]:
        """(set_id, sequence) of all artefacts on disk."""

    def remove_artefact(self, set_id: int, sequence: int) -> None:
        """Delete an artefact; no error if it is gone."""

    def remove_set(self, set_id: int) -> None:
        """Delete the set's vector and spools (not its artefacts); no error if they are gone."""


class Anchor(Protocol):
    """A memory of charges outside the state folder, so that a restored older folder is noticed."""

    @property
    def missing(self) -> bool:
        """Whether there was none when it was opened: it remembers nothing then but what it was told since."""

    def read(self, set_name: str, account: str) -> Mark:
        """The highest mark of the set and of its account; zeros if there is none."""

    def charged(self) -> Charged:
        """The highest marks of all sets and accounts that it was ever told of."""

    def raise_to(self, charged: Charged) -> None:
        """Raise all these marks in one write, durably; never lowers one, and writes also if none rises.

        What cannot be written now is part of the next write. Raises StorageFull, Unavailable, StateCorrupted.
        """

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        """`raise_to` for one set and its account."""


class Signer(Protocol):
    """Signs release headers with this service's keys."""

    def sign(self, header: ReleaseHeader) -> bytes:
        """The manifest: the header with the signature of every key that signs now."""

    def public_keys(self) -> Collection[bytes]:
        """Raw public keys of all that ever signed, retired ones too."""


class ReleaseStore(Protocol):
    """Where readers fetch releases: Redis or Valkey. All writes are idempotent. Raises Unavailable."""

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        """Write manifest and chunks; nothing is visible through the pointer yet."""

    def move_pointer(self, set_name: str, sequence: int) -> None:
        """Point readers at ``sequence`` unless the pointer is already there or further, and notify them."""

    def latest(self, set_name: str) -> int:
        """Where the pointer points; 0 for nowhere."""

    def manifest(self, set_name: str, sequence: int) -> bytes:
        """The manifest of a release. Raises NotFound."""

    def missing_chunks(self, set_name: str, sequence: int, manifest: bytes, sizes: Sequence[int]) -> list[int]:
        """Which keys of a release are gone or of the wrong length: chunk indexes, -1 for the manifest."""

    def changed_chunks(self, set_name: str, sequence: int, sha256: Mapping[int, bytes]) -> list[int]:
        """Which of these chunks (index → SHA-256) have another content. Reads all of them."""

    def restore(self, set_name: str, sequence: int, index: int, value: bytes) -> None:
        """Write one key again; index -1 is the manifest."""

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        """Let an old release go after the grace time."""

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        """Delete releases (sequence, chunk count) and the pointer of a deleted set."""

    def probe(self, set_name: str) -> None:
        """Ask for everything that a delivery of the set will do, changing nothing. Raises StoreMisconfigured, Unavailable."""

    def ping(self) -> None:
        """Raises Unavailable if the store does not answer or takes no writes."""

    def evicts(self) -> str:
        """By which policy the store may throw releases out when memory is short; empty if by none, or if it does not say."""
