"""Callers who fill every text of a request with what is as long as a message may be and never the same: the service keeps
none of it, whatever it takes the text for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from harness.patience import SECONDS
from harness.service_process import ServiceProcess, running
from veilset.v1 import membership_pb2

METHODS = [
    method
    for method in membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].methods
    if method.name != "PlanRelease"  # the one without a text in its request
]
OFTEN = {"CreateSet", "AddElements", "PublishRelease"}
"""The others' requests are read by the same code; `make security` tries all."""
LENGTH = 3_900_000
CALLS = 20
KEPT_MIB = 40
"""Half of what these calls bring; what the allocator keeps at hand differs by a quarter of that."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One that nothing else has grown."""
    with running(ServiceProcess(tmp_path_factory.mktemp("names") / "state", ["--metrics-port", "0"])) as process:
        yield process


def texts(message: Message) -> Iterator[tuple[Message, str]]:
    """The string fields of a message and of the messages in it."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            yield message, field.name
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated:
            yield from texts(getattr(message, field.name))


def requests(method: MethodDescriptor) -> Iterator[Message]:
    """The method's request with a text in one of its string fields, each of them in turn."""
    kind: Any = GetMessageClass(method.input_type)
    for number in range(len(list(texts(kind())))):
        request = kind()
        message, field = list(texts(request))[number]
        setattr(message, field, f"{next(_numbers)}".rjust(LENGTH, "x"))
        yield request


def call(channel: grpc.Channel, method: MethodDescriptor, request: Message) -> None:
    """To its end, which may be good or bad."""
    make = channel.stream_stream if method.client_streaming else channel.unary_unary
    answer: Any = GetMessageClass(method.output_type)
    rpc: Any = make(
        f"/{method.containing_service.full_name}/{method.name}", type(request).SerializeToString, answer.FromString
    )
    with suppress(grpc.RpcError):
        if method.client_streaming:
            list(rpc(iter([request]), timeout=SECONDS))
        else:
            rpc(request, timeout=SECONDS)


def memory_mib(service: ServiceProcess) -> float:
    """Anonymous memory of the service."""
    lines = Path(f"/proc/{service.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=[] if method.name in OFTEN else [pytest.mark.security], id=method.name)
        for method in METHODS
    ],
)
def test_no_text_of_a_request_is_kept(method: MethodDescriptor, service: ServiceProcess) -> None:
    """Of any method, in any field."""
    with grpc.insecure_channel(service.address) as channel:
        for request in itertools.chain(requests(method), requests(method)):  # what any first calls take
            call(channel, method, request)
        before = memory_mib(service)
        made = 0
        while made < CALLS:
            for request in requests(method):
                call(channel, method, request)
                made += 1
        grown = memory_mib(service) - before
    print(f"{method.name}: {made} calls, {grown:.1f} MiB")
    assert grown < KEPT_MIB * made / CALLS
