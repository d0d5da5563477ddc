"""Bad input on the command line: one line on standard error, exit code 1 or 2, and nothing applied, nothing charged."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.programs import Finished, environment, unused_port, veilset, wait_until
from harness.raw_calls import fails
from harness.service_process import ServiceProcess
from harness.vectors import raw_vector, redis_content
from veilset._input.columns import BATCH
from veilset.core.params import DIGEST_BYTES
from veilset.v1 import membership_pb2 as pb
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

FAILED, USAGE = 1, 2


@dataclass(frozen=True, slots=True)
class BadLine:
    """Arguments, the exit code, and what the one line has to name. {…} in an argument is filled in by the test."""

    arguments: Sequence[str | bytes]
    code: int
    names: str


def create(*options: str, name: str = "never-made") -> Sequence[str]:
    """A sound ``create``, but for the options given, which come last and so prevail."""
    return ("create", name, "--size", "100", "--epsilon", "3", "--adjacency", "add-remove", *options)


BAD_LINES = {
    "bad name": BadLine(create(name="Never Made"), USAGE, "name"),
    "taken name": BadLine(create(name="{set}"), FAILED, "exists already"),
    "epsilon 0": BadLine(create("--epsilon", "0"), USAGE, "epsilon"),
    "epsilon below 0": BadLine(create("--epsilon=-1"), USAGE, "epsilon"),
    "epsilon nan": BadLine(create("--epsilon", "nan"), USAGE, "epsilon"),
    "epsilon inf": BadLine(create("--epsilon", "inf"), USAGE, "epsilon"),
    "epsilon no number": BadLine(create("--epsilon", "three"), USAGE, "--epsilon"),
    "delta above 0.1": BadLine(create("--delta", "0.2"), USAGE, "delta"),
    "delta nan": BadLine(create("--delta", "nan"), USAGE, "delta"),
    "0 hashes": BadLine(create("--bits", "1000"), USAGE, "hashes"),
    "hashes below 0": BadLine(create("--bits", "1000", "--hashes=-1"), USAGE, "dimension"),
    "7 bits": BadLine(create("--bits", "7", "--hashes", "1"), USAGE, "bits"),
    "bits above the cap": BadLine(create("--bits", str(1 << 41), "--hashes", "1"), USAGE, "bits"),
    "bits above the limit": BadLine(create("--bits", str(1 << 36), "--hashes", "1"), FAILED, "bits"),
    "size below 0": BadLine(create("--size=-1"), USAGE, "size"),
    "seed without bounds": BadLine(create("--seed", str(1 << 32)), USAGE, "seed"),
    "no adjacency": BadLine(("create", "never-made", "--size", "9", "--epsilon", "3"), USAGE, "--adjacency"),
    "another adjacency": BadLine(create("--adjacency", "neighbours"), USAGE, "--adjacency"),
    "max bytes": BadLine(create("--max-bytes", "8Q"), USAGE, "--max-bytes"),
    "small budget": BadLine(create("--budget-epsilon", "1"), USAGE, "--budget-epsilon"),
    "no such command": BadLine(("creat",), USAGE, "creat"),
    "no such option": BadLine(create("--epsilonn", "3"), USAGE, "--epsilonn"),
    "add to an unknown set": BadLine(("add", "no-such-set", "{list}"), FAILED, "set"),
    "a certificate without its key": BadLine(("add", "{set}", "{list}", "--cert", "{list}"), USAGE, "--cert-key"),
    "publish an unknown set": BadLine(("publish", "no-such-set"), FAILED, "set"),
    "publish a name that is no text": BadLine(("publish", b"\xff"), USAGE, "set_name"),
    "publish a name of two lines": BadLine(("publish", "a\nb"), USAGE, "set_name"),
    "publish with a request id that is no text": BadLine(("publish", "{set}", "--request-id", b"\xff"), USAGE, "request_id"),
    "publish an empty set": BadLine(("publish", "{empty}"), FAILED, "no finished upload"),
    "releases of an unknown set": BadLine(("releases", "no-such-set"), FAILED, "set"),
    "budget of an unknown set": BadLine(("budget", "no-such-set"), FAILED, "set"),
    "budget of nothing": BadLine(("budget",), USAGE, "account"),
    "budget lowered": BadLine(("budget", "{set}", "--raise-epsilon", "0.5", "--reason", "r"), USAGE, "epsilon"),
    "budget raised to nan": BadLine(("budget", "{set}", "--raise-epsilon", "nan", "--reason", "r"), USAGE, "epsilon"),
    "budget raised without reason": BadLine(("budget", "{set}", "--raise-epsilon", "9"), USAGE, "reason"),
    "delete an unknown set": BadLine(("delete", "no-such-set", "--yes"), FAILED, "set"),
    "reconcile an unknown set": BadLine(("reconcile", "no-such-set"), FAILED, "set"),
    "query an unknown set": BadLine(("query", "no-such-set", "x"), FAILED, "no-such-set"),
    "query a bad name": BadLine(("query", "No Such Set", "x"), USAGE, "set_name"),
    "query nothing": BadLine(("query", "{set}"), USAGE, "elements"),
    "query with another key": BadLine(("query", "{set}", "x", "--public-key", "00" * 32), FAILED, "signature"),
    "query with half a key": BadLine(("query", "{set}", "x", "--public-key", "00"), USAGE, "--public-key"),
    "query no Redis": BadLine(("query", "{set}", "x", "--redis", "http://localhost"), USAGE, "redis"),
    "query a Redis that is away": BadLine(
        ("query", "{set}", "x", "--redis", "redis://u:secret@127.0.0.1:{port}"), FAILED, "at 127.0.0.1:{port}"
    ),
    "query a file that is none": BadLine(("query", "{set}", "x", "--release", "{list}"), FAILED, "release"),
    "query with impossible limits": BadLine(("query", "{set}", "x", "--threshold-fpr", "1e-9"), FAILED, "rate"),
    "fetch into no folder": BadLine(("fetch", "{set}", "-o", "{folder}/none/release"), FAILED, "none/release"),
    "no such file": BadLine(("add", "{set}", "{folder}/none.txt"), USAGE, "none.txt"),
    "a folder for a file": BadLine(("add", "{set}", "{folder}"), USAGE, "file"),
    "a long element": BadLine(("add", "{set}", "{long}"), USAGE, "long.txt, line 2"),
    "no column given": BadLine(("add", "{set}", "{csv}"), USAGE, "column"),
    "no such column": BadLine(("add", "{set}", "{csv}", "--column", "mail"), USAGE, "column"),
    "a short row": BadLine(("add", "{set}", "{csv}", "--column", "3"), USAGE, "column"),
    "half a gzip": BadLine(("add", "{set}", "{halfgzip}"), USAGE, "gzip"),
    "a broken gzip": BadLine(("add", "{set}", "{badgzip}"), USAGE, "gzip"),
    "no Parquet": BadLine(("add", "{set}", "{list}", "--format", "parquet", "--column", "c"), USAGE, "parquet"),
    "no key file": BadLine(("add", "{set}", "{list}", "--key-file", "{folder}/none"), USAGE, "key-file"),
    "a key for an unkeyed scheme": BadLine(("add", "{set}", "{list}", "--key-file", "{long}"), USAGE, "--key-file"),
    "a key for an unkeyed set": BadLine(create("--key-file", "{list}"), USAGE, "key-file"),
    "a key for an unkeyed query": BadLine(("query", "{set}", "x", "--key-file", "{list}"), USAGE, "--key-file"),
    "a key for an unkeyed count": BadLine(("count", "{set}", "--key-file", "{list}"), USAGE, "--key-file"),
    "a key for an unkeyed spec": BadLine(
        ("spec", *create("--key-file", "{list}", name="{folder}/never.toml")), USAGE, "key-file"
    ),
    "a delimiter of two": BadLine(("add", "{set}", "{csv}", "--column", "1", "--delimiter", "ab"), USAGE, "--delimiter"),
    "a header of lines": BadLine(("add", "{set}", "{list}", "--header"), USAGE, "header"),
    "a name without a header": BadLine(("add", "{set}", "{csv}", "--column", "id", "--no-header"), USAGE, "column"),
    "a release of no other set": BadLine(("overlap", "{set}", "--with-release", "{list}"), USAGE, "with is needed"),
    "a threshold out of range": BadLine(("query", "{set}", "x", "--threshold-fpr", "2"), USAGE, "--threshold-fpr"),
    "an upload id that is no text": BadLine(("add", "{set}", "{list}", "--upload-id", b"\xff"), USAGE, "--upload-id"),
    "no service there": BadLine(("sets", "--server", "127.0.0.1:{port}"), FAILED, "cannot reach"),
    "no address of a service": BadLine(("sets", "--server", "no such address"), USAGE, "host:port"),
    "serve to the world": BadLine(("serve", "--state", "{folder}/s", "--host", "192.0.2.1"), USAGE, "host"),
    "serve on no port": BadLine(("serve", "--state", "{folder}/s", "--port", "99999"), USAGE, "port"),
    "serve a file": BadLine(("serve", "--state", "{list}"), USAGE, "--state"),
    "serve a foreign folder": BadLine(("serve", "--state", "{folder}"), FAILED, "not a state folder"),
    "demo of a short list": BadLine(("demo", "--file", "{list}", "--state", "{folder}/d"), USAGE, "file"),
}  # fmt: skip
# What the interpreter, gRPC or a signal handler might add to the one line shows in a process of its own only.
IN_A_PROCESS = {case for case in BAD_LINES if case.startswith(("serve", "demo"))} | {"no adjacency", "no service there"}


@pytest.fixture(scope="module")
def places(
    stub: MembershipServiceStub, service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What stands in braces in the table."""
    folder = tmp_path_factory.mktemp("bad-lines")
    zipped = bytearray(gzip.compress(os.urandom(200)))
    contents = {
        "list": b"one\ntwo\n",
        "long": b"one\n" + b"x" * 4097 + b"\n",
        "csv": b"id,e-mail\n1,a\n",
        "halfgzip": bytes(zipped[:100]),
        "badgzip": bytes(zipped[:11] + b"\xff\xff\xff\xff" + zipped[15:]),
    }
    suffixes = {"list": ".txt", "long": ".txt", "csv": ".csv"}
    found = {"folder": str(folder), "port": str(unused_port()), "set": "lines", "empty": "no-lines"}
    for name, content in contents.items():
        path = folder / (name + suffixes.get(name, ".gz"))
        path.write_bytes(content)
        found[name] = str(path)
    for name in ("lines", "no-lines"):
        assert (
            veilset(*create(name=name), "--budget-epsilon", "9", settings={"VEILSET_SERVER": service.address}).code == 0
        )
    assert veilset("add", "lines", "-", stdin=b"one\ntwo\n", settings={"VEILSET_SERVER": service.address}).code == 0
    assert veilset("publish", "lines", settings={"VEILSET_SERVER": service.address}).code == 0
    return found


def everything(service: ServiceProcess, stub: MembershipServiceStub) -> list[object]:
    """All that a command might change, but for uploads that are open."""
    sets = stub.ListSets(pb.ListSetsRequest(page_size=1000))
    own = [pb.GetBudgetRequest(set_name=name) for name in ("lines", "no-lines")]
    vectors = [raw_vector(service.state, name) for name in ("lines", "no-lines")]
    return [redis_content(service.redis), sets, *map(stub.GetBudget, own), *vectors]


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_says_one_line_and_changes_nothing(
    case: str,
    places: dict[str, str],
    service: ServiceProcess,
    stub: MembershipServiceStub,
    veilset_here: Callable[..., Finished],
) -> None:
    """Whatever is wrong, wherever it is noticed."""
    bad = BAD_LINES[case]
    filled = [part if isinstance(part, bytes) else part.format(**places) for part in bad.arguments]
    before = everything(service, stub)
    run = veilset if case in IN_A_PROCESS else veilset_here
    done = run(*filled, settings={"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis})
    assert bad.names.format(**places) in done.complaint()
    assert ":secret@" not in done.err
    assert done.code == bad.code
    assert everything(service, stub) == before
    assert not Path(places["folder"], "s").exists()


def test_a_producer_that_is_killed_leaves_nothing(
    places: dict[str, str], service: ServiceProcess, stub: MembershipServiceStub
) -> None:
    """An upload that ends without finish, from the command line: the process dies after its first batch."""
    before, held_before = everything(service, stub), spools_with_a_batch(service)
    command = [sys.executable, "-m", "veilset", "add", "no-lines", "-", "--upload-id", "killed"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, env=environment({"VEILSET_SERVER": service.address})
    ) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"".join(b"%d\n" % number for number in range(100_000)))
        producer.stdin.flush()
        wait_until(lambda: spools_with_a_batch(service) > held_before)
        producer.send_signal(signal.SIGKILL)
        producer.stdin.close()
    refusal = fails(stub.PublishRelease, pb.PublishReleaseRequest(set_name="no-lines", request_id="r"))
    assert refusal.code == "FAILED_PRECONDITION"
    assert everything(service, stub) == before


def spools_with_a_batch(service: ServiceProcess) -> int:
    """How many uploads hold a full batch on disk."""
    return sum(path.stat().st_size > DIGEST_BYTES * BATCH for path in service.state.glob("spools/*"))
