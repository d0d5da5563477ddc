"""The programs of docs/examples do what they say, as real processes against a real service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import polars as pl
import pytest
from google.protobuf import json_format, message_factory

import veilset
from harness.programs import environment, unused_port, wait_until
from harness.service_process import ServiceProcess
from harness.vectors import held_digests
from veilset.v1 import membership_pb2 as pb

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MEMBERS = [f"user{number}@example.com" for number in range(400)]
OTHERS = [f"other{number}@example.com" for number in range(400)]
JARS = "/usr/share/java"
SUBMIT = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"


@pytest.fixture
def members(service: ServiceProcess, set_name: str) -> str:
    """The name of a published set whose answers are wrong about once in a thousand (ε = 8)."""
    with service.connect() as connection:
        create(connection, set_name).add(set_name, MEMBERS)
        connection.publish(set_name)
    return set_name


def create(connection: veilset.Service, name: str, increments: int = 0) -> veilset.Service:
    connection.create_set(
        name,
        size=1000,
        encoding="linear",
        epsilon=8,
        adjacency="add-remove",
        budget_epsilon=64,
        normalization="email",
        increments=increments,
    )
    return connection


@contextmanager
def login_check(service: ServiceProcess, name: str, cache: Path) -> Iterator[str]:
    """The web service with two workers; yields its URL."""
    port = unused_port()
    settings = {
        "VEILSET_REDIS": service.redis,
        "VEILSET_SET": name,
        "VEILSET_PUBLIC_KEY": service.public_key,
        "VEILSET_CACHE": str(cache),
    }
    command = [
        "login_check:app",
        "--app-dir",
        str(EXAMPLES),
        "--workers",
        "2",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    with subprocess.Popen([sys.executable, "-m", "uvicorn", *command], env=environment(settings)) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            assert process.wait(60) in (0, -15)


def answer(url: str, body: object = None) -> dict[str, object]:
    """What a call answers; nothing while nobody listens."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=60) as response:  # noqa: S310 - http
            return dict(json.load(response))
    except URLError as error:
        if isinstance(error, HTTPError):
            raise
        return {}


@pytest.mark.examples
def test_login_check_follows_in_every_worker(service: ServiceProcess, members: str, tmp_path: Path) -> None:
    """Members go straight in and others do not; each worker takes over a new release; what is no element is a 422."""
    with login_check(service, members, tmp_path) as url:
        seen: dict[object, object] = {}

        def workers(sequence: int) -> bool:
            state = answer(f"{url}/health")
            seen[state.get("worker")] = state.get("sequence")
            return len([found for found in seen.values() if found == sequence]) == 2

        wait_until(partial(workers, 1))
        let_in = [
            [answer(f"{url}/login", {"address": one})["straight_in"] for one in who[:50]] for who in (MEMBERS, OTHERS)
        ]
        assert let_in[0].count(True) >= 45
        assert let_in[1].count(True) <= 5
        with pytest.raises(HTTPError, match="422"):
            answer(f"{url}/login", {"address": ""})
        with service.connect() as connection:
            connection.add(members, OTHERS)
            connection.publish(members)
        wait_until(partial(workers, 2))
        assert sum(bool(answer(f"{url}/login", {"address": one})["straight_in"]) for one in OTHERS[:50]) >= 45


@pytest.mark.examples
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_filtering_leaves_the_rows_of_others(
    library: str, service: ServiceProcess, members: str, tmp_path: Path
) -> None:
    """Whole rows, in their order."""
    source, target = tmp_path / "campaign.csv", tmp_path / "kept.csv"
    rows = [f"{place},{address}" for place, address in enumerate(MEMBERS + OTHERS)]
    source.write_text("\n".join(["id,email", *rows]) + "\n")
    command = [str(EXAMPLES / "filtering.py"), library, service.redis, members, str(source), "email", str(target)]
    subprocess.run([sys.executable, *command], check=True, env=environment(), capture_output=True)
    view = veilset.open(service.redis, members)
    kept = [row for row in rows if row.split(",")[1] not in view]
    assert target.read_text().splitlines() == ["id,email", *kept]
    assert 350 < len(kept) < 450


@pytest.mark.examples
def test_nightly_job_publishes_a_base_then_increments(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """Each night's export is the content; a second run of the same night adds and charges nothing."""
    settings = {"VEILSET_SERVER": service.address, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    export = tmp_path / "export.csv"

    def night(day: str, people: list[str]) -> None:
        export.write_text("\n".join(["email", *people]) + "\n")
        command = [str(EXAMPLES / "nightly" / "nightly.sh"), set_name, str(export), "email"]
        subprocess.run(command, check=True, env=environment(settings | {"NIGHTLY_DAY": day}), capture_output=True)

    with service.connect() as connection:
        create(connection, set_name, increments=31)
        night("2026-12-01", MEMBERS)
        for _ in range(2):
            night("2026-12-02", MEMBERS + OTHERS)
        assert [release.header.is_base for release in connection.list_releases(set_name)] in (
            [True, False],
            [False, True],
        )
        assert connection.budget(set_name).epsilon_spent == 8
        view = veilset.open(service.redis, set_name)
        assert len(view.parts) == 2
        assert view.contains_many(MEMBERS + OTHERS).sum() > 780
        night("2027-01-01", OTHERS)
        assert connection.budget(set_name).epsilon_spent == 16
    assert veilset.open(service.redis, set_name).contains_many(MEMBERS).sum() < 20


def test_grpcurl_lines_are_calls_of_the_contract(service: ServiceProcess, members: str) -> None:
    """Their JSON is a request of the method that they name, and the service takes it."""
    page = (ROOT / "docs" / "other_languages.md").read_text()
    lines = re.findall(r"grpcurl -plaintext -d '([^']*)'\s+localhost:50051 veilset\.v1\.MembershipService/(\w+)", page)
    assert len(lines) == page.count("grpcurl -") >= 1
    for text, name in lines:
        method = pb.DESCRIPTOR.services_by_name["MembershipService"].methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)()
        json_format.Parse(text, request)
        with service.stub() as stub:
            request.set_name = members  # type: ignore[attr-defined]
            getattr(stub, name)(request, timeout=60)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_reads_the_nightly_units(tmp_path: Path) -> None:
    """Without a complaint."""
    for unit in (EXAMPLES / "nightly").glob("veilset-nightly@.*"):
        text = unit.read_text().replace("/opt/veilset/bin/nightly.sh", str(EXAMPLES / "nightly" / "nightly.sh"))
        (tmp_path / unit.name).write_text(text)
    units = [tmp_path / f"veilset-nightly@customers.{kind}" for kind in ("service", "timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.examples
@pytest.mark.skipif(
    not all(map(shutil.which, ("javac", "protoc", "grpc_java_plugin"))) or not Path(JARS, "grpc-netty.jar").exists(),
    reason="needs javac, protobuf-compiler, protobuf-compiler-grpc-java-plugin and libgrpc-java of Debian",
)
def test_java_producer_adds_its_lines(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """Compiled from the protos; two batches, and the same again when it is repeated."""
    protos = [f"veilset/v1/{name}.proto" for name in ("membership", "parameters", "release")]
    plugin = f"--plugin=protoc-gen-grpc-java={shutil.which('grpc_java_plugin')}"
    out = [f"--java_out={tmp_path}", f"--grpc-java_out={tmp_path}"]
    subprocess.run(["protoc", "-I", ROOT / "protos", plugin, *out, *protos], check=True)
    sources = [EXAMPLES / "Producer.java", *(tmp_path / "veilset" / "v1").glob("*.java")]
    subprocess.run(["javac", "-nowarn", "-cp", f"{JARS}/*", "-d", tmp_path, *sources], check=True)
    lines = [f"user{number}@example.com" for number in range(5000)]
    command = ["java", "-cp", f"{tmp_path}:{JARS}/*", "Producer", service.address, set_name, "upload"]
    with service.connect() as connection:
        create(connection, set_name)
        for _ in range(2):
            done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
            assert done.stdout == "5000 elements held, duplicates included\n"
    assert len(held_digests(service.state, set_name)) == 5000


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 or later on PATH")
@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed: pip install 'veilset[spark]'")
@pytest.mark.timeout(900)
def test_spark_filtering_leaves_the_rows_of_others(service: ServiceProcess, members: str, tmp_path: Path) -> None:
    """By a release that is broadcast to the workers."""
    view = veilset.open(service.redis, members)
    view.save(tmp_path / "members.veilset")
    frame = pl.DataFrame({"id": range(800), "email": MEMBERS + OTHERS})
    frame.write_parquet(tmp_path / "campaign.parquet")
    files = [str(tmp_path / "members.veilset"), str(tmp_path / "campaign.parquet"), "email", str(tmp_path / "kept")]
    settings = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SUBMIT}
    command = [sys.executable, str(EXAMPLES / "spark_filtering.py"), *files]
    subprocess.run(command, check=True, env=environment(settings), capture_output=True)
    kept = pl.read_parquet(tmp_path / "kept" / "*.parquet").sort("id")
    assert kept.equals(frame.filter(~view.contains_many(frame["email"])))
    assert 350 < len(kept) < 450
