"""From what a set holds to a charged release: encode → artefact on disk → charge committed. Nothing leaves the process here.

The order makes every crash safe: before the charge is committed nothing of the noise has left; after it the same bytes
are always at hand, so a restart delivers them again instead of drawing noise anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings import find_encoding
from veilset.core.encodings.interface import Parameters
from veilset.core.encodings.planning import UNKNOWN_SIZE, PlanRequest
from veilset.core.params import MAX_SIZE, PrivacyParameters, check_epsilon
from veilset.core.privacy.budget import charge_of, format_delta
from veilset.core.privacy.counts import CountNoise, exact_noise
from veilset.core.release.header import NoisyCount, ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import FailedPrecondition, VeilsetError, must_be
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Clock, Entropy, Signer
from veilset_server.records import Charge, ReleaseState, SetDescription, StoredRelease, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.budget_refusal import budget_exceeded
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.counting import (
    CountPurchase,
    capacity_noise,
    count_noise,
    counted,
    noisy_count,
    price,
    sure_capacity,
)
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.sets import check_length, within

MAX_REQUEST_ID = 128


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A release asked for. epsilon, encoding, dimensions: in place of the set's; 0 and "" for the set's."""

    set_name: str
    request_id: str
    count: CountPurchase | None = None
    epsilon: float = 0.0
    encoding: str = ""
    dimensions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= len(self.request_id) <= MAX_REQUEST_ID:
            raise must_be("request_id", f"1 to {MAX_REQUEST_ID} characters", len(self.request_id))


@dataclass(frozen=True, slots=True)
class Terms:
    """How one release is made. privacy: as it is charged and stated, δ = 0 where it holds so. counts_first: the noise is of a
    count that is charged before the vector is drawn, whose capacity follows from it."""

    encoding: Parameters
    privacy: PrivacyParameters
    noise: CountNoise | None
    capacity: int
    counts_first: bool = False

    @property
    def charge(self) -> Charge:
        """What it costs, its count included."""
        return price(self.privacy, self.noise)

    def resized(self, count: NoisyCount, max_bits: int) -> Terms:
        """For the capacity that a count allows: its vector is as long as that asks, or as the service allows. Never refuses."""

        def parameters(capacity: int) -> Parameters:
            return self.encoding.resized(self.privacy, made_for=self.capacity, capacity=capacity)

        least, most = 1, min(sure_capacity(count), MAX_SIZE)
        if 8 * parameters(most).vector_bytes <= max_bits:
            least = most
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if 8 * parameters(middle).vector_bytes <= max_bits else (least, middle)
        return replace(self, encoding=parameters(least), capacity=least)


def make_terms(description: SetDescription, request: PublishRequest, max_bits: int) -> Terms:
    """From public parameters alone. Raises InvalidInput, LimitExceeded, PoorUtility."""
    privacy = description.privacy
    if request.epsilon:
        privacy = replace(privacy, epsilon=check_epsilon("epsilon", request.epsilon))
    counts_first = bool(description.count_epsilon)
    noise: CountNoise | None
    if counts_first:
        if request.count is not None:
            raise must_be("count", "absent: each release of this set has one, for its capacity")
        privacy, noise = capacity_noise(privacy, description.count_epsilon)
    else:
        noise = count_noise(description, request.count) if request.count is not None else None
    encoding = description.encoding
    size = description.declared_size or max(UNKNOWN_SIZE, privacy.min_size)
    if request.encoding:
        family = find_encoding(request.encoding)
        if request.dimensions:
            encoding = family.calibrate(privacy, request.dimensions)
        else:
            encoding = family.plan(within(PlanRequest(size, privacy, min_efficiency=0.0), max_bits)).parameters
    elif request.epsilon:
        capacity = encoding.capacity_for(size)
        encoding = encoding.resized(privacy, made_for=capacity, capacity=capacity)
    check_length(encoding, max_bits)
    return Terms(encoding, encoding.charged(privacy), noise, encoding.capacity_for(size), counts_first)


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
        max_bits: int,
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
        self._max_bits = max_bits
        self._account_locks = KeyedLocks()

    def find(self, request: PublishRequest) -> StoredRelease | None:
        """The release that this request id made earlier. Raises InvalidInput, NotFound, and FailedPrecondition if it was
        another request: one with another count, epsilon or encoding."""
        return self._find(request, self._terms(request))

    def _terms(self, request: PublishRequest) -> Terms:
        return make_terms(self._ledger.get_set(request.set_name).description, request, self._max_bits)

    def _find(self, request: PublishRequest, terms: Terms) -> StoredRelease | None:
        found = self._ledger.find_release(request.set_name, request.request_id)
        if found is not None:
            _check_repeats(found, terms)
        return found

    def charge(self, request: PublishRequest) -> StoredRelease:
        """Make a release of all finished uploads and charge it; the same request id gives the same release again.

        On return the release is on disk and charged, and nothing of it has left the service. Raises NotFound, InvalidInput,
        FailedPrecondition, PoorUtility, LimitExceeded, BudgetExceeded, StorageFull, StateRolledBack, StateCorrupted (naming
        the damaged file), Unavailable (no Redis, or one without writes, or an anchor that cannot be written); nothing is
        charged then.
        """
        terms = self._terms(request)
        found = self._find(request, terms)
        if found is not None:
            return found
        set_name = request.set_name
        stored = self._ledger.get_set(set_name)
        self._guard.check(set_name, stored.description.account)  # outside the lock: Redis may hang
        self._guard.prove_anchor(set_name, stored.description.account)
        with self._set_locks[stored.set_id]:
            found = self._find(request, terms)
            if found is not None:
                return found
            release = self._make(self._ledger.get_set_by_id(stored.set_id), request.request_id, terms)
        self._compactor.wake(stored.set_id, whole=True)
        return release

    def _make(self, stored: StoredSet, request_id: str, terms: Terms) -> StoredRelease:
        description = stored.description
        if not self._runs.holds_any(stored.set_id):
            raise FailedPrecondition(f"set {description.name}: no finished upload; finish one before publishing")
        bought = self._ledger.find_count(stored.set_id, request_id) if terms.counts_first else None
        self._refuse(description, terms.charge if bought is None else price(terms.privacy))
        count = None
        if terms.counts_first and terms.noise is not None:
            # From here on nothing is refused for what the count says: a refusal that costs nothing would tell it anew each time.
            count = counted(self._buy_count(stored, request_id, terms.noise) if bought is None else bought, terms.noise)
            terms = terms.resized(count, self._max_bits)
        return self._draw(stored, request_id, self._ledger.next_sequence(description.name), terms, count)

    def _buy_count(self, stored: StoredSet, request_id: str, noise: CountNoise) -> int:
        """Draw, charge and store the noisy number of digests, in one commit."""
        description = stored.description
        with self._runs.sorted_chunks(stored.set_id) as chunks:
            held = sum(map(len, chunks))
        value = held + exact_noise(noise, self._entropy.keystream())
        with self._account_locks[description.account]:
            sequence = self._ledger.charge_count(stored.set_id, request_id, Charge(*charge_of(noise)), value)
            self._guard.record(description.name, sequence, self._ledger.get_account(description.account))
        return value

    def _draw(
        self, stored: StoredSet, request_id: str, sequence: int, terms: Terms, count: NoisyCount | None
    ) -> StoredRelease:
        """From the first noise to the charge. count: where it has been bought already."""
        description = stored.description
        stream = self._entropy.keystream()
        drawn = int.from_bytes(stream(8), "little") if terms.noise is not None and count is None else 0
        chunk_sha256: list[bytes] = []
        held = 0

        def tallied(chunks: Iterator[NDArray[np.uint64]]) -> Iterator[NDArray[np.uint64]]:
            nonlocal held
            for chunk in chunks:
                held += len(chunk)
                yield chunk

        def hashed(pieces: Iterator[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                chunk_sha256.append(hashlib.sha256(piece).digest())
                yield piece

        with self._runs.sorted_chunks(stored.set_id) as chunks:
            pieces = hashed(terms.encoding.encode(tallied(chunks), stream))
            self._artefacts.write(stored.set_id, sequence, pieces, terms.encoding.vector_bytes)
        if terms.noise is not None and count is None:
            count = noisy_count(held, terms.noise, drawn)
        try:
            with self._account_locks[description.account]:
                return self._commit(stored, request_id, sequence, terms, tuple(chunk_sha256), count)
        except VeilsetError:
            if self._ledger.find_release(description.name, request_id) is None:  # refused: nothing refers to the noise
                self._artefacts.remove(stored.set_id, sequence)
            raise

    def _commit(
        self,
        stored: StoredSet,
        request_id: str,
        sequence: int,
        terms: Terms,
        chunk_sha256: tuple[bytes, ...],
        count: NoisyCount | None,
    ) -> StoredRelease:
        description, charge = stored.description, price(terms.privacy) if terms.counts_first else terms.charge
        account = self._ledger.get_account(description.account)
        header = ReleaseHeader(
            set_name=description.name,
            sequence=sequence,
            hashing=description.hashing,
            encoding=terms.encoding,
            privacy=terms.privacy,
            normalization=description.normalization,
            capacity=terms.capacity,
            created_at_us=self._clock.now_us(),
            chunk_sha256=chunk_sha256,
            total_nano_epsilon=account.spent_nano_epsilon + charge.nano_epsilon,
            total_delta=format_delta(account.spent_delta + charge.delta),
            limit_nano_epsilon=account.total_nano_epsilon,
            limit_delta=format_delta(account.total_delta),
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


def _is_alike(made: Parameters, terms: Terms) -> bool:
    """Whether a release's encoding is that of the terms; its length may be a count's."""
    return made.encoding == terms.encoding.encoding if terms.counts_first else made == terms.encoding


def _check_repeats(release: StoredRelease, terms: Terms) -> None:
    made, noise = open_manifest(release.manifest), terms.noise
    bought = None if made.count is None else (made.count.epsilon, made.count.delta)
    if bought != (None if noise is None else (noise.epsilon, noise.delta)):
        was = "without a count" if bought is None else f"with a count of epsilon {bought[0]:g} and delta {bought[1]:g}"
    elif made.privacy != terms.privacy or not _is_alike(made.encoding, terms):
        was = f"with epsilon {made.privacy.epsilon:g} and encoding {made.encoding.encoding}, {made.encoding}"
    else:
        return
    field = "count" if "count" in was else "epsilon"
    raise FailedPrecondition(
        f"request_id: made release {release.sequence} {was}; repeat it so, or take another id", field=field
    )
