"""MembershipService: each RPC is decoded, handed to a use case in a worker thread, and encoded. No decisions here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from veilset.core import wire
from veilset.core.decoding import Rule
from veilset.core.params import Calibration, HashScheme, Normalization, check_integer
from veilset.core.planning import planner
from veilset.errors import InvalidInput, LimitExceeded, NotFound, StorageFull, Unavailable
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc
from veilset_server.adapters.rpc.convert import budget_message, plan_message, release_message, set_message
from veilset_server.adapters.rpc.errors import abort, unary
from veilset_server.adapters.rpc.upload import UploadStream
from veilset_server.budgets import Budgets
from veilset_server.counting import CountPurchase
from veilset_server.delivery import Delivery, DeliveryWorker
from veilset_server.ports import Ledger
from veilset_server.publishing import Publishing
from veilset_server.records import ReleaseState, StoredRelease
from veilset_server.rollback import RollbackGuard
from veilset_server.sets import SetRequest, Sets

MAX_PAGE = 1000
DEFAULT_PAGE = 100
MAX_PLANS_WAITING = 64
MAX_SEQUENCE = 1 << 62

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
        self, use_cases: UseCases, uploads: UploadStream, executor: Executor, publish_wait_seconds: float
    ) -> None:
        self._use = use_cases
        self._uploads = uploads
        self._executor = executor
        self._publish_wait_seconds = publish_wait_seconds
        self._plan_executor = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._planning = 0

    def close(self) -> None:
        """Let the planner's thread go."""
        self._plan_executor.shutdown()

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def _run_plan(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Searches for a plan take seconds of a processor: one at a time, and no long queue."""
        if self._planning >= MAX_PLANS_WAITING:
            raise LimitExceeded(f"plans: {MAX_PLANS_WAITING} are waiting; try again", limit=MAX_PLANS_WAITING)
        self._planning += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._plan_executor, work, *arguments)
        finally:
            self._planning -= 1

    @unary
    async def PlanFilter(self, request: pb.PlanFilterRequest, context: Context) -> pb.PlanFilterResponse:
        return pb.PlanFilterResponse(plan=plan_message(await self._run_plan(_plan, request)))

    @unary
    async def CreateSet(self, request: pb.CreateSetRequest, context: Context) -> pb.CreateSetResponse:
        stored, plan = await self._run_plan(self._use.sets.create, _set_request(request))
        return pb.CreateSetResponse(set=set_message(stored.description), plan=plan_message(plan))

    @unary
    async def GetSet(self, request: pb.GetSetRequest, context: Context) -> pb.GetSetResponse:
        stored = await self._run(self._use.ledger.get_set, request.name)
        return pb.GetSetResponse(set=set_message(stored.description))

    @unary
    async def ListSets(self, request: pb.ListSetsRequest, context: Context) -> pb.ListSetsResponse:
        size = _page_size(request.page_size)
        found = await self._run(self._use.ledger.list_sets, request.page_token, size + 1)
        return pb.ListSetsResponse(
            sets=[set_message(stored.description) for stored in found[:size]],
            next_page_token=found[size - 1].description.name if len(found) > size else "",
        )

    @unary
    async def DeleteSet(self, request: pb.DeleteSetRequest, context: Context) -> pb.DeleteSetResponse:
        await self._run(self._use.sets.delete, request.name)
        return pb.DeleteSetResponse()

    async def AddElements(
        self, request_iterator: AsyncIterator[pb.AddElementsRequest], context: Context
    ) -> AsyncIterator[pb.AddElementsResponse]:
        try:
            async for response in self._uploads.serve(request_iterator):
                yield response
        except Exception as error:  # noqa: BLE001 - nothing may pass by the table
            await abort(context, error)

    @unary
    async def PublishRelease(self, request: pb.PublishReleaseRequest, context: Context) -> pb.PublishReleaseResponse:
        release = await self._run(self._publish, request, context.time_remaining())
        return pb.PublishReleaseResponse(release=release_message(release))

    def _publish(self, request: pb.PublishReleaseRequest, remaining: float | None) -> StoredRelease:
        use = self._use
        count = CountPurchase(request.count.epsilon, request.count.delta) if request.HasField("count") else None
        release = use.publishing.find(request.set_name, request.request_id)
        if release is None:
            release = use.publishing.charge(request.set_name, request.request_id, count)
        if release.state is ReleaseState.PENDING and not request.no_wait:
            try:
                use.delivery.deliver_pending(request.set_name)
            except (Unavailable, StorageFull):  # it is charged: whatever delays it now, the answer is the release
                use.worker.wake()
                wait = (
                    self._publish_wait_seconds if remaining is None else min(remaining / 2, self._publish_wait_seconds)
                )
                use.delivery.wait(release.set_name, release.sequence, wait)
            return use.ledger.get_release(release.set_name, release.sequence)
        use.worker.wake()
        return release

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
        size = _page_size(request.page_size)
        below = _sequence_token(request.page_token)
        found = await self._run(self._use.ledger.list_releases, request.set_name, below, size + 1)
        if not found:
            await self._run(self._use.ledger.get_set, request.set_name)
        return pb.ListReleasesResponse(
            releases=[release_message(release) for release in found[:size]],
            next_page_token=str(found[size - 1].sequence) if len(found) > size else "",
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
        return pb.ConfirmLossResponse(budget=budget_message(account))

    @unary
    async def ReconcileReleases(
        self, request: pb.ReconcileReleasesRequest, context: Context
    ) -> pb.ReconcileReleasesResponse:
        if request.set_name:
            await self._run(self._use.ledger.get_set, request.set_name)
        await self._run(self._use.delivery.deliver_pending, request.set_name or None)
        checked, restored = await self._run(self._use.delivery.reconcile, request.set_name or None)
        return pb.ReconcileReleasesResponse(checked=checked, restored_keys=restored)


def _page_size(asked: int) -> int:
    return check_integer("page_size", asked or DEFAULT_PAGE, 1, MAX_PAGE)


def _sequence_token(token: str) -> int:
    if token and not (token.isascii() and token.isdigit() and len(token) <= len(str(MAX_SEQUENCE))):
        raise InvalidInput("page_token", "the next_page_token of the page before, or empty")
    return min(int(token or 0), MAX_SEQUENCE)


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
        normalization=wire.from_number("normalization", wire.NORMALIZATION, request.normalization, Normalization.NONE),
        account=request.account,
        budget_epsilon=request.budget_epsilon,
        budget_delta=request.budget_delta if request.HasField("budget_delta") else None,
        allow_poor_utility=request.allow_poor_utility,
    )
