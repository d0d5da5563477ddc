"""Odd files at the command line: the same elements for every command, one sentence for what is refused, and output that obeys."""

from __future__ import annotations

import http.server
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.programs import Finished, environment, unused_port, veilset
from harness.releases import release_bytes
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters
from veilset.core.params import Normalization

CASES = Path(__file__).parent.parent / "data" / "inputs"
PEOPLE = ["alice@example.com", "bob@example.com", "carol@example.com"]
EMAIL = ("--column", "email")
PROMISE = ("--size", "500", "--epsilon", "4", "--adjacency", "add-remove", "--delta", "1e-9")
READ = {
    "trailblank.csv": (EMAIL, PEOPLE, "1 empty line, row or value skipped"),
    "nulls.csv": (EMAIL, ["\\N", "NULL", PEOPLE[0]], "warning: 2 elements look like missing values"),
    "pgdump.tsv": (
        (*EMAIL, "--delimiter", "\\t", "--no-quotes"),
        [PEOPLE[0], '"bob@example.com', PEOPLE[2], "dave@example.com"],
        "",
    ),
    "utf16le.txt": (("--encoding", "utf-16"), PEOPLE, ""),
    "multi.txt.gz": ((), PEOPLE[:2], ""),
    "list.txt.xz": ((), PEOPLE, ""),
    "plcat.arrow": (EMAIL, PEOPLE, ""),
    "forge.csv": (EMAIL, ["x\nyes\tadmin@example.com"], ""),
}
REFUSED = {
    "dup.arrow": (EMAIL, "columns 1 and 2"),
    "dup.parquet": (EMAIL, "columns 1 and 2"),
    "dupheader.csv": (EMAIL, "columns 1 and 2"),
    "unclosed.csv": (EMAIL, "line 3 that is never closed"),
    "pgdump.tsv": (EMAIL, "--no-quotes"),
    "ragged.csv": (EMAIL, "line 2"),
    "oldmac.txt": ((), "carriage return"),
    "utf16le.txt": ((), "--encoding utf-16"),
    "list.zip": ((), "zip archive"),
    "nested.parquet": (("--column", "contact"), "struct"),
}


@pytest.fixture(scope="module")
def sets(service: ServiceProcess) -> tuple[str, str]:
    """One that takes elements as they are, and one of addresses."""
    for name, normalization in (("odd-plain", "none"), ("odd-email", "email")):
        done = veilset("create", name, *PROMISE, "--normalization", normalization, "--server", service.address)
        assert done.code == 0, done
    return "odd-plain", "odd-email"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A release of each kind, for queries."""
    folder, shape = tmp_path_factory.mktemp("releases"), FilterParameters(8192, 2, seed=5)
    paths = folder / "plain", folder / "email"
    for path, normalization in zip(paths, (Normalization.NONE, Normalization.EMAIL), strict=True):
        path.write_bytes(release_bytes(PEOPLE, shape, 30.0, normalization=normalization))
    return paths


@pytest.mark.parametrize("case", READ)
def test_every_command_reads_the_same(
    case: str,
    sets: tuple[str, str],
    releases: tuple[Path, Path],
    service: ServiceProcess,
    veilset_here: Callable[..., Finished],
) -> None:
    """And says on standard error what it skipped or doubts."""
    options, elements, said = READ[case]
    path, read_from = str(CASES / case), ("--release", str(releases[0]))
    added = veilset_here("add", sets[0], path, *options, "--json", "--server", service.address)
    asked = veilset_here("query", "members", "--from", path, *options, "--json", *read_from)
    shared = veilset_here("overlap", "members", path, *options, "--json", *read_from)
    assert added.json()["elements"] == shared.json()["own_size"] == len(elements)
    assert [answer["element"] for answer in asked.json_lines()] == elements
    for done in (added, asked, shared):
        assert said in done.err
        assert done.err.count("\n") == bool(said)


@pytest.mark.parametrize("case", REFUSED)
def test_every_command_refuses_the_same(
    case: str,
    sets: tuple[str, str],
    releases: tuple[Path, Path],
    service: ServiceProcess,
    veilset_here: Callable[..., Finished],
) -> None:
    """In one line that names the file or the column, and what to do."""
    options, words = REFUSED[case]
    path, read_from = str(CASES / case), ("--release", str(releases[0]))
    for done in (
        veilset_here("add", sets[0], path, *options, "--server", service.address),
        veilset_here("query", "members", "--from", path, *options, *read_from),
        veilset_here("overlap", "members", path, *options, *read_from),
    ):
        assert (done.code, done.err.count("\n")) == (2, 1)  # a query has answered the rows before by then
        assert words in done.err
        assert case in done.err


@pytest.mark.parametrize("case", ["multi.txt.gz", "list.txt.xz", "trailblank.csv"])
def test_standard_input_is_read_like_the_file(case: str, sets: tuple[str, str], service: ServiceProcess) -> None:
    """Packed or not."""
    options, elements, _ = READ[case]
    form = ("--format", "csv") if case.endswith(".csv") else ()
    content = (CASES / case).read_bytes()
    done = veilset("add", sets[0], "-", *options, *form, "--json", "--server", service.address, stdin=content)
    assert done.json()["elements"] == len(elements)


def test_invalid_elements_are_named_skipped_or_answered(
    sets: tuple[str, str], releases: tuple[Path, Path], service: ServiceProcess, veilset_here: Callable[..., Finished]
) -> None:
    """`add` and `overlap` refuse them all, with their lines, or skip them; `query` answers `invalid` and goes on."""
    path, read_from = str(CASES / "bad-addresses.txt"), ("--release", str(releases[1]))
    refused = [
        veilset_here("add", sets[1], path, "--server", service.address),
        veilset_here("overlap", "members", path, *read_from),
    ]
    for done in refused:
        assert f"{path}, line 2; {path}, line 4" in done.complaint()
        assert "not an address" not in done.err
    added = veilset_here("add", sets[1], path, "--skip-invalid", "--json", "--server", service.address)
    shared = veilset_here("overlap", "members", path, "--skip-invalid", "--json", *read_from)
    assert (added.json()["elements"], added.json()["invalid"], shared.json()["own_size"]) == (3, 2, 3)
    assert added.err == shared.err == "veilset: 2 invalid elements skipped\n"
    asked = veilset_here("query", "members", "--from", path, "--posterior", "0.5", *read_from)
    answers = [line.split("\t") for line in asked.out.splitlines()]
    assert [(answer[0], answer[-1]) for answer in answers] == [
        ("yes", PEOPLE[0]), ("invalid", "not an address"), ("yes", PEOPLE[1]), ("invalid", "@example.com"), ("yes", PEOPLE[2])
    ]  # fmt: skip
    assert [len(answer) for answer in answers] == [3] * 5
    summary = veilset_here("query", "members", "--from", path, "--summary", "--json", *read_from).json()
    assert (summary["asked"], summary["members"], summary["invalid"]) == (5, 3, 2)
    assert veilset_here("query", "members", "--from", path, "--exit-code", *read_from).code == 3


def test_ten_invalid_elements_are_named_and_the_rest_counted(
    sets: tuple[str, str], service: ServiceProcess, tmp_path: Path, veilset_here: Callable[..., Finished]
) -> None:
    """Far behind the first message too, from standard input as well."""
    lines = [f"user{number}@example.com" if number % 4000 else "nobody" for number in range(60_000)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    done = veilset_here("add", sets[1], str(tmp_path / "list.txt"), "--server", service.address)
    assert done.complaint().endswith(f"list.txt, line 36001), and {15 - 10} more")
    piped = veilset("add", sets[1], "-", "--server", service.address, stdin="\n".join(lines).encode())
    assert "standard input, line 4001" in piped.complaint()
    assert piped.complaint().endswith("and 5 more")


def test_an_empty_file_empties_no_set_by_mistake(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """A failed export leaves a header at most; the content stays unless that is asked for."""
    (tmp_path / "list.csv").write_text("id,email\n1,\n")
    where = ("--server", service.address)
    assert veilset("create", set_name, *PROMISE, *where).code == 0
    options = (set_name, tmp_path / "list.csv", *EMAIL, *where)
    assert veilset("add", *options).out.startswith("added 0 elements")
    assert "--allow-empty" in veilset("replace", *options).complaint()
    assert veilset("replace", *options, "--allow-empty").out.startswith("0 elements")


# Output


def test_answers_stay_on_their_line(releases: tuple[Path, Path], tmp_path: Path) -> None:
    """Whatever is in an element: line ends, tabs, escape sequences, backslashes, right-to-left marks."""
    elements = ["x\nyes\tadmin@example.com", "\x1b[2J\x07", "back\\slash", "a\u202eb", "müller", "\x85\u2028"]
    (tmp_path / "list.csv").write_text("e\n" + "".join(f'"{element}"\n' for element in elements), newline="")
    done = veilset("query", "members", "--from", tmp_path / "list.csv", "--column", "e", "--release", releases[0])
    shown = [line.split("\t", 1) for line in done.out.split("\n")[:-1]]
    assert [answer for answer, _ in shown] == ["no"] * len(elements)
    assert [text.encode().decode("unicode_escape") if "\\" in text else text for _, text in shown] == elements
    assert all(text.isprintable() for _, text in shown)


def _run(
    *arguments: str, streams: str = "", settings: dict[str, str] | None = None, flags: tuple[str, ...] = ()
) -> Finished:
    """In a shell that closes or redirects descriptors."""
    command = " ".join(["exec", sys.executable, *flags, "-m", "veilset", *arguments, streams])
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, env=environment(settings or {}), timeout=60, check=False
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_an_output_that_cannot_hold_a_character(releases: tuple[Path, Path]) -> None:
    """It is escaped there."""
    asked = ("query", "members", "müller@example.com", "ж", "--release", str(releases[0]))
    done = _run(*asked, settings={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.err) == (0, "")
    assert done.out == "no\tm\\xfcller@example.com\nno\t\\u0436\n"


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        (">&-", 2, "standard output is closed"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("<&- >&- 2>&-", 2, ""),
        (">/dev/full", 1, "No space left"),
    ],
)
def test_closed_streams_bring_no_traceback(closed: str, code: int, said: str, releases: tuple[Path, Path]) -> None:
    done = _run("query", "members", "alice@example.com", "--release", str(releases[0]), streams=closed)
    assert done.code == code
    assert said in done.err
    assert done.err.count("\n") == bool(said)
    assert "Traceback" not in done.err


def test_closed_standard_input_is_named(releases: tuple[Path, Path]) -> None:
    done = _run("query", "members", "--from", "-", "--release", str(releases[0]), streams="<&-")
    assert "standard input, which is closed" in done.complaint()


def test_bytes_and_text_are_never_compared(releases: tuple[Path, Path]) -> None:
    """Under `python -bb` that would be an error."""
    asked = ("query", "members", "--from", str(CASES / "nulls.csv"), *EMAIL)
    listed = ("overlap", "members", str(CASES / "plcat.arrow"), *EMAIL)
    for arguments in (asked, listed):
        done = _run(*arguments, "--release", str(releases[0]), flags=("-bb",))
        assert done.code == 0, done


def test_a_terminal_is_shown_what_answers_are_worth(releases: tuple[Path, Path]) -> None:
    """Beside each; what is piped has no more than the answer and the element."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "veilset", "query", "members", *PEOPLE[:1], "zoe", "--release", str(releases[0])]
    with subprocess.Popen(command, stdout=theirs, env=environment()) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert [line.split("\t")[:2] for line in shown] == [["yes", PEOPLE[0]], ["no", "zoe"]]
    assert shown[0].endswith("% of non-members are answered yes too)")
    assert shown[1].endswith("% of members are answered no too)")


# Network and folders


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that refuses, and what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append(self.path)
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:secret@127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_plain_text_never_goes_through_a_proxy(service: ServiceProcess, proxy: tuple[str, list[str]]) -> None:
    """Nor does this machine's own address."""
    url, asked = proxy
    settings = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), url) | {"no_proxy": "", "no_grpc_proxy": ""}
    for target in (service.address, service.address.replace("127.0.0.1", "localhost")):
        done = veilset("sets", "--server", target, settings=settings)
        assert done.code == 0, done
    done = veilset("sets", "--server", f"tls://localhost:{unused_port()}", settings=settings)
    assert "proxy" not in done.complaint()
    assert asked == []


def test_with_tls_the_proxy_is_named(proxy: tuple[str, list[str]]) -> None:
    """Without its password."""
    url, asked = proxy
    done = veilset("sets", "--server", "tls://veilset.invalid:443", settings={"https_proxy": url, "no_proxy": ""})
    assert f"through the proxy {url.rpartition('@')[2]} that the environment names" in done.complaint()
    assert "secret" not in done.err
    assert asked[0] == "veilset.invalid:443"


@pytest.mark.parametrize("name", ["my data/st", 'it\'s "new"', "ünï", "a#b\\n"])
def test_a_state_folder_of_any_name_works(
    name: str, start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    """With spaces, quotes or other alphabets: the service's own Valkey starts there."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    service = start_service(name=name)
    assert veilset("sets", "--server", service.address).code == 0
    shutil.rmtree(tmp_path / name, ignore_errors=True)


def test_answers_as_json_are_one_line_each(releases: tuple[Path, Path]) -> None:
    """Invalid ones too, as null."""
    done = veilset("query", "members", "a\nb", "", "--json", "--release", releases[0])
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"element": "a\nb", "member": False},
        {"element": "", "member": None, "invalid": True},
    ]
