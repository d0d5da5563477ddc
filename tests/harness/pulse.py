"""An honest client that keeps calling while something happens: how long its calls take, whether all succeed."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.patience import SECONDS
from harness.service_process import ServiceProcess
from veilset._service.channel import BearerToken
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

PAUSE_SECONDS = 0.004
MIB = 1 << 20


class Pulse:
    """Context manager: while its block runs, a thread asks for health and for a set in turn, as the holder of ``token``.

    ``milliseconds`` of every call that succeeded, ``failures`` of those that did not; ``grown_mib`` is how much more memory the
    service has at the end than at the beginning of the block.
    """

    def __init__(self, service: ServiceProcess, token: str, set_name: str) -> None:
        self.milliseconds: list[float] = []
        self.failures: list[str] = []
        self.grown_mib = self.resident_mib = 0.0
        self._address = service.address
        self._process = psutil.Process(service.pid)
        self._token = token
        self._set_name = set_name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> Pulse:
        self._before = self._resident()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.resident_mib = self._resident()
        self.grown_mib = self.resident_mib - self._before

    def _resident(self) -> float:
        return float(self._process.memory_info().rss) / MIB

    def _beat(self) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self._address, options) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            service = MembershipServiceStub(grpc.intercept_channel(channel, BearerToken(self._token)))
            health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)  # the connection is there then
            while not self._over.is_set():
                for method, request in (
                    (health.Check, health_pb2.HealthCheckRequest()),
                    (service.GetSet, pb.GetSetRequest(name=self._set_name)),
                ):
                    began = time.perf_counter()
                    try:
                        method(request, timeout=SECONDS)
                    except grpc.RpcError as error:
                        self.failures.append(f"{error.code()}: {error.details()}")
                    else:
                        self.milliseconds.append((time.perf_counter() - began) * 1000)
                self._over.wait(PAUSE_SECONDS)

    @property
    def p99_milliseconds(self) -> float:
        """99 of 100 calls took at most this."""
        return sorted(self.milliseconds)[len(self.milliseconds) * 99 // 100]

    def __str__(self) -> str:
        ordered = sorted(self.milliseconds)
        return (
            f"{len(ordered)} honest calls, {len(self.failures)} failed; p50 {ordered[len(ordered) // 2]:.1f} ms, "
            f"p99 {self.p99_milliseconds:.1f} ms, longest {ordered[-1]:.1f} ms; service {self.resident_mib:.0f} MiB "
            f"({self.grown_mib:+.0f})"
        )
