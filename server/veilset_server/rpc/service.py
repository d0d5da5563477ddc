"""MembershipService: each RPC is decoded, handed to a use case in a worker thread, and encoded. No decisions here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import grpc

from veilset.core.encodings.bloom.decoding import Rule
from veilset.core.encodings.bloom.planning import planner
from veilset.core.params import Calibration, HashScheme, Normalization, check_integer, check_name
from veilset.core.release import wire
from veilset.errors import FailedPrecondition, NotFound, Unavailable
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc
from veilset_server.ports import Ledger
from veilset_server.principals import Principal
from veilset_server.records import StoredRelease, StoredSet
from veilset_server.rpc.caller import current_principal
from veilset_server.rpc.convert import budget_message, plan_message, release_message, set_message
from veilset_server.rpc.errors import streaming, unary
from veilset_server.rpc.paging import MAX_PAGE, MAX_SEQUENCE, page_size, release_page, sequence_token
from veilset_server.rpc.pending import PendingReleases
from veilset_server.rpc.planning import Planner
from veilset_server.rpc.shares import SharedWorkers
from veilset_server.rpc.turns import Turns
from veilset_server.rpc.upload import UploadStream
from veilset_server.rpc.upload_elements import ElementUpload
from veilset_server.usecases.budgets import Budgets
from veilset_server.usecases.counting import CountPurchase
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.delivery_worker import DeliveryWorker
from veilset_server.usecases.publishing import Publishing
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.sets import SetRequest, Sets

Result = TypeVar("Result")
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class UseCases:
    """What the service offers, wired by `veilset_server.app`."""

    ledger: Ledger
    sets: Sets
    budgets: Budgets
    publishing: Publishing
    guard: RollbackGuard
    delivery: Delivery
    worker: DeliveryWorker


class MembershipService(membership_pb2_grpc.MembershipServiceServicer):
    """The servicer. publish_wait_seconds: how long PublishRelease waits for Redis before it answers PENDING."""

    def __init__(
        self, use_cases: UseCases, uploads: UploadStream, workers: SharedWorkers, publish_wait_seconds: float
    ) -> None:
        self._use = use_cases
        self._uploads = uploads
        self._workers = workers
        self._publish_wait_seconds = publish_wait_seconds
        self._turns = Turns()
        self._creations = Turns()  # of their own: what they wait for is never a merge
        self._planner = Planner()
        self._pending = PendingReleases(use_cases.ledger, use_cases.delivery, use_cases.worker)

    def close(self) -> None:
        """Let the planner's thread go."""
        self._planner.close()

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self._workers.run(current_principal().name, work, *arguments)

    async def _run_plan(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self._planner.run(current_principal().name, work, *arguments)

    @unary
    async def PlanFilter(self, request: pb.PlanFilterRequest, context: Context) -> pb.PlanFilterResponse:
        return pb.PlanFilterResponse(plan=plan_message(await self._run_plan(_plan, request)))

    @unary
    async def CreateSet(self, request: pb.CreateSetRequest, context: Context) -> pb.CreateSetResponse:
        wanted = replace(_set_request(request), owner=current_principal().name)
        plan = await self._run_plan(self._use.sets.plan, wanted)
        stored = await self._creations.hold(wanted.name, partial(self._run, self._use.sets.create, wanted, plan))
        return pb.CreateSetResponse(set=set_message(stored.description), plan=plan_message(plan))

    @unary
    async def GetSet(self, request: pb.GetSetRequest, context: Context) -> pb.GetSetResponse:
        stored = await self._run(self._use.ledger.get_set, request.name)
        return pb.GetSetResponse(set=set_message(stored.description))

    @unary
    async def ListSets(self, request: pb.ListSetsRequest, context: Context) -> pb.ListSetsResponse:
        size = page_size(request.page_size)
        found = await self._run(self._visible_sets, current_principal(), request.page_token, size + 1)
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

    @unary
    async def DeleteSet(self, request: pb.DeleteSetRequest, context: Context) -> pb.DeleteSetResponse:
        name = check_name("name", request.name)
        await self._turns.hold(name, partial(self._run, self._use.sets.delete, name))
        return pb.DeleteSetResponse()

    @streaming
    def AddElements(
        self, request_iterator: AsyncIterator[pb.AddElementsRequest], context: Context
    ) -> AsyncGenerator[pb.AddElementsResponse, None]:
        return self._uploads.serve(request_iterator, ElementUpload())

    @unary
    async def AddBatch(self, request: pb.AddBatchRequest, context: Context) -> pb.AddBatchResponse:
        raise FailedPrecondition("upload: this service takes streams only; use AddElements")

    @unary
    async def PublishRelease(self, request: pb.PublishReleaseRequest, context: Context) -> pb.PublishReleaseResponse:
        set_name = check_name("set_name", request.set_name)
        release = await self._turns.hold(set_name, partial(self._run, self._charge, request))
        if request.no_wait:
            self._use.worker.wake()
        else:
            remaining, wait = context.time_remaining(), self._publish_wait_seconds
            release = await self._pending.deliver(
                release, self._run, wait if remaining is None else min(remaining / 2, wait)
            )
        return pb.PublishReleaseResponse(release=release_message(release))

    def _charge(self, request: pb.PublishReleaseRequest) -> StoredRelease:
        publishing = self._use.publishing
        count = CountPurchase(request.count.epsilon, request.count.delta) if request.HasField("count") else None
        found = publishing.find(request.set_name, request.request_id, count)
        return publishing.charge(request.set_name, request.request_id, count) if found is None else found

    @unary
    async def GetRelease(self, request: pb.GetReleaseRequest, context: Context) -> pb.GetReleaseResponse:
        sequence = check_integer("sequence", request.sequence, 0, MAX_SEQUENCE)
        release = await self._run(self._get_release, request.set_name, sequence)
        return pb.GetReleaseResponse(release=release_message(release))

    def _get_release(self, set_name: str, sequence: int) -> StoredRelease:
        try:
            return self._use.ledger.get_release(set_name, sequence)
        except NotFound:
            self._use.ledger.get_set(set_name)  # where the set is what is missing, say so
            raise

    @unary
    async def ListReleases(self, request: pb.ListReleasesRequest, context: Context) -> pb.ListReleasesResponse:
        asked = request.set_name, sequence_token(request.page_token), page_size(request.page_size)
        found, next_token = await self._run(release_page, self._use.ledger, *asked)
        if not found:
            await self._run(self._use.ledger.get_set, request.set_name)
        return pb.ListReleasesResponse(
            releases=[release_message(release) for release in found], next_page_token=next_token
        )

    @unary
    async def GetBudget(self, request: pb.GetBudgetRequest, context: Context) -> pb.GetBudgetResponse:
        account = await self._run(self._use.budgets.get, request.account, request.set_name)
        return pb.GetBudgetResponse(budget=budget_message(account))

    @unary
    async def RaiseBudget(self, request: pb.RaiseBudgetRequest, context: Context) -> pb.RaiseBudgetResponse:
        delta = request.delta if request.HasField("delta") else None
        account = await self._run(self._use.budgets.raise_to, request.account, request.epsilon, delta, request.reason)
        return pb.RaiseBudgetResponse(budget=budget_message(account))

    @unary
    async def ConfirmLoss(self, request: pb.ConfirmLossRequest, context: Context) -> pb.ConfirmLossResponse:
        arguments = (request.set_name, request.epsilon, request.delta, request.reason)
        account = await self._run(self._use.guard.confirm, *arguments)
        with suppress(Unavailable):  # they go with the next release then
            await self._run(self._use.delivery.let_lost_go, request.set_name)
        return pb.ConfirmLossResponse(budget=budget_message(account))

    @unary
    async def ReconcileReleases(
        self, request: pb.ReconcileReleasesRequest, context: Context
    ) -> pb.ReconcileReleasesResponse:
        if request.set_name:
            await self._run(self._use.ledger.get_set, request.set_name)
        await self._run(self._use.delivery.deliver_pending, request.set_name or None)
        compare = partial(self._use.delivery.reconcile, request.set_name or None, whole=True)
        done = await self._run(compare)
        return pb.ReconcileReleasesResponse(
            checked=done.checked,
            restored_keys=done.restored,
            unrestorable=[pb.ReleaseName(set_name=name, sequence=sequence) for name, sequence in done.unrestorable],
        )


def _plan(request: pb.PlanFilterRequest) -> planner.Plan:
    privacy = wire.privacy_from_proto(request.privacy)
    rule = Rule.ALL_ONES if request.all_ones else Rule.BEST
    if request.bits or request.hashes:
        return planner.evaluate(request.size, privacy, request.bits, request.hashes, rule=rule)
    return planner.plan(planner.PlanRequest(request.size, privacy, max_bytes=request.max_bytes or None, rule=rule))


def _set_request(request: pb.CreateSetRequest) -> SetRequest:
    seed = request.seed if request.HasField("seed") else None
    default = Calibration.W_QUANTILE if seed is None else Calibration.WORST_CASE
    return SetRequest(
        name=request.name,
        size=request.size,
        privacy=wire.privacy_from_proto(request.privacy, default),
        bits=request.bits,
        hashes=request.hashes,
        max_bytes=request.max_bytes,
        scheme=wire.from_number("scheme", wire.HASH_SCHEME, request.scheme, HashScheme.MMH3),
        seed=seed,
        key_check=request.key_check.hex(),
        normalization=wire.from_number("normalization", wire.NORMALIZATION, request.normalization, Normalization.NONE),
        account=request.account,
        budget_epsilon=request.budget_epsilon,
        budget_delta=request.budget_delta if request.HasField("budget_delta") else None,
        allow_poor_utility=request.allow_poor_utility,
    )
