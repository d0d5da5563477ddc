"""From what a set holds to a charged release: encode → artefact on disk → charge committed. Nothing leaves the process here.

The order makes every crash safe: before the charge is committed nothing of the noise has left; after it the same bytes
are always at hand, so a restart delivers them again instead of drawing noise anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings import find_encoding
from veilset.core.encodings.generation import check_generation
from veilset.core.encodings.interface import CHUNK_BYTES, Digests, Parameters
from veilset.core.encodings.planning import (
    MAX_INCREMENTS,
    UNKNOWN_SIZE,
    PlanRequest,
    default_increment,
    for_increment,
    plan_removals,
)
from veilset.core.params import MAX_SIZE, PrivacyParameters, check_epsilon, check_integer
from veilset.core.privacy.budget import charge_of, format_delta
from veilset.core.privacy.counts import CountNoise, exact_noise, integer_noise
from veilset.core.release.header import EarlierPart, NoisyCount, ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import FailedPrecondition, InvalidInput, VeilsetError, must_be
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Clock, Entropy, Signer
from veilset_server.records import Charge, Generation, ReleaseState, SetDescription, StoredRelease, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.budgets import budget_exceeded
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.runs import Runs
from veilset_server.usecases.budgets import (
    FREE,
    CountPurchase,
    capacity_noise,
    count_noise,
    counted,
    price,
    sure_capacity,
)
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.sets import check_length, within

MAX_REQUEST_ID = 128


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A release asked for. epsilon, encoding, dimensions, increments: of a base in place of the set's; 0, "" and None for the
    set's. increment: only what no release of the current generation held before."""

    set_name: str
    request_id: str
    count: CountPurchase | None = None
    epsilon: float = 0.0
    encoding: str = ""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    increment: bool = False
    increments: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.request_id) <= MAX_REQUEST_ID:
            raise must_be("request_id", f"1 to {MAX_REQUEST_ID} characters", len(self.request_id))
        check_integer("increments", self.increments or 0, 0, MAX_INCREMENTS)
        changed = {
            "epsilon": self.epsilon,
            "encoding": self.encoding,
            "count": self.count,
            "increments": self.increments is not None,
        }
        for name, given in changed.items():
            if self.increment and given:
                raise InvalidInput(name, f"{name} is that of the base release; leave it out of an increment")


@dataclass(frozen=True, slots=True)
class Terms:
    """How one release is made. privacy: as it is charged and stated, δ = 0 where it holds so. counts_first: the noise is of a
    count that is charged before the vector is drawn, whose capacity follows from it. planned: how many increments its
    generation may have. removals_epsilon: what the generation pays for vectors of removed elements. generation: what an
    increment belongs to; None for a base. tombstones: how an increment's second vector is made."""

    encoding: Parameters
    privacy: PrivacyParameters
    noise: CountNoise | None
    capacity: int
    counts_first: bool = False
    planned: int = 0
    removals_epsilon: float = 0.0
    generation: Generation | None = None
    tombstones: Parameters | None = None

    @property
    def charge(self) -> Charge:
        """What it costs, its count included; an increment was paid for with its base."""
        return FREE if self.generation is not None else price(self.privacy, self.noise, self.removals_epsilon)

    @property
    def charge_after_count(self) -> Charge:
        """What is left to charge where its count was charged before."""
        return price(self.privacy, None, self.removals_epsilon) if self.counts_first else self.charge

    @property
    def vector_bytes(self) -> int:
        """Length of the packed vector, that of the tombstones included."""
        return self.encoding.vector_bytes + (self.tombstones.vector_bytes if self.tombstones is not None else 0)

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
            raise InvalidInput("count", "count is in each release of this set already, for its capacity; leave it out")
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
    planned = description.increments if request.increments is None else request.increments
    charged = encoding.charged(privacy)
    if planned:
        check_generation(encoding, charged)
    removals = description.removals_epsilon if planned else 0.0
    _removals(type(encoding), charged, removals, _increment_capacity(description), planned)  # refused now or never
    return Terms(encoding, charged, noise, encoding.capacity_for(size), counts_first, planned, removals)


def _increment_capacity(description: SetDescription) -> int:
    """New elements that an increment is made for; a set that planned none by itself has the usual number."""
    return description.increment_capacity or default_increment(description.declared_size or UNKNOWN_SIZE)


def _removals(
    encoding: type[Parameters], privacy: PrivacyParameters, epsilon: float, size: int, increments: int
) -> Parameters | None:
    return plan_removals(encoding, privacy, epsilon, size=size, increments=increments).parameters if epsilon else None


def increment_terms(description: SetDescription, base: ReleaseHeader, generation: Generation) -> Terms:
    """Of the next increment of a generation, from its base's header and the set's parameters alone."""
    size = _increment_capacity(description)
    encoding = for_increment(base.encoding, base.privacy, made_for=base.capacity, size=size)
    removals = base.removals_epsilon
    return Terms(
        encoding,
        base.privacy,
        None,
        encoding.capacity_for(size),
        planned=base.planned_increments,
        removals_epsilon=removals,
        generation=generation,
        tombstones=_removals(type(base.encoding), base.privacy, removals, size, base.planned_increments),
    )


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
        stored = self._ledger.get_set(request.set_name)
        found = self._ledger.find_release(request.set_name, request.request_id)
        if found is not None:
            header = open_manifest(found.manifest)
            _check_repeats_kind(header, request)
            if not request.increment:
                _check_repeats(header, make_terms(stored.description, request, self._max_bits))
        return found

    def _terms(self, stored: StoredSet, request: PublishRequest) -> Terms:
        """Raises as `make_terms`, and FailedPrecondition where no increment may follow."""
        if not request.increment:
            return make_terms(stored.description, request, self._max_bits)
        generation = self._ledger.generation(stored.set_id)
        if generation is None:
            raise _no_increment(
                f"set {request.set_name} has no base release that increments may follow; publish one without increment, of a set "
                "that was created with increments"
            )
        if generation.made >= generation.planned:
            raise _no_increment(
                f"all {generation.planned} increments of base release {generation.base} of set {request.set_name} are used up; "
                "publish a new base release, which is charged again"
            )
        base = self._ledger.get_release(request.set_name, generation.base)
        if base.state is ReleaseState.LOST:
            raise _no_increment(
                f"base release {generation.base} of set {request.set_name} was lost before Redis had it; publish a new one"
            )
        return increment_terms(stored.description, open_manifest(base.manifest), generation)

    def charge(self, request: PublishRequest) -> StoredRelease:
        """Make a release of all finished uploads and charge it; the same request id gives the same release again.

        On return the release is on disk and charged, and nothing of it has left the service. Raises NotFound, InvalidInput,
        FailedPrecondition, PoorUtility, LimitExceeded, BudgetExceeded, StorageFull, StateRolledBack, StateCorrupted (naming
        the damaged file), Unavailable (no Redis, or one without writes, or an anchor that cannot be written); nothing is
        charged then.
        """
        found = self.find(request)
        if found is not None:
            return found
        set_name = request.set_name
        stored = self._ledger.get_set(set_name)
        terms = self._terms(stored, request)  # what is refused for public reasons is refused before Redis is asked
        self._guard.check(set_name, stored.description.account)  # outside the lock: Redis may hang
        self._guard.prove_anchor(set_name, stored.description.account)
        with self._set_locks[stored.set_id]:
            found = self.find(request)
            if found is not None:
                return found
            self._ledger.get_set_by_id(stored.set_id)  # it may have been deleted meanwhile
            if request.increment:  # its generation may have gone on meanwhile
                terms = self._terms(stored, request)
            release = self._make(stored, request.request_id, terms)
        self._compactor.wake(stored.set_id, whole=True)
        return release

    def _make(self, stored: StoredSet, request_id: str, terms: Terms) -> StoredRelease:
        description = stored.description
        newest = self._ledger.list_releases(description.name, 0, 1)
        was_published = any(release.set_id == stored.set_id for release in newest)
        if not was_published and not self._runs.holds_any(stored.set_id):  # later all of it may have expired
            raise FailedPrecondition(f"set {description.name}: no finished upload; finish one before publishing")
        self._earlier(stored, terms.generation)
        bought = self._ledger.find_count(stored.set_id, request_id) if terms.counts_first else None
        self._refuse(description, terms.charge if bought is None else terms.charge_after_count)
        count = None
        if terms.counts_first and terms.noise is not None:
            # From here on nothing is refused for what the count says: a free refusal would reveal the number again at each try.
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

        with self._released(stored.set_id, sequence, terms) as (generation, added, removed):
            vector = terms.encoding.encode(tallied(added), stream)
            if terms.tombstones is not None:
                vector = joined(chain(vector, terms.tombstones.encode(removed, stream)))
            self._artefacts.write(stored.set_id, sequence, hashed(vector), terms.vector_bytes)
            if terms.noise is not None and count is None:
                count = counted(held + integer_noise(terms.noise, drawn), terms.noise)
            return self._charge(stored, request_id, sequence, terms, tuple(chunk_sha256), count, generation)

    @contextmanager
    def _released(
        self, set_id: int, sequence: int, terms: Terms
    ) -> Iterator[tuple[Generation | None, Iterator[Digests], Iterator[Digests]]]:
        """What the release holds: digests that are added and removed, and its generation with it in it."""
        if not terms.planned:
            with self._runs.sorted_chunks(set_id) as chunks:
                yield None, chunks, iter(())
            return
        before = terms.generation
        released = before.released if before is not None else None
        tombstones = terms.tombstones is not None
        with self._runs.released(set_id, sequence, released, tombstones=tombstones) as (file, added, removed):
            base, made = (sequence, 0) if before is None else (before.base, before.made + 1)
            yield Generation(base, terms.planned, made, file), added, removed

    def _charge(
        self,
        stored: StoredSet,
        request_id: str,
        sequence: int,
        terms: Terms,
        chunk_sha256: tuple[bytes, ...],
        count: NoisyCount | None,
        generation: Generation | None,
    ) -> StoredRelease:
        description, charge = stored.description, terms.charge_after_count
        try:
            with self._account_locks[description.account]:
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
                    generation=generation.base if generation is not None else sequence,
                    earlier=self._earlier(stored, terms.generation),
                    planned_increments=terms.planned,
                    tombstones=terms.tombstones,
                    removals_epsilon=terms.removals_epsilon,
                )
                release = StoredRelease(
                    set_id=stored.set_id,
                    set_name=description.name,
                    sequence=sequence,
                    request_id=request_id,
                    state=ReleaseState.PENDING,
                    manifest=self._signer.sign(header),
                )
                self._ledger.charge_release(
                    release, description.account, charge, account.spent_nano_epsilon, generation
                )
                self._guard.record(description.name, sequence, self._ledger.get_account(description.account))
                return release
        except VeilsetError:
            if self._ledger.find_release(description.name, request_id) is None:  # refused: nothing refers to the noise
                self._artefacts.remove(stored.set_id, sequence)
            raise

    def _earlier(self, stored: StoredSet, generation: Generation | None) -> tuple[EarlierPart, ...]:
        """The releases of the generation that readers can fetch. Raises FailedPrecondition while one is on its way: it might be
        lost, and no reader could open what refers to it."""
        parts = [] if generation is None else self._ledger.parts(stored.set_id, generation.base)
        for part in parts:
            if part.state is ReleaseState.PENDING:
                raise _no_increment(
                    f"release {part.sequence} of set {part.set_name} is still on its way to Redis; publish the increment once it "
                    "is there"
                )
        return tuple(
            EarlierPart(part.sequence, hashlib.sha256(part.manifest).digest())
            for part in parts
            if part.state is not ReleaseState.LOST
        )

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


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of CHUNK_BYTES, the last one shorter."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)


def _no_increment(why: str) -> FailedPrecondition:
    return FailedPrecondition(f"increment: {why}", field="increment")


def _check_repeats_kind(made: ReleaseHeader, request: PublishRequest) -> None:
    if made.is_base == request.increment:
        was = "a base release" if made.is_base else "an increment"
        raise FailedPrecondition(
            f"request_id: made {was}, {made.sequence}; repeat it so, or take another id", field="increment"
        )


def _check_repeats(made: ReleaseHeader, terms: Terms) -> None:
    noise = terms.noise
    bought = None if made.count is None else (made.count.epsilon, made.count.delta)
    if bought != (None if noise is None else (noise.epsilon, noise.delta)):
        was = "without a count" if bought is None else f"with a count of epsilon {bought[0]:g} and delta {bought[1]:g}"
    elif made.privacy != terms.privacy or not _is_alike(made.encoding, terms):
        was = f"with epsilon {made.privacy.epsilon:g} and encoding {made.encoding.encoding}, {made.encoding}"
    elif made.planned_increments != terms.planned:
        was = f"for {made.planned_increments} increments"
    else:
        return
    field = "count" if "count" in was else "epsilon"
    raise FailedPrecondition(
        f"request_id: made release {made.sequence} {was}; repeat it so, or take another id", field=field
    )
