"""Composition root: wires adapters to use cases, serves until told to stop, and lets go in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from veilset._service.endpoint import host_and_port
from veilset.errors import Unavailable
from veilset.v1 import membership_pb2, membership_pb2_grpc
from veilset_server.metrics.monitoring import Monitoring
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.redis.embedded_valkey import EmbeddedValkey
from veilset_server.redis.store import RedisStore
from veilset_server.rpc.access import channel_options, make_gate
from veilset_server.rpc.gate import Gate
from veilset_server.rpc.service import MembershipService, UseCases
from veilset_server.rpc.shares import SharedWorkers
from veilset_server.rpc.streams import ClientStreams
from veilset_server.rpc.tls import ServerCertificates
from veilset_server.rpc.upload import UploadStream
from veilset_server.settings import Settings
from veilset_server.signals import Signals, end_in_time
from veilset_server.state.anchor import open_anchor
from veilset_server.state.entropy import OsEntropy, SystemClock
from veilset_server.state.idle_file import IdleFile
from veilset_server.state.opened_state import OpenedState, open_state
from veilset_server.state.signing_keys import SigningKeys
from veilset_server.usecases.abandoned_uploads import AbandonedUploads
from veilset_server.usecases.budgets import Budgets
from veilset_server.usecases.delivery_worker import DeliveryWorker
from veilset_server.usecases.ingest import Ingest
from veilset_server.usecases.locks import KeyedLocks
from veilset_server.usecases.merging import Merging
from veilset_server.usecases.recovery import recover
from veilset_server.usecases.rollback import RollbackGuard
from veilset_server.usecases.sets import SetLimits, Sets

LAST_WORDS_SECONDS = 5.0
SERVICE_NAME = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].full_name

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a started service tells: where producers reach it, where readers find releases, the key to pin."""

    address: str
    redis: str
    public_key: str
    metrics: str | None = None


async def serve(settings: Settings, on_ready: Callable[[Ready], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; the caller has them end the start (`signals.starting`)."""
    signals = Signals()
    certificates = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        certificates = ServerCertificates(settings.tls_cert, settings.tls_key, settings.client_ca)
        signals.reloads.append(certificates.reload)
    with ExitStack() as stack:
        clock = SystemClock()
        gate = make_gate(settings, clock)
        state = stack.enter_context(open_state(settings.state, clock))
        keys = SigningKeys(state.folder.path, clock, may_make=state.ledger.highest_set_id() == 0)
        signals.reloads.append(keys.reload)
        redis_url, revive = settings.redis, None
        if redis_url is None:
            valkey = stack.enter_context(EmbeddedValkey(state.folder.path / "valkey", settings.embedded_port))
            redis_url, revive = valkey.url, valkey.revive
        executor = stack.enter_context(ThreadPoolExecutor(settings.workers, thread_name_prefix="call"))
        # Of their own, since calls may all be waiting for a Redis that hangs.
        upload_executor = stack.enter_context(ThreadPoolExecutor(settings.workers, thread_name_prefix="upload"))
        redis_store = RedisStore(redis_url, settings.redis_timeout_seconds, settings.replicas)
        stack.callback(redis_store.close)
        watch = stack.enter_context(Monitoring(settings, state.ledger, served_methods()))
        signals.reloads.append(watch.reload)
        beside = settings.state.absolute()
        path = settings.anchor or beside.with_name(beside.name + ".anchor")
        anchor = stack.enter_context(open_anchor(path, settings.state))
        anchor.bind(state.ledger.bind_anchor(anchor.anchor_id))
        store = watch.store(redis_store)
        use_cases, ingest, merging = _wire(settings, state, clock, keys, store, watch, watch.anchor(anchor), revive)
        recover(state.ledger, state.files, merging, use_cases.guard)
        watch.refusing(lambda: state.refusing | merging.refusing)
        if settings.redis is None:  # it starts empty: readers who come back must not find it so
            with suppress(Unavailable):
                use_cases.delivery.reconcile()
        use_cases.worker.start()
        stack.callback(use_cases.worker.stop)
        streams = ClientStreams(settings.idle_seconds)
        uploads = UploadStream(ingest, upload_executor, streams)
        workers = SharedWorkers(executor, settings.workers)
        service = MembershipService(use_cases, uploads, workers, settings.publish_wait_seconds)
        stack.callback(service.close)
        signals.begin_serving()
        server, port, healthy = await _start(settings, service, watch, gate, certificates)
        on_ready(Ready(host_and_port(settings.host, port), redis_url, keys.newest.public.hex(), watch.metrics_address))
        log.info("serving", port=port)
        await signals.stopping.wait()
        log.info("draining")
        last_resort = end_in_time(settings.shutdown_delay_seconds + settings.drain_seconds + LAST_WORDS_SECONDS)
        await healthy.enter_graceful_shutdown()  # so that no new work is sent here while what is open ends
        await asyncio.sleep(settings.shutdown_delay_seconds)
        streams.drain(settings.drain_seconds / 2)
        use_cases.delivery.stop_waiting()
        await server.stop(settings.drain_seconds)
        await streams.closed()
        await _tasks_ended()
    last_resort.cancel()
    log.info("stopped")


async def _tasks_ended() -> None:
    """GRPC's stop does not wait for calls that it cut: the end of the loop would cut them again, and gRPC write a traceback."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest, timeout=LAST_WORDS_SECONDS / 2)


def _wire(
    settings: Settings,
    state: OpenedState,
    clock: SystemClock,
    keys: SigningKeys,
    store: ReleaseStore,
    watch: Monitoring,
    anchor: Anchor,
    revive: Callable[[], bool] | None,
) -> tuple[UseCases, Ingest, Merging]:
    ledger, files, entropy, set_locks = state.ledger, state.files, OsEntropy(), KeyedLocks()
    guard = RollbackGuard(ledger, store, anchor, keys)
    delivery = watch.delivery(ledger, files, store, settings.keep_releases, settings.grace_seconds)
    merging = Merging(ledger, files, set_locks)
    idle_seconds = settings.abandoned_upload_hours * 3600
    abandoned = AbandonedUploads(ledger, files, IdleFile(state.folder.path), idle_seconds)
    ingest = Ingest(ledger, files, set_locks, merging, abandoned, settings.limits)
    limits = SetLimits(settings.max_bits, settings.max_sets, settings.limits.max_sets_per_principal)
    use_cases = UseCases(
        ledger=ledger,
        sets=Sets(ledger, files, entropy, clock, set_locks, delivery, guard, limits),
        budgets=Budgets(ledger, clock),
        publishing=watch.publishing(ledger, files, entropy, clock, keys, set_locks, merging, guard),
        guard=guard,
        delivery=delivery,
        worker=DeliveryWorker(delivery, settings.reconcile_seconds, ingest.drop_abandoned, revive),
    )
    return use_cases, ingest, merging


def served_methods() -> list[str]:
    """/service/Method of everything that is served."""
    services = [
        descriptor
        for module in (membership_pb2, health_pb2, reflection_pb2)
        for descriptor in module.DESCRIPTOR.services_by_name.values()
    ]
    return [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]


async def _start(
    settings: Settings,
    service: MembershipService,
    watch: Monitoring,
    gate: Gate,
    certificates: ServerCertificates | None,
) -> tuple[grpc.aio.Server, int, health.aio.HealthServicer]:
    server = grpc.aio.server(
        interceptors=[watch.interceptor(), gate],
        options=[
            ("grpc.so_reuseport", 0),  # two services on one port would share its calls
            *channel_options(settings),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        ],
    )
    membership_pb2_grpc.add_MembershipServiceServicer_to_server(service, server)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = host_and_port(settings.host, settings.port)
    try:
        if certificates is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, certificates.credentials())
    except RuntimeError:
        raise Unavailable(
            f"port: cannot listen on {address}: it is taken, or its host cannot be resolved here"
        ) from None
    for name in ("", SERVICE_NAME):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    return server, port, healthy
