"""Noticing that the ledger was rolled back: an older copy restored, or the state folder lost.

A state folder that is restored from yesterday brings yesterday's budget back. So what was charged is remembered in two
places outside it: an anchor file on another path, and the signed headers that readers see in Redis. Where either knows of
more than the ledger does, nothing is published until an operator has charged what was lost. What cannot be told apart: an
empty Redis, no anchor file and a fresh ledger look like a new service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import structlog

from veilset.core.privacy.budget import (
    charge_delta,
    charge_of,
    format_delta,
    format_nano_epsilon,
    parse_delta,
    to_nano_epsilon,
)
from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import open_manifest
from veilset.errors import (
    FailedPrecondition,
    NotFound,
    ReleaseRejected,
    StateRolledBack,
    StorageFull,
    VeilsetError,
    must_be,
)
from veilset_server.ports import Anchor, ReleaseStore, Signer
from veilset_server.records import Account, Charge, Charged, Mark, ReleaseState, StoredSet
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

log = structlog.get_logger(__name__)

NOTHING = Mark(0, 0, Fraction(0))
NOT_SPENT = (0, Fraction(0))


@dataclass(frozen=True, slots=True)
class Loss:
    """What the ledger does not know of a set: releases up to ``sequence``, what they cost its account, and removals and
    replacements up to the number ``operations``."""

    sequence: int
    nano_epsilon: int
    delta: Fraction
    operations: int


class RollbackGuard:
    """Compares the ledger with the anchor and with Redis. signer: whose keys, retired ones too, made what counts as ours."""

    def __init__(self, ledger: SqliteLedger, store: ReleaseStore, anchor: Anchor, signer: Signer) -> None:
        self._ledger = ledger
        self._store = store
        self._anchor = anchor
        self._signer = signer

    def check(self, set_name: str, account_name: str) -> None:
        """Raises StateRolledBack if a release of this set, or a charge to its account, is known that the ledger lacks;
        FailedPrecondition if Redis points at a release that this service did not sign; StoreMisconfigured and
        Unavailable where Redis would not take a release."""
        self._store.probe(set_name)
        loss = self.loss(set_name, account_name)
        if loss is not None:
            removals = (
                " Removals or replacements of elements are among what it lacks: make them again."
                if loss.operations > self._ledger.operations(set_name)
                else ""
            )
            raise StateRolledBack(
                f"set {set_name}: the ledger is an older copy: releases up to {loss.sequence} are known that it lacks."
                f"{removals} Nothing is published until the loss is charged: veilset confirm-loss {set_name} "
                f"--epsilon {format_nano_epsilon(loss.nano_epsilon)} --delta {format_delta(loss.delta)}",
                set_name=set_name,
                sequence=loss.sequence,
                lost_epsilon=format_nano_epsilon(loss.nano_epsilon),
                lost_delta=format_delta(loss.delta),
            )

    def loss(self, set_name: str, account_name: str) -> Loss | None:
        """What is known of the set and its account beyond the ledger; None if nothing. Raises as `check` does.

        The marks are read before the ledger, which is written before them: so a charge that comes between is no loss.
        """
        anchored = self._anchor.read(set_name, account_name)
        newest = self._newest_in_store(set_name, anchored.sequence)
        marks = (anchored, _mark_of(newest))
        account = self._ledger.get_account(account_name)
        sequence = max(mark.sequence for mark in marks)
        known = self._ledger.next_sequence(set_name) - 1
        # The anchor's sums cover all up to its sequence; a header's sums do not hold what other sets charged since.
        least = _price_above(newest, max(known, anchored.sequence))
        nano = max(least.nano_epsilon, max(mark.nano_epsilon for mark in marks) - account.spent_nano_epsilon)
        delta = max(least.delta, max(mark.delta for mark in marks) - account.spent_delta)
        operations = self._ledger.operations(set_name)
        if sequence <= known and not nano and not delta and anchored.operation <= operations:
            return None
        return Loss(max(sequence, known), nano, delta, max(anchored.operation, operations))

    def _newest_in_store(self, set_name: str, anchored: int) -> ReleaseHeader | None:
        """What Redis shows: the newest header, which this service must have signed.

        anchored: up to which sequence the anchor remembers sums. Of a release up to there, whose key is lost with the state
        folder, nothing has to be taken from Redis: the anchor's sums were written after its charge.
        """
        sequence = self._store.latest(set_name)
        if not sequence:
            return None
        try:
            return open_manifest(self._store.manifest(set_name, sequence), self._signer.public_keys())
        except (ReleaseRejected, NotFound):
            if sequence <= max(anchored, self._ledger.next_sequence(set_name) - 1):
                return None  # lost or damaged keys of a release that the ledger knows: reconcile restores them
            raise FailedPrecondition(
                f"set {set_name}: Redis points at release {sequence}, which this service did not sign and its anchor does not "
                "know: of another service on this Redis database (give this one another), or of a state folder that "
                "was lost or is older than the last key rotation (then remove the one key "
                f"veilset:{set_name}:latest and charge what was spent; see the runbook, Restore)",
                field="redis",
                sequence=sequence,
            ) from None

    def catch_up(self, accounts: Mapping[str, str]) -> None:
        """At the start: log where the anchor and the ledger differ, and bring the anchor up to all that was ever charged.

        accounts: the account of each set that there is. What the anchor lacks may be of deleted sets; a later loss of the
        state folder would forget it. So it takes on every name, in one write, which shows too that it can be written. Raises
        Unavailable and StateCorrupted. A full disk keeps no service from starting, since `prove_anchor` keeps it from
        publishing.
        """
        held, known = self._anchor.charged(), self._ledger.charged()
        _log_what_the_ledger_lacks(held, known, accounts)
        _log_what_the_anchor_lacks(held, known, missing=self._anchor.missing)
        try:
            self._anchor.raise_to(known)
        except StorageFull as error:
            log.error("anchor not written", **_shown(error))  # noqa: TRY400 - by reason, not by text

    def prove_anchor(self, set_name: str, account_name: str) -> None:
        """Before a charge: write to the anchor what the ledger knows of both. Raises StorageFull, Unavailable, StateCorrupted.

        So an anchor that has become unwritable stops publishing before it costs memory of more than one charge: of the one in
        whose middle it fails.
        """
        try:
            self._anchor.write(set_name, account_name, self._known(set_name, self._ledger.get_account(account_name)))
        except VeilsetError as error:
            log.error("anchor not written", set=set_name, **_shown(error))  # noqa: TRY400
            raise

    def _known(self, set_name: str, account: Account) -> Mark:
        sequence, operations = self._ledger.next_sequence(set_name) - 1, self._ledger.operations(set_name)
        return Mark(sequence, account.spent_nano_epsilon, account.spent_delta, operations)

    def record(self, set_name: str, sequence: int, account: Account) -> None:
        """Remember outside the state folder what the ledger has just committed.

        A mark that cannot be written is only logged: the charge stands, so its release has to be returned; were it reported
        as a failure, each retry would be charged again. The next publish, which needs the anchor, or the next start covers
        it.
        """
        try:
            self._anchor.write(set_name, account.name, Mark(sequence, account.spent_nano_epsilon, account.spent_delta))
        except VeilsetError as error:
            log.error("anchor not written", set=set_name, sequence=sequence, **_shown(error))  # noqa: TRY400

    def record_operations(self, set_name: str, operations: int) -> None:
        """Before a removal or replacement is acknowledged: remember its number outside the state folder, so that a folder
        restored from before it does not bring removed elements back unnoticed. Raises StorageFull, Unavailable,
        StateCorrupted: then the operation stands, and its caller repeats the call."""
        self._anchor.raise_to(Charged({}, {}, {set_name: operations}))

    def confirm(self, set_name: str, epsilon: float, delta: float, reason: str) -> Account:
        """Charge an operator's statement of what was lost, at least what is known, and let publishing continue.

        Raises NotFound, InvalidInput (less than what is known), FailedPrecondition (nothing was lost), BudgetExceeded
        (raise the budget first).
        """
        account = self._ledger.get_set(set_name).description.account
        loss = self.loss(set_name, account)
        if loss is None:
            raise FailedPrecondition(
                f"set {set_name}: nothing is known that the ledger lacks; there is no loss to charge"
            )
        self.prove_anchor(set_name, account)
        charge = Charge(to_nano_epsilon(epsilon) if epsilon > 0 else 1, charge_delta(delta))
        if charge.nano_epsilon < loss.nano_epsilon:
            raise must_be("epsilon", f"at least {format_nano_epsilon(loss.nano_epsilon)}, which is known", epsilon)
        if charge.delta < loss.delta:
            raise must_be("delta", f"at least {format_delta(loss.delta)}, which is known", delta)
        last = max(loss.sequence, self._ledger.next_sequence(set_name))
        found = self._ledger.charge_lost_releases(set_name, last, account, charge, reason, loss.operations)
        self.record(set_name, last, found)
        return found


def _mark_of(header: ReleaseHeader | None) -> Mark:
    if header is None:
        return NOTHING
    return Mark(header.sequence, header.total_nano_epsilon, parse_delta(header.total_delta))


def _price_above(header: ReleaseHeader | None, sequence: int) -> Charge:
    """What the set's releases above ``sequence`` have cost, if all cost what the newest did. Its count is added; whether
    those between had one is not known."""
    unknown = 0 if header is None else max(0, header.sequence - sequence)
    if header is None or not unknown:
        return Charge(0, Fraction(0))
    nano_epsilon, delta = charge_of(header.privacy)
    newest_nano_epsilon, newest_delta = charge_of(header.privacy, header.count)
    before = unknown - 1
    return Charge(before * nano_epsilon + newest_nano_epsilon, before * delta + newest_delta)


def _log_what_the_ledger_lacks(held: Charged, known: Charged, accounts: Mapping[str, str]) -> None:
    """Sets of which the anchor knows more, and those whose account has spent more by it than by the ledger."""
    ahead = set()
    for name, (nano_epsilon, delta) in held.accounts.items():
        known_nano_epsilon, known_delta = known.accounts.get(name, NOT_SPENT)
        if nano_epsilon > known_nano_epsilon or delta > known_delta:
            ahead.add(name)
    for name in sorted(held.sequences.keys() | held.operations.keys() | accounts.keys()):
        ledger_sequence, anchor_sequence = known.sequences.get(name, 0), held.sequences.get(name, 0)
        undone = held.operations.get(name, 0) > known.operations.get(name, 0)
        if anchor_sequence > ledger_sequence or undone or accounts.get(name) in ahead:
            log.warning(
                "the ledger is older than the anchor; nothing is published until the loss is charged",
                set=name,
                ledger_sequence=ledger_sequence,
                anchor_sequence=anchor_sequence,
            )


def _log_what_the_anchor_lacks(held: Charged, known: Charged, *, missing: bool) -> None:
    """One charge is what a crash leaves between its commit and its mark; more is an anchor of another age, or none."""
    behind = [sequence - held.sequences.get(name, 0) for name, sequence in known.sequences.items()]
    releases = sum(count for count in behind if count > 0)
    if releases and missing:
        log.warning("there was no anchor, though there are charges; is its volume mounted?", releases=releases)
    elif releases > 1:
        log.warning("the anchor was behind the ledger; is it another one, or an older copy?", releases=releases)


def _shown(error: VeilsetError) -> dict[str, str]:
    """What the log says of an anchor that cannot be written: which file, and why."""
    return {"file": str(error.details.get("file", "")), "reason": error.reason}


def recover(ledger: SqliteLedger, artefacts: ArtefactFiles, guard: RollbackGuard) -> None:
    """Bring the anchor up, and drop what was never charged. Charged releases are the delivery worker's to deliver.

    Artefacts without a live release were never visible (or belong to a deleted or retired one), so they go.
    """
    guard.catch_up({stored.description.name: stored.description.account for stored in all_sets(ledger)})
    live = {
        (release.set_id, release.sequence)
        for state in (ReleaseState.PENDING, ReleaseState.PUBLISHED)
        for release in ledger.releases_in_state(state)
    }
    orphans = [artefact for artefact in artefacts.list() if artefact not in live]
    for set_id, sequence in orphans:
        artefacts.remove(set_id, sequence)
    log.info("recovered", artefacts_dropped=len(orphans))


def all_sets(ledger: SqliteLedger) -> Iterator[StoredSet]:
    """Every set, page by page."""
    after = ""
    while page := ledger.list_sets(after, 1000):
        yield from page
        after = page[-1].description.name
