"""Hostile clients (S1-S4, S9): resets, stalls, floods, guesses. What they get, what they cost, and what an honest client
notices of them.

The short runs are part of every test run and look at no clock. The long ones (make security) are of full size and hold the
honest client's times to their limits; they want a machine that does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import grpc
import pytest
from bad_inputs import creation

from harness.attacks import Attack
from harness.patience import SECONDS
from harness.pulse import Pulse
from harness.raw_calls import failure_of, upload
from harness.service_process import ServiceProcess, running
from harness.tokens import new_token, stub_with
from veilset.v1 import membership_pb2 as pb
from veilset_server.state.tokens import make_token

LIMIT_MIB = 300
"""How much the service may hold in memory; its vectors are a few kilobytes here."""
QUOTA = 10
RESOURCE_EXHAUSTED = "8"


@dataclass(slots=True)
class Scene:
    """A service that asks for tokens, with one set, and a token of each who plays here."""

    service: ServiceProcess
    honest: str
    bad: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One service for all of it: what one attack leaves behind the next one finds."""
    state = tmp_path_factory.mktemp("hostile") / "state"
    honest = new_token(state, "admin", name="honest")
    bad = [new_token(state, ["producer", "admin"], name=f"bad-{number}") for number in range(3)]
    with running(ServiceProcess(state, ["--max-sets-per-principal", str(QUOTA)])) as service:
        with stub_with(service, honest) as stub:
            stub.CreateSet(creation("honest"))
        yield Scene(service, honest, bad)


def check(what: str, pulse: Pulse, long: bool, p99_milliseconds: float, grown_mib: float = LIMIT_MIB) -> None:
    """The honest client was served, and the service stayed small."""
    print(f"{what}: {pulse}")
    assert pulse.failures == []
    assert pulse.milliseconds
    assert pulse.resident_mib < LIMIT_MIB
    if long:
        assert pulse.p99_milliseconds < p99_milliseconds
        assert pulse.grown_mib < grown_mib


def sizes(short: int, full: int) -> pytest.MarkDecorator:
    """A short run, and one of full size that watches the clock."""
    return pytest.mark.parametrize(
        ("size", "long"), [(short, False), pytest.param(full, True, marks=pytest.mark.security)], ids=["short", "full"]
    )


@sizes(1500, 50_000)
@pytest.mark.parametrize("authenticated", [False, True])
def test_rapid_resets(scene: Scene, authenticated: bool, size: int, long: bool) -> None:
    """S1: streams opened and reset at once, by a caller without credentials and by a producer."""
    token = scene.bad[0] if authenticated else None
    with (
        Pulse(scene.service, scene.honest, "honest") as pulse,
        Attack("resets", scene.service.address, token, size) as attack,
    ):
        ends = attack.ends()
    check(f"{ends}", pulse, long, p99_milliseconds=100, grown_mib=20)
    assert ends["streams"] == size


@sizes(24, 200)
def test_stalled_and_trickling_streams(scene: Scene, size: int, long: bool) -> None:
    """S2: uploads that say nothing, and uploads that say a byte at a time. Another producer's uploads all succeed meanwhile."""
    address = scene.service.address
    first, second, third = scene.bad
    with ExitStack() as stack:
        attacks = [
            stack.enter_context(Attack("stalled", address, first, size // 2)),
            stack.enter_context(Attack("stalled", address, second, size // 2)),
            stack.enter_context(Attack("trickling", address, third, max(6, size // 4))),
        ]
        for attack in attacks:
            attack.wait_until_ready()
        with (
            Pulse(scene.service, scene.honest, "honest") as pulse,
            stub_with(scene.service, scene.honest) as stub,
        ):
            for number in range(100 if long else 10):
                upload(stub, "honest", [[b"%d" % number] * 100] * 3, f"{size} {number}")
        assert all(attack.running for attack in attacks)
        ends = [attack.ends() for attack in attacks]
    check(f"{size} stalled and {max(6, size // 4)} trickling", pulse, long, p99_milliseconds=50)
    assert all(not found for found in ends), ends  # none was refused: they were within their principals' limits


def test_one_principal_cannot_take_all_streams(scene: Scene) -> None:
    """Calls beyond its own limit are refused at once and by name; the others' are not."""
    with Attack("stalled", scene.service.address, scene.bad[0], 250) as attack:
        attack.wait_until_ready()
        with Pulse(scene.service, scene.honest, "honest") as pulse, stub_with(scene.service, scene.honest) as stub:
            upload(stub, "honest", [[b"a"]], "while many are stalled")
        ends = attack.ends()
    assert ends == {RESOURCE_EXHAUSTED: 250 - 128}
    assert pulse.failures == []


@sizes(5 << 20, 64 << 20)
def test_messages_too_long(scene: Scene, size: int, long: bool) -> None:
    """S3: a long message, and a short one that says it has 4 GiB: refused by what they claim, before they are read."""
    with (
        Pulse(scene.service, scene.honest, "honest") as pulse,
        Attack("oversize", scene.service.address, scene.bad[0], size) as attack,
    ):
        ends = attack.ends()
    check(f"messages of {size} bytes", pulse, long, p99_milliseconds=50, grown_mib=20)
    assert ends == {RESOURCE_EXHAUSTED: 6}


@sizes(20_000, 1 << 20)
def test_headers_too_long(scene: Scene, size: int, long: bool) -> None:
    """S3: metadata beyond its limit, as one header and as thousands."""
    with (
        Pulse(scene.service, scene.honest, "honest") as pulse,
        Attack("metadata", scene.service.address, scene.bad[0], size) as attack,
    ):
        ends = attack.ends()
    check(f"headers of {size} bytes", pulse, long, p99_milliseconds=50, grown_mib=20)
    assert set(ends) <= {RESOURCE_EXHAUSTED} | ({"goaway 11", "reset 11"} if long else set()), ends


@sizes(30, 10_000)
def test_sets_without_end(scene: Scene, size: int, long: bool) -> None:
    """S4: one principal creates sets as fast as it can: it gets as many as its quota, and others still get theirs."""
    token = scene.bad[2] if long else scene.bad[1]
    made, refusals = 0, set[str]()
    with Pulse(scene.service, scene.honest, "honest") as pulse, stub_with(scene.service, token) as stub:
        for number in range(size):
            request = creation(f"s{size}-{number}", bits=64, hashes=1, allow_poor_utility=True)
            try:
                stub.CreateSet(request, timeout=SECONDS)
            except grpc.RpcError as error:
                failure = failure_of(error)
                assert failure.code == "RESOURCE_EXHAUSTED"
                refusals.add(failure.metadata["setting"])
            else:
                made += 1
    check(f"{made} of {size} sets made", pulse, long, p99_milliseconds=50)
    assert made == QUOTA
    assert refusals <= {"max_sets_per_principal", "requests_per_second_per_principal"}
    with stub_with(scene.service, scene.honest) as stub:
        stub.CreateSet(creation(f"mine-{size}"))
        stub.DeleteSet(pb.DeleteSetRequest(name=f"mine-{size}"))


@sizes(300, 10_000)
def test_guessed_tokens(scene: Scene, size: int, long: bool) -> None:
    """S9: wrong tokens of a right id: none gets in; after at most 20 a minute the answer is to wait. The honest client's
    address is the same, and it notices nothing."""
    token_id = scene.honest.split("_")[1]
    codes: list[str] = []
    with Pulse(scene.service, scene.honest, "honest") as pulse, stub_with(scene.service, None) as stub:
        for _ in range(size):
            metadata = (("authorization", f"Bearer {make_token(token_id)}"),)
            try:
                stub.ListSets(pb.ListSetsRequest(), metadata=metadata, timeout=SECONDS)
            except grpc.RpcError as error:
                codes.append(failure_of(error).code)
            else:
                codes.append("OK")
    tried = codes.count("UNAUTHENTICATED")
    check(f"{size} guesses, {tried} answered, {codes.count('OK')} right", pulse, long, p99_milliseconds=50)
    assert set(codes) == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"} - ({"UNAUTHENTICATED"} if not tried else set())
    assert tried <= 20 + size / 10  # the burst, and one every three seconds: no guess takes a third of a second
