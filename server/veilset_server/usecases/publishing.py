"""From what a set holds to a charged release: encode → artefact on disk → charge committed. Nothing leaves the process here.

The order makes every crash safe: before the charge is committed nothing of the noise has left; after it the same bytes
are always at hand, so a restart delivers them again instead of drawing noise anew.
"""

from __future__ import annotations

from veilset.core.encodings.bloom.calibration import CalibratedResponse, calibrate
from veilset.core.privacy.budget import format_delta
from veilset.core.privacy.counts import CountNoise
from veilset.core.release.header import NoisyCount, ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import FailedPrecondition, InvalidInput, VeilsetError
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Clock, Entropy, Signer
from veilset_server.records import Charge, ReleaseState, SetDescription, StoredRelease, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.budget_refusal import budget_exceeded
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.counting import CountPurchase, count_noise, noisy_count, price
from veilset_server.usecases.noisy_vector import NoisyVector
from veilset_server.usecases.rollback import RollbackGuard

MAX_REQUEST_ID = 128


class Publishing:
    """Composes and charges releases, one at a time per set and per budget account."""

    def __init__(
        self,
        ledger: SqliteLedger,
        runs: Runs,
        artefacts: ArtefactFiles,
        entropy: Entropy,
        clock: Clock,
        signer: Signer,
        set_locks: KeyedLocks,
        compactor: Compactor,
        guard: RollbackGuard,
    ) -> None:
        self._ledger = ledger
        self._runs = runs
        self._artefacts = artefacts
        self._entropy = entropy
        self._clock = clock
        self._signer = signer
        self._set_locks = set_locks
        self._compactor = compactor
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
        self._guard.check(set_name, stored.description.account)  # outside the lock: Redis may hang
        self._guard.prove_anchor(set_name, stored.description.account)
        with self._set_locks[stored.set_id]:
            found = self._ledger.find_release(set_name, request_id)
            if found is not None:
                _check_repeats(found, stored.description, count)
                return found
            release = self._make(self._ledger.get_set_by_id(stored.set_id), request_id, count)
        self._compactor.wake(stored.set_id, whole=True)
        return release

    def _make(self, stored: StoredSet, request_id: str, purchase: CountPurchase | None) -> StoredRelease:
        description = stored.description
        if not self._runs.holds_any(stored.set_id):
            raise FailedPrecondition(f"set {description.name}: no finished upload; finish one before publishing")
        noise = count_noise(description, purchase) if purchase is not None else None
        charge = price(description.privacy, noise)
        self._refuse(description, charge)
        response = calibrate(description.filter, description.privacy)
        sequence = self._ledger.next_sequence(description.name)
        return self._draw(stored, request_id, sequence, response, charge, noise)

    def _draw(
        self,
        stored: StoredSet,
        request_id: str,
        sequence: int,
        response: CalibratedResponse,
        charge: Charge,
        noise: CountNoise | None,
    ) -> StoredRelease:
        """From the first noise to the charge."""
        description = stored.description
        stream = self._entropy.keystream()
        drawn = int.from_bytes(stream(8), "little") if noise is not None else 0
        vector = NoisyVector(description.filter, response.threshold, stream)
        with self._runs.sorted_chunks(stored.set_id) as chunks:
            pieces = vector.encode(chunks)
            self._artefacts.write(stored.set_id, sequence, pieces, description.filter.vector_bytes)
        count = noisy_count(vector.ones, noise, drawn) if noise is not None else None
        try:
            with self._account_locks[description.account]:
                return self._commit(stored, request_id, sequence, response, tuple(vector.sha256), charge, count)
        except VeilsetError:
            if self._ledger.find_release(description.name, request_id) is None:  # refused: nothing refers to the noise
                self._artefacts.remove(stored.set_id, sequence)
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


def _check_repeats(release: StoredRelease, description: SetDescription, purchase: CountPurchase | None) -> None:
    made = open_manifest(release.manifest).count
    bought = None if made is None else (made.epsilon, made.delta)
    noise = None if purchase is None else count_noise(description, purchase)
    if bought != (None if noise is None else (noise.epsilon, noise.delta)):
        was = "without a count" if bought is None else f"with a count of epsilon {bought[0]:g} and delta {bought[1]:g}"
        raise FailedPrecondition(
            f"request_id: made release {release.sequence} {was}; repeat it so, or take another id", field="count"
        )
