"""MembershipService: each RPC is decoded, handed to a use case, and encoded. No decisions here.

Each call has a thread of its own (`veilset_server.rpc.serving`); what it does with files and Redis it does in a place among
those at work (`FairSlots`), for which it waits without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import grpc

from veilset.core.encodings import check_increments, find_encoding, plan_all, recommended
from veilset.core.encodings.decoder import Rule
from veilset.core.encodings.planning import Plan, PlanRequest, evaluate, objective_of
from veilset.core.params import check_integer, check_name
from veilset.core.release import wire
from veilset.errors import NotFound, StorageFull, StoreMisconfigured, Unavailable, must_be
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc
from veilset_server.locks import KeyedLocks
from veilset_server.principals import Principal
from veilset_server.records import ReleaseState, StoredRelease, StoredSet
from veilset_server.rpc.allowances import FairSlots, plan_slots
from veilset_server.rpc.call import Call, current_call
from veilset_server.rpc.convert import (
    budget_message,
    change_message,
    plan_message,
    publish_request,
    release_message,
    set_message,
    set_request,
)
from veilset_server.rpc.upload import UploadCalls
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.budgets import Budgets
from veilset_server.usecases.delivery import Delivery, DeliveryWorker
from veilset_server.usecases.publishing import Publishing
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.sets import Sets

Context = grpc.ServicerContext

MAX_PAGE = 1000
DEFAULT_PAGE = 100
MAX_SEQUENCE = 1 << 62
MOST_BYTES = 3 << 20
"""Of manifests in one answer, unless the first one alone has more: gRPC clients take 4 MiB if nothing else is said."""

_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class UseCases:
    """What the service offers, wired by `veilset_server.app`."""

    ledger: SqliteLedger
    sets: Sets
    budgets: Budgets
    publishing: Publishing
    guard: RollbackGuard
    delivery: Delivery
    worker: DeliveryWorker


class MembershipService(membership_pb2_grpc.MembershipServiceServicer):
    """The servicer. publish_wait_seconds: how long PublishRelease waits for Redis before it answers PENDING."""

    def __init__(
        self, use_cases: UseCases, uploads: UploadCalls, shares: FairSlots, publish_wait_seconds: float
    ) -> None:
        self._use = use_cases
        self._uploads = uploads
        self._shares = shares
        self._plans = plan_slots()
        self._publish_wait_seconds = publish_wait_seconds
        self._turns = KeyedLocks()  # by set: who waits for a busy one must not hold a place
        self._creations = KeyedLocks()  # of their own: what they wait for is never a publish
        self._pending = PendingReleases(use_cases.ledger, use_cases.delivery, use_cases.worker, shares)

    def _place(self) -> AbstractContextManager[None]:
        return self._shares.place(current_call().key)

    def PlanRelease(self, request: pb.PlanReleaseRequest, context: Context) -> pb.PlanReleaseResponse:
        with self._plans.place(current_call().key):
            return pb.PlanReleaseResponse(plan=plan_message(_plan(request)))

    def CreateSet(self, request: pb.CreateSetRequest, context: Context) -> pb.CreateSetResponse:
        call = current_call()
        wanted = set_request(request, call.principal.name)
        with self._plans.place(call.key):
            plan = self._use.sets.plan(wanted)
        with self._creations[wanted.name], self._place():
            stored = self._use.sets.create(wanted, plan)
        return pb.CreateSetResponse(set=set_message(stored.description), plan=plan_message(plan))

    def GetSet(self, request: pb.GetSetRequest, context: Context) -> pb.GetSetResponse:
        with self._place():
            stored = self._use.ledger.get_set(request.name)
        return pb.GetSetResponse(set=set_message(stored.description))

    def ListSets(self, request: pb.ListSetsRequest, context: Context) -> pb.ListSetsResponse:
        size = page_size(request.page_size)
        with self._place():
            found = self._visible_sets(current_call().principal, request.page_token, size + 1)
        return pb.ListSetsResponse(
            sets=[set_message(stored.description) for stored in found[:size]],
            next_page_token=found[size - 1].description.name if len(found) > size else "",
        )

    def _visible_sets(self, principal: Principal, after: str, limit: int) -> list[StoredSet]:
        """Up to ``limit`` sets with names above ``after``, without those that the caller's patterns do not cover."""
        visible: list[StoredSet] = []
        while len(visible) < limit and (page := self._use.ledger.list_sets(after, MAX_PAGE)):
            visible += [stored for stored in page if principal.covers(stored.description.name)]
            after = page[-1].description.name
        return visible[:limit]

    def DeleteSet(self, request: pb.DeleteSetRequest, context: Context) -> pb.DeleteSetResponse:
        name = check_name("name", request.name)
        with self._turns[name], self._place():
            self._use.sets.delete(name)
        return pb.DeleteSetResponse()

    def AddElements(
        self, request_iterator: Iterator[pb.AddElementsRequest], context: Context
    ) -> Iterator[pb.AddElementsResponse]:
        return self._uploads.serve(request_iterator)

    def AddBatch(self, request: pb.AddBatchRequest, context: Context) -> pb.AddBatchResponse:
        return self._uploads.add_batch(request)

    def PublishRelease(self, request: pb.PublishReleaseRequest, context: Context) -> pb.PublishReleaseResponse:
        set_name = check_name("set_name", request.set_name)
        with self._turns[set_name], self._place():
            release = self._charge(request)
        if request.no_wait:
            self._use.worker.wake()
        else:
            remaining = context.time_remaining()
            wait = min(
                remaining / 2, self._publish_wait_seconds
            )  # without a deadline there is no end of time remaining
            release = self._pending.deliver(release, wait, current_call())
        return pb.PublishReleaseResponse(release=release_message(release, self._use.delivery.delays))

    def _charge(self, request: pb.PublishReleaseRequest) -> StoredRelease:
        publishing = self._use.publishing
        wanted = publish_request(request)
        found = publishing.find(wanted)
        if found is not None:
            return found
        if request.increment or not request.although_pending:  # an increment refers to all before it
            self._use.delivery.refuse_while_delayed(request.set_name)
        return publishing.charge(wanted)

    def GetRelease(self, request: pb.GetReleaseRequest, context: Context) -> pb.GetReleaseResponse:
        sequence = check_integer("sequence", request.sequence, 0, MAX_SEQUENCE)
        with self._place():
            release = self._get_release(request.set_name, sequence)
        return pb.GetReleaseResponse(release=release_message(release, self._use.delivery.delays))

    def _get_release(self, set_name: str, sequence: int) -> StoredRelease:
        try:
            return self._use.ledger.get_release(set_name, sequence)
        except NotFound:
            self._use.ledger.get_set(set_name)  # where the set is what is missing, say so
            raise

    def ListReleases(self, request: pb.ListReleasesRequest, context: Context) -> pb.ListReleasesResponse:
        below, size = sequence_token(request.page_token), page_size(request.page_size)
        with self._place():
            found, next_token = release_page(self._use.ledger, request.set_name, below, size)
            if not found:
                self._use.ledger.get_set(request.set_name)
        return pb.ListReleasesResponse(
            releases=[release_message(release, self._use.delivery.delays) for release in found],
            next_page_token=next_token,
        )

    def GetBudget(self, request: pb.GetBudgetRequest, context: Context) -> pb.GetBudgetResponse:
        with self._place():
            account = self._use.budgets.get(request.account, request.set_name)
            changes = self._use.ledger.budget_changes(account.name)
        return pb.GetBudgetResponse(budget=budget_message(account), changes=map(change_message, changes))

    def RaiseBudget(self, request: pb.RaiseBudgetRequest, context: Context) -> pb.RaiseBudgetResponse:
        delta = request.delta if request.HasField("delta") else None
        with self._place():
            account = self._use.budgets.raise_to(request.account, request.epsilon, delta, request.reason)
        return pb.RaiseBudgetResponse(budget=budget_message(account))

    def ConfirmLoss(self, request: pb.ConfirmLossRequest, context: Context) -> pb.ConfirmLossResponse:
        with self._place():
            account = self._use.guard.confirm(request.set_name, request.epsilon, request.delta, request.reason)
            with suppress(Unavailable):  # they go with the next release then
                self._use.delivery.let_lost_go(request.set_name)
        return pb.ConfirmLossResponse(budget=budget_message(account))

    def ReconcileReleases(self, request: pb.ReconcileReleasesRequest, context: Context) -> pb.ReconcileReleasesResponse:
        set_name = request.set_name or None
        with self._place():
            if set_name:
                self._use.ledger.get_set(set_name)
            self._use.delivery.deliver_pending(set_name)
            done = self._use.delivery.reconcile(set_name, whole=True)
        return pb.ReconcileReleasesResponse(
            checked=done.checked,
            restored_keys=done.restored,
            unrestorable=[pb.ReleaseName(set_name=name, sequence=sequence) for name, sequence in done.unrestorable],
        )


def _plan(request: pb.PlanReleaseRequest) -> Plan:
    name, dimensions = wire.dimensions_from_proto(request.encoding)
    wanted = PlanRequest(
        request.size,
        wire.privacy_from_proto(request.privacy),
        max_bytes=request.max_bytes or None,
        objective=objective_of(request.max_false_positive_rate, request.min_true_positive_rate),
        rule=Rule.ALL_ONES if request.all_ones else Rule.BEST,
        increments=request.increments,
        increment_capacity=request.increment_capacity,
        removals_epsilon=request.removals_epsilon,
    )
    if not name:
        return recommended(plan_all(wanted), wanted)
    family = find_encoding(name)
    found = evaluate(family.calibrate(wanted.privacy, dimensions), wanted) if dimensions else family.plan(wanted)
    check_increments(found)
    return found


class PendingReleases:
    """Delivers releases for callers who wait. ``shares``: who attempts a delivery holds a place."""

    def __init__(self, ledger: SqliteLedger, delivery: Delivery, worker: DeliveryWorker, shares: FairSlots) -> None:
        self._ledger = ledger
        self._delivery = delivery
        self._worker = worker
        self._shares = shares
        self._turns = KeyedLocks()

    def deliver(self, release: StoredRelease, seconds: float, call: Call) -> StoredRelease:
        """The release once readers can see it; still pending if Redis did not accept it in time or needs an operator."""
        if release.state is not ReleaseState.PENDING:
            return release
        until = time.monotonic() + seconds
        try:
            with self._turns.within(release.set_name, seconds):
                self._deliver(release, call)
        except StoreMisconfigured:  # charged all the same; an operator has to act first, so it is not waited for
            self._worker.wake()
            return self._look(release)
        except (
            Unavailable,
            StorageFull,
            TimeoutError,
        ):  # it is charged, so the answer is the release
            self._worker.wake()
        return self._wait(release, until, call)

    def _deliver(self, release: StoredRelease, call: Call) -> None:
        """A delivery that has begun is waited for, whatever the caller's time."""
        if (
            self._look(release).state is ReleaseState.PENDING and not self._delivery.stopping
        ):  # else another call did it
            with self._shares.place(call.key):
                self._delivery.deliver_pending(release.set_name)

    def _wait(self, release: StoredRelease, until: float, call: Call) -> StoredRelease:
        moved = threading.Event()
        call.context.add_callback(moved.set)  # its end wakes us too
        with self._delivery.listening(release.set_name, moved.set):
            while True:
                moved.clear()
                current = self._look(release)
                left = until - time.monotonic()
                if current.state is not ReleaseState.PENDING or self._delivery.stopping or left <= 0 or call.is_over:
                    return current
                moved.wait(left)

    def _look(self, release: StoredRelease) -> StoredRelease:
        return self._ledger.get_release(release.set_name, release.sequence)


def page_size(asked: int) -> int:
    """0 is the default. Raises InvalidInput."""
    return check_integer("page_size", asked or DEFAULT_PAGE, 1, MAX_PAGE)


def sequence_token(token: str) -> int:
    """The sequence below which the page starts; 0 from the newest. Raises InvalidInput."""
    if token and not (token.isascii() and token.isdigit() and len(token) <= len(str(MAX_SEQUENCE))):
        raise must_be("page_token", "the next_page_token of the page before, or empty")
    return min(int(token or 0), MAX_SEQUENCE)


def release_page(
    ledger: SqliteLedger, set_name: str, below: int, size: int, most_bytes: int = MOST_BYTES
) -> tuple[list[StoredRelease], str]:
    """Up to ``size`` releases, newest first, and the token of the next page, empty behind the last.

    A manifest has 34 bytes for each MiB of its vector, so fewer fit where vectors are long.
    """
    found: list[StoredRelease] = []
    total = 0
    while more := ledger.list_releases(set_name, below, _AT_A_TIME):
        for release in more:
            total += len(release.manifest)
            if len(found) == size or (found and total > most_bytes):
                return found, str(found[-1].sequence)
            found.append(release)
        below = found[-1].sequence
    return found, ""
