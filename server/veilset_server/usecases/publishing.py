"""From a raw vector to a charged release: perturb → artefact on disk → charge committed. Nothing leaves the process here.

The order makes every crash safe: before the charge is committed nothing of the noise has left; after it the same bytes
are always at hand, so a restart delivers them again instead of drawing noise anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.bitset import count_ones
from veilset.core.encodings.bloom.calibration import CalibratedResponse, calibrate
from veilset.core.encodings.bloom.response import perturb
from veilset.core.privacy.budget import format_delta
from veilset.core.privacy.counts import CountNoise
from veilset.core.release.header import CHUNK_BYTES, NoisyCount, ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import FailedPrecondition, InvalidInput, MinimumSizeUnproved, VeilsetError
from veilset_server.ports import Clock, Entropy, KeyStream, Ledger, Signer, VectorStore
from veilset_server.records import Charge, ReleaseState, SetDescription, StoredRelease, StoredSet
from veilset_server.state.budget_refusal import budget_exceeded
from veilset_server.usecases.counting import CountPurchase, count_noise, noisy_count, price
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.rollback import RollbackGuard

MAX_REQUEST_ID = 128


class Publishing:
    """Composes and charges releases, one at a time per set and per budget account."""

    def __init__(
        self,
        ledger: Ledger,
        files: VectorStore,
        entropy: Entropy,
        clock: Clock,
        signer: Signer,
        set_locks: KeyedLocks,
        merging: Merging,
        guard: RollbackGuard,
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._entropy = entropy
        self._clock = clock
        self._signer = signer
        self._set_locks = set_locks
        self._merging = merging
        self._guard = guard
        self._account_locks = KeyedLocks()

    def find(self, set_name: str, request_id: str, count: CountPurchase | None = None) -> StoredRelease | None:
        """The release that this request id made earlier. Raises InvalidInput, NotFound, and FailedPrecondition if it was
        another request: one with another count, or without one."""
        if not 1 <= len(request_id) <= MAX_REQUEST_ID:
            raise InvalidInput("request_id", f"1 to {MAX_REQUEST_ID} characters", len(request_id))
        description = self._ledger.get_set(set_name).description
        found = self._ledger.find_release(set_name, request_id)
        if found is not None:
            _check_repeats(found, description, count)
        return found

    def charge(self, set_name: str, request_id: str, count: CountPurchase | None = None) -> StoredRelease:
        """Make a release of all finished uploads and charge it; the same request id gives the same release again.

        count: what to spend on a noisy count beside the bits. On return the release is on disk and charged, and nothing
        of it has left the service. Raises NotFound, InvalidInput, FailedPrecondition, MinimumSizeUnproved,
        BudgetExceeded, StorageFull, StateRolledBack, StateCorrupted (naming the damaged file), Unavailable (no Redis, or one
        without writes, or an anchor that cannot be written); nothing is charged then.
        """
        found = self.find(set_name, request_id, count)
        if found is not None:
            return found
        stored = self._ledger.get_set(set_name)
        # Outside the lock, which finishing uploads need too: a Redis that hangs must not hold them up.
        self._guard.check(set_name, stored.description.account)
        self._guard.prove_anchor(set_name, stored.description.account)
        with self._set_locks[stored.set_id]:
            found = self._ledger.find_release(set_name, request_id)
            if found is not None:
                _check_repeats(found, stored.description, count)
                return found
            self._merging.complete(stored)
            return self._make(self._ledger.get_set_by_id(stored.set_id), request_id, count)

    def _make(self, stored: StoredSet, request_id: str, purchase: CountPurchase | None) -> StoredRelease:
        description = stored.description
        if not self._ledger.finished_uploads(stored.set_id):
            raise FailedPrecondition(f"set {description.name}: no finished upload; finish one before publishing")
        noise = count_noise(description, purchase) if purchase is not None else None
        charge = price(description.privacy, noise)
        self._refuse(description, charge)
        response = calibrate(description.filter, description.privacy)
        sequence = self._ledger.next_sequence(description.name)
        promised = description.privacy.min_size
        # Also where the counter proves it: whoever asks for a publish must not tell by its time how far uploads counted.
        ones = self._ones(stored) if promised != 1 or noise is not None else 0
        if stored.proven_size < promised != 1:
            _prove_min_size(description, ones)
        return self._draw(stored, request_id, sequence, response, charge, noise, ones)

    def _draw(
        self,
        stored: StoredSet,
        request_id: str,
        sequence: int,
        response: CalibratedResponse,
        charge: Charge,
        noise: CountNoise | None,
        ones: int,
    ) -> StoredRelease:
        """From the first noise to the charge. What comes before takes longer where uploads held much; this may not."""
        description = stored.description
        stream = self._entropy.keystream()
        count = noisy_count(ones, noise, stream) if noise is not None else None
        hashes: list[bytes] = []
        raw = self._raw(stored)
        chunks = _noisy_chunks(raw, description.filter.bits, response.threshold, stream, hashes)
        self._files.write_artefact(stored.set_id, sequence, chunks, description.filter.vector_bytes)
        try:
            with self._account_locks[description.account]:
                return self._commit(stored, request_id, sequence, response, tuple(hashes), charge, count)
        except VeilsetError:
            if self._ledger.find_release(description.name, request_id) is None:  # refused: nothing refers to the noise
                self._files.remove_artefact(stored.set_id, sequence)
            raise

    def _commit(
        self,
        stored: StoredSet,
        request_id: str,
        sequence: int,
        response: CalibratedResponse,
        chunk_sha256: tuple[bytes, ...],
        charge: Charge,
        count: NoisyCount | None,
    ) -> StoredRelease:
        description = stored.description
        account = self._ledger.get_account(description.account)
        header = ReleaseHeader(
            set_name=description.name,
            sequence=sequence,
            filter=description.filter,
            privacy=description.privacy,
            normalization=description.normalization,
            changed_bits=response.changed_bits,
            epsilon0=response.epsilon0,
            flip_threshold=response.threshold,
            created_at_us=self._clock.now_us(),
            chunk_sha256=chunk_sha256,
            total_nano_epsilon=account.spent_nano_epsilon + charge.nano_epsilon,
            total_delta=format_delta(account.spent_delta + charge.delta),
            shared_seed=description.shared_seed,
            count=count,
        )
        release = StoredRelease(
            set_id=stored.set_id,
            set_name=description.name,
            sequence=sequence,
            request_id=request_id,
            state=ReleaseState.PENDING,
            manifest=self._signer.sign(header),
        )
        self._ledger.charge_release(release, description.account, charge, account.spent_nano_epsilon)
        self._guard.record(description.name, sequence, self._ledger.get_account(description.account))
        return release

    def _refuse(self, description: SetDescription, charge: Charge) -> None:
        """Before any work: a spent budget (which the commit checks again)."""
        account = self._ledger.get_account(description.account)
        left_epsilon = account.total_nano_epsilon - account.spent_nano_epsilon
        left_delta = account.total_delta - account.spent_delta
        if charge.nano_epsilon > left_epsilon or charge.delta > left_delta:
            raise budget_exceeded(account, charge)

    def _ones(self, stored: StoredSet) -> int:
        """Ones of the raw vector. Secret."""
        return sum(map(count_ones, self._raw(stored)))

    def _raw(self, stored: StoredSet) -> Iterator[NDArray[np.uint8]]:
        """The raw vector that the ledger's proven_size is of, no other. Secret."""
        record = self._ledger.vector_record(stored.set_id)
        return self._files.read_vector(stored.set_id, stored.description.filter.vector_bytes, record)


def _check_repeats(release: StoredRelease, description: SetDescription, purchase: CountPurchase | None) -> None:
    made = open_manifest(release.manifest).count
    bought = None if made is None else (made.epsilon, made.delta)
    noise = None if purchase is None else count_noise(description, purchase)
    if bought != (None if noise is None else (noise.epsilon, noise.delta)):
        was = "without a count" if bought is None else f"with a count of epsilon {bought[0]:g} and delta {bought[1]:g}"
        raise FailedPrecondition(
            f"request_id: made release {release.sequence} {was}; repeat it so, or take another id", field="count"
        )


def _prove_min_size(description: SetDescription, ones: int) -> None:
    """An element sets at most k bits, so ones/k bounds the number of distinct elements too, also after a crash."""
    promised = description.privacy.min_size
    if -(-ones // description.filter.hashes) < promised:
        raise MinimumSizeUnproved(
            f"set {description.name}: cannot prove its promised min_size of {promised}; add elements, or "
            "create a set that promises less",
            field="min_size",
            promised=promised,
        )


def _noisy_chunks(
    raw: Iterator[NDArray[np.uint8]], bits: int, threshold: int, stream: KeyStream, hashes: list[bytes]
) -> Iterator[bytes]:
    """Perturb chunk by chunk, so that memory does not grow with the vector; append each chunk's SHA-256 to ``hashes``."""
    for index, piece in enumerate(raw):
        chunk = perturb(piece, min(8 * len(piece), bits - 8 * CHUNK_BYTES * index), threshold, stream).tobytes()
        hashes.append(hashlib.sha256(chunk).digest())
        yield chunk
