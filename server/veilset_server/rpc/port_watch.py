"""Checks from inside, by real connections, that the port answers. If it does not, the process ends, so that its supervisor
restarts it: while metrics still answer, a closed port would go unnoticed.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

import grpc
import structlog

from veilset_server.rpc.server import RpcServer

ASK_SECONDS = 2.0
"""How often it is asked."""

ANSWER_SECONDS = 15.0
"""How long an answer may take; a busy machine is no reason to end."""

MOST_CLOSED, MOST_SILENT = 2, 4
"""How many connections may be refused, and how many questions stay without an answer, in a row."""

HEALTH_CHECK = "/grpc.health.v1.Health/Check"

log = structlog.get_logger(__name__)


class PortWatch:
    """Context manager around the thread that asks, and around the hook that sees a thread of gRPC's server die.

    Two questions: does the port take a connection; does the server behind it answer a health check, by a socket on which nothing
    else is served (`RpcServer.inside`), as the port itself may ask for a certificate.
    answered: called after each good answer. lost: called once with the reason, when the port does not answer any more.
    """

    def __init__(
        self, host: str, server: RpcServer, answered: Callable[[], object], lost: Callable[[str], object]
    ) -> None:
        self._address = (reachable(host), server.port)
        self._inside = server.inside
        self._threads: Collection[threading.Thread] = server.threads
        self._answered = answered
        self._lost = lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="port", daemon=True)

    def __enter__(self) -> PortWatch:
        self._hook, threading.excepthook = threading.excepthook, self._died
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        threading.excepthook = self._hook

    def _died(self, uncaught: threading.ExceptHookArgs) -> None:
        self._hook(uncaught)
        if uncaught.thread in self._threads and not self._over.is_set():
            self._lost(f"a thread of the server ended with {uncaught.exc_type.__name__}")

    def _watch(self) -> None:
        closed = silent = 0
        with grpc.insecure_channel(self._inside, [("grpc.enable_http_proxy", 0)]) as channel:
            ask: Any = channel.unary_unary(HEALTH_CHECK)
            while not self._over.wait(ASK_SECONDS):
                closed = 0 if self._is_open() else closed + 1
                silent = 0 if _answers(ask) else silent + 1
                if self._over.is_set():
                    return
                if not closed and not silent:
                    self._answered()
                elif closed >= MOST_CLOSED:
                    self._lost("the port refuses connections")
                elif silent >= MOST_SILENT:
                    self._lost(f"no answer to {silent} health checks in a row")

    def _is_open(self) -> bool:
        """Whether a connection is taken; what else keeps us from one, such as a shortage of descriptors, says nothing of it."""
        try:
            with socket.create_connection(self._address, ANSWER_SECONDS):
                return True
        except ConnectionRefusedError:
            return False
        except OSError:
            return True


def _answers(ask: Any) -> bool:
    """Any answer will do, a refusal too."""
    try:
        ask(b"", timeout=ANSWER_SECONDS)
    except grpc.RpcError as error:
        return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return True


def reachable(host: str) -> str:
    """Where this process reaches what listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not listened on


def end_process(why: str) -> None:
    """Write one line to the log and end the process with status EX_SOFTWARE (70), without more ado: what was acknowledged is on
    disk, and the next start carries on, as after a kill."""
    log.critical("the port does not answer; the process ends, restart it", why=why)
    sys.stderr.flush()
    os._exit(os.EX_SOFTWARE)
