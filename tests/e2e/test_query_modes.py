"""``veilset query`` and ``overlap`` with a cache, an age limit, bit by bit, following, and with someone watching."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import veilset as library
from harness.programs import Finished, environment
from harness.redis_releases import now_us, point_at, publish
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader.redis_url import parse_redis_url

SHAPE = FilterParameters(16_384, 2, seed=11)
MEMBERS = [f"user{number}" for number in range(1000)]
ASKED = [f"user{number}" for number in range(900, 1100)]
NOBODY = "redis://127.0.0.1:1/0"

Here = Callable[..., Finished]


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """A file of what is asked."""
    path = tmp_path / "asked.txt"
    path.write_text("\n".join(ASKED))
    return str(path)


def put(url: str, name: str, sequence: int = 1, created_at_us: int | None = None) -> None:
    """Publish a release of ``MEMBERS``, made now unless said otherwise."""
    when = now_us() if created_at_us is None else created_at_us
    publish(url, release_bytes(MEMBERS, SHAPE, 4.0, name=name, sequence=sequence, created_at_us=when))


def test_a_cache_answers_while_redis_is_away(
    veilset_here: Here, valkey_url: str, set_name: str, tmp_path: Path, lines: str
) -> None:
    """The same answers, and one line that says what they are from."""
    put(valkey_url, set_name)
    folder = tmp_path / "cache"
    options = ("--from", lines, "--scores", "--public-key", PUBLIC_KEY.hex())
    online = veilset_here("query", set_name, *options, "--redis", valkey_url, "--cache-dir", folder)
    assert (online.code, online.err) == (0, "")
    away = veilset_here("query", set_name, *options, "--redis", NOBODY, settings={"VEILSET_CACHE_DIR": str(folder)})
    assert (away.code, away.out) == (0, online.out)
    assert away.err.startswith(
        f"veilset: warning: Redis: unavailable (ConnectionError) at {parse_redis_url(NOBODY).place}; "
        f"answering from the cached release "
    )
    assert f"{set_name}/1, " in away.err
    both = [
        veilset_here("overlap", set_name, lines, "--redis", url, "--cache-dir", folder, "--json")
        for url in (valkey_url, NOBODY)
    ]
    assert both[0].json() == both[1].json()
    assert "cached release" in both[1].err
    assert "unavailable" in veilset_here("query", set_name, "a", "--redis", NOBODY).complaint()
    put(valkey_url, set_name, 2)
    veilset_here("query", set_name, "a", "--redis", valkey_url, "--cache-dir", folder)
    point_at(valkey_url, set_name, b"1")
    for command in (("query", set_name, "a"), ("overlap", set_name, lines)):
        replayed = veilset_here(*command, "--redis", valkey_url, "--cache-dir", folder)
        assert f"{set_name}/1: older than 2, which was seen" in replayed.complaint()


def test_a_release_may_be_too_old(veilset_here: Here, valkey_url: str, set_name: str, lines: str) -> None:
    put(valkey_url, set_name, created_at_us=now_us() - 2 * 86_400_000_000)
    source = ("--redis", valkey_url, "--from", lines)
    for mode in ((), ("--remote",), ("--follow",)):
        refused = veilset_here("query", set_name, *source, *mode, "--max-age", "36h")
        assert refused.code == 1
        said = rf"release {set_name}/1 is 17\d{{4}} s old; at most 129600 s are allowed"  # two days, and how long this took
        assert re.fullmatch(said, refused.complaint())
        assert veilset_here("query", set_name, *source, *mode, "--max-age", "3d").code == 0
    assert (
        "at most 60 s" in veilset_here("overlap", set_name, lines, "--redis", valkey_url, "--max-age", "1m").complaint()
    )
    for bad in ("soon", "-1", "1w", "1e3", ""):
        refused = veilset_here("query", set_name, *source, "--max-age", bad)
        assert (refused.code, "length of time" in refused.complaint()) == (2, True)
    assert "--max-age" in veilset_here("query", set_name, *source, "--max-age", "0").complaint()


def test_remote_answers_the_same(
    veilset_here: Here, valkey_url: str, set_name: str, tmp_path: Path, lines: str
) -> None:
    """In every form; and the help says what it gives away."""
    put(valkey_url, set_name)
    source = ("--redis", valkey_url, "--from", lines)
    for form in (("--scores", "--posterior", "0.1"), ("--summary", "--json"), ("--threshold-tpr", "0.9"), ("--json",)):
        near = veilset_here("query", set_name, *source, *form)
        far = veilset_here("query", set_name, *source, *form, "--remote")
        assert (far.code, far.out, far.err) == (0, near.out, "")
    assert len(near.out.splitlines()) == len(ASKED)
    help_text = " ".join(veilset_here("query", "--help").out.split())
    assert "Redis then sees what is asked, and its bytes cannot be checked" in help_text
    library.open(valkey_url, set_name).save(tmp_path / "saved")
    refusals = {
        ("--remote", "--cache-dir", str(tmp_path), "--redis", valkey_url): "cache-dir",
        ("--remote", "--follow", "--redis", valkey_url): "remote",
        ("--remote", "--release", str(tmp_path / "saved")): "redis",
        ("--follow", "--release", str(tmp_path / "saved")): "redis",
        ("--follow", "--sequence", "1", "--redis", valkey_url): "sequence",
    }
    for arguments, field in refusals.items():
        refused = veilset_here("query", set_name, "a", *arguments)
        assert (refused.code, refused.complaint().startswith(field)) == (2, True)


def test_following_answers_each_line_as_it_comes(valkey_url: str, set_name: str) -> None:
    """From the release that is the newest then."""
    put(valkey_url, set_name)
    command = [sys.executable, "-m", "veilset", "query", set_name, "--from", "-", "--follow", "--scores"]
    with subprocess.Popen(
        [*command, "--redis", valkey_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None

        def ask(element: str) -> str:
            process.stdin.write(element + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return process.stdout.readline()  # type: ignore[union-attr]

        def answer(view: library.View, element: str) -> str:
            return f"{'yes' if element in view else 'no'}\t{view.scores([element])[0]:+.4f}\t{element}\n"

        first = library.open(valkey_url, set_name)
        assert [ask(element) for element in ASKED[:30]] == [answer(first, element) for element in ASKED[:30]]
        put(valkey_url, set_name, 2)
        second = library.open(valkey_url, set_name)
        changed = next(e for e in ASKED if answer(first, e) != answer(second, e))
        told = ""
        for _ in range(100_000):
            told = ask(changed)
            assert told in (answer(first, changed), answer(second, changed))
            if told == answer(second, changed):
                break
        assert told == answer(second, changed)
        assert ask("x" * 5000) == f"invalid\t-\t{'x' * 5000}\n"
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_for_who_watches(watched: bool, tmp_path: Path) -> None:
    """On standard error where that is a terminal, and nowhere else; standard output has the results either way."""
    release, lines = tmp_path / "release", tmp_path / "lines"
    release.write_bytes(release_bytes(MEMBERS, SHAPE, 4.0))
    lines.write_text("\n".join(ASKED))
    ours, theirs = os.openpty() if watched else os.pipe()
    for command in (["query", "members", "--from", str(lines)], ["overlap", "members", str(lines)]):
        done = subprocess.run(
            [sys.executable, "-m", "veilset", *command, "--release", str(release)],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
            env=environment({"TERM": "xterm", "COLUMNS": "100"}),
        )
        assert len(done.stdout.splitlines()) == (len(ASKED) if command[0] == "query" else 1)
    os.close(theirs)
    said = b""
    while piece := _read(ours):
        said += piece
    os.close(ours)
    assert (b"asking members" in said, b"reading members" in said) == (watched, watched)
    assert watched or said == b""


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # a terminal whose other end is closed
        return b""
