"""Composition root: builds the service from its parts, runs it until a signal stops it, and closes the parts in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import structlog

from veilset._service.endpoint import host_and_port
from veilset.errors import Unavailable
from veilset_server.locks import KeyedLocks
from veilset_server.metrics.monitoring import Monitoring
from veilset_server.ports import Anchor, ReleaseStore
from veilset_server.process import Signals, end_in_time
from veilset_server.redis.embedded_valkey import EmbeddedValkey
from veilset_server.redis.store import RedisStore
from veilset_server.rpc.allowances import Allowances, FairSlots, bulk_slots
from veilset_server.rpc.call import OpenCalls, call_pool
from veilset_server.rpc.credentials import make_credentials
from veilset_server.rpc.server import PortWatch, RpcServer, ServerCertificates, served_methods
from veilset_server.rpc.service import MembershipService, UseCases
from veilset_server.rpc.serving import Serving
from veilset_server.rpc.upload import UploadCalls
from veilset_server.settings import Settings
from veilset_server.state.anchor import open_anchor
from veilset_server.state.entropy import OsEntropy, SystemClock
from veilset_server.state.keys import SigningKeys
from veilset_server.state.state_folder import OpenedState, open_state
from veilset_server.usecases.abandoned_uploads import AbandonedUploads, IdleFile
from veilset_server.usecases.budgets import Budgets
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.delivery import DeliveryWorker
from veilset_server.usecases.rollback import RollbackGuard, recover
from veilset_server.usecases.sets import SetLimits, Sets
from veilset_server.usecases.uploads import Uploads

LAST_WORDS_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """Addresses of a started service for producers and for readers, and the public key that readers pin."""

    address: str
    redis: str
    public_key: str
    metrics: str | None = None


def serve(settings: Settings, on_ready: Callable[[Ready], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; the caller has them end the start (`signals.starting`)."""
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        certificates = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            certificates = ServerCertificates(settings.tls_cert, settings.tls_key, settings.client_ca)
            signals.reloads.append(certificates.reload)
        clock = SystemClock()
        credentials = make_credentials(settings, clock)
        state = stack.enter_context(open_state(settings.state, clock))
        keys = SigningKeys(state.folder.path, clock, may_make=state.ledger.highest_set_id() == 0)
        signals.reloads.append(keys.reload)
        redis_url, revive = settings.redis, None
        if redis_url is None:
            valkey = stack.enter_context(EmbeddedValkey(state.folder.path / "valkey", settings.embedded_port))
            redis_url, revive = valkey.url, valkey.revive
        redis_store = RedisStore(redis_url, settings.redis_timeout_seconds, settings.replicas)
        stack.callback(redis_store.close)
        watch = stack.enter_context(Monitoring(settings, state.ledger, served_methods()))
        signals.reloads.append(watch.reload)
        beside = settings.state.absolute()
        path = settings.anchor or beside.with_name(beside.name + ".anchor")
        anchor = stack.enter_context(open_anchor(path, settings.state))
        anchor.bind(state.ledger.bind_anchor(anchor.anchor_id))
        store = watch.store(redis_store)
        use_cases, uploads, compactor = _wire(settings, state, clock, keys, store, watch, watch.anchor(anchor), revive)
        recover(state.ledger, state.artefacts, use_cases.guard)
        watch.refusing(lambda: state.refusing | compactor.refusing)
        compactor.start()
        stack.callback(compactor.stop)
        if settings.redis is None:  # it starts empty: readers who come back must not find it so
            with suppress(Unavailable):
                use_cases.delivery.reconcile()
        use_cases.worker.start()
        stack.callback(use_cases.worker.stop)
        # Uploads have places of their own, since other calls may all be waiting for a Redis that hangs.
        places, upload_places = (FairSlots(settings.workers, settings.workers // 2) for _ in range(2))
        service = MembershipService(
            use_cases, UploadCalls(uploads, upload_places, bulk_slots()), places, settings.publish_wait_seconds
        )
        calls = stack.enter_context(OpenCalls())
        allowances, seconds = Allowances(settings.limits), settings.idle_seconds
        pool = call_pool(settings.limits)
        serving = Serving(credentials, allowances, calls, pool, watch.observers, served_methods(), seconds)
        signals.begin_serving()
        server = RpcServer(settings, service, serving, pool, certificates)
        server.start()
        with PortWatch(settings.host, server, watch.port_answered, watch.port_lost):
            address = host_and_port(settings.host, server.port)
            on_ready(Ready(address, redis_url, keys.newest.public.hex(), watch.metrics_address))
            log.info("serving", port=server.port)
            signals.until_stopped()
        log.info("draining")
        last_resort = end_in_time(settings.shutdown_delay_seconds + settings.drain_seconds + LAST_WORDS_SECONDS)
        server.say_no_more()  # so that no new work is sent here while what is open ends
        time.sleep(settings.shutdown_delay_seconds)
        calls.drain(settings.drain_seconds / 2)
        use_cases.delivery.stop_waiting()
        server.stop(settings.drain_seconds)
        calls.closed(LAST_WORDS_SECONDS / 2)
    last_resort.cancel()
    log.info("stopped")


def _wire(
    settings: Settings,
    state: OpenedState,
    clock: SystemClock,
    keys: SigningKeys,
    store: ReleaseStore,
    watch: Monitoring,
    anchor: Anchor,
    revive: Callable[[], bool] | None,
) -> tuple[UseCases, Uploads, Compactor]:
    ledger, runs, artefacts, entropy, set_locks = state.ledger, state.runs, state.artefacts, OsEntropy(), KeyedLocks()
    guard = RollbackGuard(ledger, store, anchor, keys)
    delivery = watch.delivery(ledger, artefacts, store, settings.keep_releases, settings.grace_seconds)
    compactor = Compactor(ledger, runs)
    idle_seconds = settings.abandoned_upload_hours * 3600
    abandoned = AbandonedUploads(ledger, runs, IdleFile(state.folder.path), idle_seconds)
    uploads = Uploads(ledger, runs, compactor, guard, abandoned, clock, settings.limits)
    limits = SetLimits(settings.max_bits, settings.max_sets, settings.limits.max_sets_per_principal)
    use_cases = UseCases(
        ledger=ledger,
        sets=Sets(ledger, runs, artefacts, entropy, clock, set_locks, delivery, guard, limits),
        budgets=Budgets(ledger, clock),
        publishing=watch.publishing(
            ledger, runs, artefacts, entropy, clock, keys, set_locks, compactor, guard, settings.max_bits
        ),
        guard=guard,
        delivery=delivery,
        worker=DeliveryWorker(delivery, settings.reconcile_seconds, uploads.housekeeping, revive),
    )
    return use_cases, uploads, compactor
