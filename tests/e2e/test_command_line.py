"""The main job through the command line: real processes, JSON parsed, every input format."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pyarrow.feather
import pyarrow.parquet
import pytest

import veilset as library
from harness.certificates import Certificates
from harness.programs import Finished, environment, veilset
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters
from harness.vectors import expected_vector, raw_vector, redis_content
from veilset.core.params import HashScheme

PROMISE = ("--epsilon", "4", "--delta", "1e-9", "--adjacency", "add-remove")


def elements(first: int, last: int) -> list[str]:
    """Elements ``first`` to ``last - 1``."""
    return [f"user{number}@example.org" for number in range(first, last)]


@pytest.fixture
def run(service: ServiceProcess) -> Callable[..., Finished]:
    """The command line with the shared service's addresses in its environment."""

    def run(*arguments: str | Path | int, stdin: bytes = b"") -> Finished:
        return veilset(
            *arguments, stdin=stdin, settings={"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis}
        )

    return run


def created(answer: dict[str, object]) -> FilterParameters:
    """Shape and hashing of a set from what ``create --json`` prints."""
    bits, hashes, scheme, seed = (answer[name] for name in ("bits", "hashes", "scheme", "seed"))
    assert isinstance(bits, int)
    assert isinstance(hashes, int)
    assert isinstance(seed, int)
    return FilterParameters(bits, hashes, HashScheme(str(scheme)), seed)


def test_every_input_format(
    run: Callable[..., Finished], service: ServiceProcess, set_name: str, tmp_path: Path
) -> None:
    """Lines, gzip, CSV, gzipped TSV, Parquet, Arrow, standard input: all in one vector, and nothing else in it."""
    shape = created(run("create", set_name, "--size", 1000, *PROMISE, "--json").json())
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*elements(0, 100), "", ""]).encode())
    zipped = tmp_path / "zipped.txt.gz"
    zipped.write_bytes(gzip.compress("\n".join(elements(100, 200)).encode()))
    commas = tmp_path / "commas.csv"
    commas.write_text("id,e-mail\n" + "".join(f'{n},"{e}"\n' for n, e in enumerate(elements(200, 300))) + "7,\n")
    tabs = tmp_path / "tabs.tsv.gz"
    tabs.write_bytes(gzip.compress(("e-mail\tid\n" + "".join(f"{e}\t1\n" for e in elements(300, 400))).encode()))
    table = arrow.table({"id": list(range(100)), "e-mail": elements(400, 500)})
    arrow.parquet.write_table(table, tmp_path / "table.parquet", row_group_size=30)
    arrow.feather.write_feather(
        arrow.table({"e-mail": [*elements(500, 600), None]}), tmp_path / "table.arrow", compression="uncompressed"
    )

    added = run("add", set_name, lines, zipped, "--json").json()
    assert (added["set"], added["elements"], added["resumed"]) == (set_name, 200, 0)
    tables = [commas, tabs, tmp_path / "table.parquet", tmp_path / "table.arrow"]
    assert run("add", set_name, *tables, "--column", "e-mail", "--json").json()["elements"] == 400
    assert run("add", set_name, commas, "--column", 2, "--json").json()["elements"] == 101  # a number takes every row
    stdin = "\n".join(elements(600, 700)).encode()
    assert run("add", set_name, "-", "--json", stdin=stdin).json()["elements"] == 100
    expected = [*elements(0, 700), "e-mail"]
    assert raw_vector(service.state, set_name) == expected_vector(shape, [element.encode() for element in expected])


def test_publish_query_and_spend(
    run: Callable[..., Finished], service: ServiceProcess, set_name: str, tmp_path: Path
) -> None:
    """Every command of the job in turn; all that it prints with --json parses and agrees with the library."""
    run("create", set_name, "--size", 500, *PROMISE, "--budget-epsilon", 8, "--json")
    assert set_name in [found["name"] for found in run("sets", "--json").json_lines()]
    stdin = "\n".join(elements(0, 500)).encode()
    uploaded = run("add", set_name, "-", "--upload-id", "mine", stdin=stdin)
    assert (uploaded.code, uploaded.err) == (0, "")
    again = run("add", set_name, "-", "--upload-id", "mine", "--json", stdin=stdin).json()
    assert again == {
        "set": set_name,
        "operation": "add",
        "upload_id": "mine",
        "elements": 500,
        "resumed": 0,
        "invalid": 0,
    }

    published = run("publish", set_name, "--request-id", "r", "--json").json()
    assert (published["sequence"], published["state"], published["epsilon"]) == (1, "published", 4.0)
    assert run("publish", set_name, "--request-id", "r", "--json").json() == published
    releases = run("releases", set_name, "--json").json_lines()
    assert releases == [published]
    budget = run("budget", set_name, "--json").json()
    assert (budget["epsilon_spent"], budget["epsilon_left"], budget["delta_total"]) == (4.0, 4.0, "2e-9")
    raised = run("budget", set_name, "--raise-epsilon", 12, "--reason", "agreed on", "--json").json()
    assert raised["epsilon_total"] == 12.0
    changes = [(change["epsilon"], change["delta"], change["reason"]) for change in raised["changes"]]
    assert changes == [(8.0, "2e-9", "account made"), (12.0, "2e-9", "agreed on")]
    assert re.search(r"^20\d\d-\S+\+00:00  total: ε 12, δ 2e-9  agreed on$", run("budget", set_name).out, re.M)

    saved = tmp_path / "release.veilset"
    fetched = run("fetch", set_name, "-o", saved, "--public-key", service.public_key, "--json").json()
    assert fetched == {"set": set_name, "sequence": 1, "file": str(saved), "bytes": saved.stat().st_size}
    view = library.open(saved)
    assert raw_release(service.redis, set_name) == view.vector.tobytes()

    with_reconcile = run("reconcile", set_name, "--json").json()
    assert with_reconcile == {"checked": 1, "restored_keys": 0, "unrestorable": []}
    assert run("delete", set_name, "--yes", "--json").json() == {"deleted": set_name}
    assert run("budget", "--account", set_name, "--json").json()["epsilon_spent"] == 4.0
    assert set_name not in [found["name"] for found in run("sets", "--json").json_lines()]


def test_queries(
    run: Callable[..., Finished],
    veilset_here: Callable[..., Finished],
    service: ServiceProcess,
    set_name: str,
    tmp_path: Path,
) -> None:
    """Arguments, files, standard input, a saved release, scores, a summary, exit codes, limits: as the library answers."""
    with service.connect() as connection:
        connection.create_set(set_name, size=500, epsilon=4, delta=1e-9, adjacency="add-remove")
        connection.add(set_name, elements(0, 500))
        connection.publish(set_name)
    view = library.open(service.redis, set_name)
    saved, listed = tmp_path / "release.veilset", tmp_path / "asked.txt"
    view.save(saved)
    asked = elements(490, 510)
    members = view.contains_many(asked)
    listed.write_text("\n".join(asked[1:]))
    plain = run("query", set_name, "--from", "-", "--release", saved, stdin="\n".join(asked).encode())
    assert plain.out.splitlines() == [
        f"{'yes' if found else 'no'}\t{e}" for e, found in zip(asked, members, strict=True)
    ]

    def query(*arguments: str | Path) -> Finished:
        return veilset_here("query", set_name, *arguments, settings={"VEILSET_REDIS": service.redis})

    answers = query(asked[0], "--from", listed, "--scores", "--json").json_lines()
    assert [answer["element"] for answer in answers] == asked
    assert [answer["member"] for answer in answers] == members.tolist()
    assert [answer["score"] for answer in answers] == view.scores(asked).tolist()
    assert query("--from", listed, "--summary", "--json").json() == {
        "asked": 19,
        "members": int(members[1:].sum()),
        "invalid": 0,
        "true_positive_rate": view.decoder.true_positive_rate,
        "false_positive_rate": view.decoder.false_positive_rate,
    }
    member, other = (next(e for e in elements(0, 2000) if (e in view) is found) for found in (True, False))
    assert query(member, "--exit-code").code == 0
    assert query(member, other, "--exit-code").code == 3
    assert query(member, other, "--exit-code", "--summary").code == 3
    strict = query(member, "--threshold-fpr", "0.2", "--summary", "--json").json()
    assert strict["false_positive_rate"] <= 0.2


def raw_release(url: str, set_name: str) -> bytes:
    """The first chunk of the first release as Redis holds it."""
    return redis_content(url)[f"veilset:{set_name}:1:bits:0"]


@pytest.mark.parametrize("kind", ["password", "TLS"])
def test_the_job_with_a_redis_of_ones_own(
    kind: str,
    start_service: Callable[..., ServiceProcess],
    start_redis: Callable[..., RedisServer],
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    """The URL, with its password or its authority's certificate, comes from a file or the environment."""
    server = start_redis(password="s3cret") if kind == "password" else start_redis(certificates=certificates)  # noqa: S106
    url_file = tmp_path / "url"
    url_file.write_text(server.url + "\n")
    service = start_service("--redis-file", url_file)
    settings = {"VEILSET_SERVER": service.address, "VEILSET_REDIS": server.url}
    veilset("create", "members", "--size", 500, *PROMISE, "--json", settings=settings).json()
    veilset("add", "members", "-", "--json", stdin="\n".join(elements(0, 500)).encode(), settings=settings).json()
    assert veilset("publish", "members", "--json", settings=settings).json()["state"] == "published"
    answers = veilset("query", "members", *elements(0, 20), "--json", settings=settings).json_lines()
    view = library.open(server.url, "members")
    assert [answer["member"] for answer in answers] == view.contains_many(elements(0, 20)).tolist()


def test_an_interrupted_reader_is_no_error(
    run: Callable[..., Finished], service: ServiceProcess, set_name: str, tmp_path: Path
) -> None:
    """``veilset … | head`` ends without a word when the pipe breaks."""
    run("create", set_name, "--size", 500, *PROMISE)
    run("add", set_name, "-", stdin=b"someone")
    run("publish", set_name)
    asked = tmp_path / "asked.txt"
    asked.write_text("\n".join(elements(0, 200_000)))
    command = [sys.executable, "-m", "veilset", "query", set_name, "--from", str(asked), "--redis", service.redis]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.close()
        assert reader.stderr.read() == b""
    assert reader.returncode == 1
