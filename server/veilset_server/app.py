"""Composition root: wires adapters to use cases, serves until told to stop, and lets go in order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import grpc
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from veilset.errors import Unavailable
from veilset.v1 import membership_pb2, membership_pb2_grpc
from veilset_server.adapters.anchor_file import AnchorFile
from veilset_server.adapters.embedded_valkey import EmbeddedValkey
from veilset_server.adapters.entropy import OsEntropy, SystemClock
from veilset_server.adapters.opened_state import OpenedState, open_state
from veilset_server.adapters.redis_store import RedisStore
from veilset_server.adapters.rpc.service import MembershipService, UseCases
from veilset_server.adapters.rpc.upload import UploadStream
from veilset_server.adapters.signing_keys import load_or_make_key
from veilset_server.budgets import Budgets
from veilset_server.delivery import Delivery, DeliveryWorker
from veilset_server.ingest import Ingest
from veilset_server.locks import KeyedLocks
from veilset_server.publishing import Publishing
from veilset_server.recovery import recover
from veilset_server.rollback import RollbackGuard
from veilset_server.sets import SetLimits, Sets
from veilset_server.settings import Settings

MAX_MESSAGE_BYTES = 4 << 20
SERVICE_NAME = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].full_name

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a started service tells: where producers reach it, where readers find releases, the key to pin."""

    address: str
    redis: str
    public_key: str


async def serve(settings: Settings, on_ready: Callable[[Ready], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with ExitStack() as stack:
        clock = SystemClock()
        state = stack.enter_context(open_state(settings.state, clock))
        key = load_or_make_key(state.folder.path, may_make=state.ledger.highest_set_id() == 0)
        redis_url = settings.redis
        if redis_url is None:
            valkey = EmbeddedValkey(state.folder.path / "valkey", settings.embedded_port)
            redis_url = stack.enter_context(valkey).url
        executor = stack.enter_context(ThreadPoolExecutor(settings.workers, thread_name_prefix="call"))
        # Of their own, since calls may all be waiting for a Redis that hangs.
        upload_executor = stack.enter_context(ThreadPoolExecutor(settings.workers, thread_name_prefix="upload"))
        store = RedisStore(redis_url, settings.redis_timeout_seconds, settings.replicas)
        stack.callback(store.close)
        use_cases, ingest = _wire(settings, state, clock, key, store)
        recover(state.ledger, state.files, ingest, use_cases.guard)
        if settings.redis is None:  # it starts empty: readers who come back must not find it so
            with suppress(Unavailable):
                use_cases.delivery.reconcile()
        use_cases.worker.start()
        stack.callback(use_cases.worker.stop)
        uploads = UploadStream(ingest, upload_executor, settings.idle_seconds)
        service = MembershipService(use_cases, uploads, executor, settings.publish_wait_seconds)
        stack.callback(service.close)
        server, port, healthy = await _start(settings, service)
        public_key = key.public_key().public_bytes_raw().hex()
        on_ready(Ready(f"{settings.host}:{port}", redis_url, public_key))
        log.info("serving", port=port)
        await stop.wait()
        log.info("draining")
        await healthy.enter_graceful_shutdown()
        uploads.drain()
        await server.stop(settings.drain_seconds)
    log.info("stopped")


def _wire(
    settings: Settings, state: OpenedState, clock: SystemClock, key: Ed25519PrivateKey, store: RedisStore
) -> tuple[UseCases, Ingest]:
    ledger, files, entropy, set_locks = state.ledger, state.files, OsEntropy(), KeyedLocks()
    anchor = AnchorFile(settings.anchor or settings.state.with_name(settings.state.name + ".anchor"))
    guard = RollbackGuard(ledger, store, anchor, [key.public_key().public_bytes_raw()])
    delivery = Delivery(ledger, files, store, settings.keep_releases, settings.grace_seconds)
    ingest = Ingest(ledger, files, set_locks)

    started_us, started = clock.now_us(), time.monotonic()

    def drop_abandoned() -> None:
        # A clock that jumps ahead must not make uploads look old, so it may not run faster than time passes.
        now_us = min(clock.now_us(), started_us + int((time.monotonic() - started) * 1e6))
        ingest.drop_abandoned(now_us - int(settings.abandoned_upload_hours * 3600e6))

    limits = SetLimits(settings.max_bits, settings.max_sets)
    use_cases = UseCases(
        ledger=ledger,
        sets=Sets(ledger, files, entropy, clock, set_locks, delivery, guard, limits),
        budgets=Budgets(ledger, clock),
        publishing=Publishing(ledger, files, entropy, clock, [key], set_locks, guard),
        guard=guard,
        delivery=delivery,
        worker=DeliveryWorker(delivery, settings.reconcile_seconds, drop_abandoned),
    )
    return use_cases, ingest


async def _start(
    settings: Settings, service: MembershipService
) -> tuple[grpc.aio.Server, int, health.aio.HealthServicer]:
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),  # two services on one port would share its calls
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        ],
    )
    membership_pb2_grpc.add_MembershipServiceServicer_to_server(service, server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(f"{settings.host}:{settings.port}")
    except RuntimeError:
        raise Unavailable(f"port: cannot listen on {settings.host}:{settings.port}; is it taken?") from None
    for name in ("", SERVICE_NAME):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    return server, port, healthy
