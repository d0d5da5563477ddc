"""Malicious set names (S5): refused by name, and whatever is asked, no file and no key comes to be outside of its place."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bad_inputs import creation

from harness.raw_calls import RawUpload, fails, open_upload
from harness.service_process import ServiceProcess
from harness.vectors import redis_content
from veilset.core.params import check_name
from veilset.errors import InvalidInput
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

NAMES = [
    # paths
    "", ".", "..", "../x", "..\\x", "/etc/passwd", "a/../../b", "./a", "a/", "/", "//a", "\\\\host\\share", "C:\\a", "~", "~root",
    "a\0b", "\0", "a\0", "%2e%2e%2f", "..%00", "a/b", "....//", "file:///a", "con/", "*/..",
    # lines, terminals, logs
    "a\nb", "a\r\nb", "\r", "\t", "\x1b[31m", "\x07", "a\x7f", " a", "a ", "\v", "\f", "\u2028", "\u0085", "\ufeffa",
    # Redis, globs, hash tags
    "{a}b", "a{b}", "*", "?", "[a]", "a*", "a:b", ":latest", "veilset:x", "a b", "$(id)", "`id`", ";id", "|id",
    "&", "'", '"', "<a>",
    # Unicode twins and directions
    "ä", "\uff41", "ａdmin", "а", "ﬁ", "İ", "ß", "\u202eabc", "a\u200b", "\u2066", "ﷺ", "\U0001f600", "e\u0301", "١",
    # shapes
    "-x", "--help", "-", "_a", ".a", "A", "aB", "a" * 64, "a" * 1000, "a" * 1_000_000, "'; DROP TABLE sets; --", "%s%n",
    "${jndi:a}",
    "null\x00byte", "a=b", "a,b", "a@b", "a+b", "a~", "a#", "a^",
]  # fmt: skip
FIELDS: dict[str, Callable[[str], object]] = {
    "CreateSet": creation,
    "GetSet": lambda name: pb.GetSetRequest(name=name),
    "DeleteSet": lambda name: pb.DeleteSetRequest(name=name),
    "PublishRelease": lambda name: pb.PublishReleaseRequest(set_name=name, request_id="r"),
    "GetRelease": lambda name: pb.GetReleaseRequest(set_name=name),
    "ListReleases": lambda name: pb.ListReleasesRequest(set_name=name),
    "GetBudget": lambda name: pb.GetBudgetRequest(account=name),
    "ReconcileReleases": lambda name: pb.ReconcileReleasesRequest(set_name=name or "-"),
}


def files(service: ServiceProcess) -> set[str]:
    """Everything beside and in the state folder, but what the embedded Valkey and SQLite come and go with."""
    found = set()
    for folder, _, names in os.walk(service.state.parent):
        found |= {os.path.join(folder, name) for name in names}  # noqa: PTH118 - names may be anything
    return {name for name in found if "/valkey/" not in name and not name.endswith("-journal")}


def test_no_name_of_the_corpus_gets_anywhere(service: ServiceProcess, stub: MembershipServiceStub) -> None:
    """Every name in every field: refused, and files and keys are as they were."""
    assert len(set(NAMES)) == len(NAMES) >= 60
    files_before, keys_before = files(service), set(redis_content(service.redis))
    for name in NAMES:
        for method, make in FIELDS.items():
            failure = fails(getattr(stub, method), make(name))
            assert failure.code in ("INVALID_ARGUMENT", "NOT_FOUND"), (name[:40], method, failure)
            assert failure.message.isprintable()
        with RawUpload(stub, open_upload(name, "u")) as stream:
            assert stream.failure().code == "INVALID_ARGUMENT"
    assert files(service) == files_before
    assert set(redis_content(service.redis)) == keys_before


def fuzzed_names(count: int) -> Iterator[str]:
    """Names that are nearly right, and names of any code points."""
    seed = secrets.randbits(64)
    print(f"seed {seed}")
    chance = random.Random(seed)  # noqa: S311 - to be able to repeat it
    near = "abcxyz019-._" * 3 + "AZ/{}*:\n\0é "
    for number in range(count):
        length = chance.randint(0, 66)
        if number % 2:
            yield "".join(chance.choices(near, k=length // 4))
        else:
            yield "".join(chr(chance.randint(0, 0x10FFFF)) for _ in range(length))


def test_a_name_that_is_accepted_is_harmless() -> None:
    """Of 5000 fuzzed ones. Nothing in it means anything to a file system, a shell, Redis, a glob or a log."""
    accepted = []
    for name in fuzzed_names(5000):
        with suppress(InvalidInput):
            accepted.append(check_name("name", name))
    assert len(accepted) > 100
    for name in accepted:
        assert 1 <= len(name) <= 63
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        assert name[0] not in "._-"
        assert Path("/state", name).parent == Path("/state")


def test_names_at_the_edge_work(service: ServiceProcess, stub: MembershipServiceStub) -> None:
    """What the rule allows works, and leaves nothing when deleted: names do not become file names."""
    before = files(service)
    for name in ("0", "a" * 63, "a..b-_", "con", "latest"):
        stub.CreateSet(creation(name))
        stub.DeleteSet(pb.DeleteSetRequest(name=name))
    assert files(service) == before
