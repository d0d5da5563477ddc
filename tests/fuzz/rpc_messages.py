"""Messages to every method of the service, over a real connection to a real service in the same process.

The first byte says which method; for one that takes a stream, each message is led by its length in two bytes. Whatever comes,
the answer is never INTERNAL or UNKNOWN, and a well-behaved call gets through afterwards.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import structlog

from harness.shapes import bloom
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset_server.app import Ready, serve
from veilset_server.process import return_freed_memory
from veilset_server.settings import Limits, Settings

MODULES = ("veilset_server.app",)

_SERVICE = pb.DESCRIPTOR.services_by_name["MembershipService"]
_METHODS = [
    (f"/{_SERVICE.full_name}/{method.name}", method.client_streaming, method.server_streaming)
    for method in _SERVICE.methods
]
_NEVER = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
_SECONDS = 8.0
_PRIVACY = parameters_pb2.PrivacyParameters(epsilon=2.0, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)


class _Running:
    """The service and a channel to it, started at the first input."""

    def __init__(self) -> None:
        return_freed_memory()  # as `veilset serve` does first
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self._folder = tempfile.TemporaryDirectory()
        limits = Limits(requests_per_second=1_000_000, requests_per_second_per_principal=1_000_000)
        state = Path(self._folder.name) / "state"
        settings = Settings(state, port=0, max_bits=1 << 16, publish_wait_seconds=0.1, limits=limits)
        ready: Future[Ready] = Future()
        threading.Thread(target=serve, args=(settings, ready.set_result), daemon=True).start()
        self.channel = grpc.insecure_channel(ready.result(60).address)

    def call(self, data: bytes) -> tuple[grpc.StatusCode, str]:
        """One call with the messages in ``data``; how it ended, and what was said of it."""
        path, streams, _ = _METHODS[data[0] % len(_METHODS)]
        messages = _split(data[1:]) if streams else iter([data[1:]])
        try:
            calls: Any = self.channel.stream_stream(path)
            for _ in calls(messages, timeout=_SECONDS):
                pass
        except grpc.RpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""


def _split(data: bytes) -> Iterator[bytes]:
    while data:
        length = int.from_bytes(data[:2], "little")
        yield data[2 : 2 + length]
        data = data[2 + length :]


def _stream(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(2, "little") + message for message in messages)


def seeds() -> Iterator[bytes]:
    """A good call of every method, in an order in which most succeed, so that later inputs find a set, uploads, releases."""
    opening = pb.OpenUpload(set_name="a", upload_id="u")
    elements = pb.Batch(sequence=1, elements=pb.Elements(values=[b"x", b"y"]))
    good = {
        "PlanRelease": pb.PlanReleaseRequest(size=100, privacy=_PRIVACY, encoding=bloom(4096, 1)).SerializeToString(),
        "CreateSet": pb.CreateSetRequest(
            name="a", size=100, privacy=_PRIVACY, encoding=bloom(4096, 1), seed=7, budget_epsilon=1000
        ).SerializeToString(),
        "AddElements": _stream(
            pb.AddElementsRequest(open=opening).SerializeToString(),
            pb.AddElementsRequest(batch=elements).SerializeToString(),
            pb.AddElementsRequest(finish=pb.FinishUpload(count=2)).SerializeToString(),
        ),
        "AddBatch": pb.AddBatchRequest(set_name="a", upload_id="v", digests=bytes(16)).SerializeToString(),
        "PublishRelease": pb.PublishReleaseRequest(set_name="a", request_id="r").SerializeToString(),
        "GetBudget": pb.GetBudgetRequest(set_name="a").SerializeToString(),
        "RaiseBudget": pb.RaiseBudgetRequest(account="a", epsilon=2000, reason="more").SerializeToString(),
        "ConfirmLoss": pb.ConfirmLossRequest(set_name="a", epsilon=1, reason="lost").SerializeToString(),
        "DeleteSet": pb.DeleteSetRequest(name="b").SerializeToString(),
    }
    named = pb.GetReleaseRequest(set_name="a").SerializeToString()  # the name is field 1 wherever a set is named
    names = [method.name for method in _SERVICE.methods]
    for name in [*good, *(name for name in names if name not in good)]:
        yield bytes([names.index(name)]) + good.get(name, named)


_running: list[_Running] = []


def one_input(data: bytes) -> None:
    """Make the call; any answer but a fault of ours will do."""
    if not data:
        return
    if not _running:
        _running.append(_Running())
    code, details = _running[0].call(data)
    if code in _NEVER:
        raise AssertionError(f"{_METHODS[data[0] % len(_METHODS)][0]} answered {code}: {details}")
