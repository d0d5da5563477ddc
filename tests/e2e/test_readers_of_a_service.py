"""Readers of a running service: what it publishes reaches them, and its columns reach it."""

from __future__ import annotations

import ast
import asyncio
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import veilset
from harness.programs import veilset as run
from harness.programs import wait_until
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector
from veilset.errors import InvalidInput

PAGE = (Path(__file__).parents[2] / "docs" / "readers.md").read_text()
MEMBERS = [f"member{i}@example.org" for i in range(3000)]


def create(service: veilset.Service, name: str) -> veilset.Service:
    """A set whose budget lasts for four releases."""
    service.create_set(name, size=3000, epsilon=4, delta=1e-9, adjacency="add-remove", budget_epsilon=16)
    return service


def test_a_publish_reaches_every_kind_of_reader(service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """Followers by announcement; an open view and a remote one stay with their release."""
    pinned = {"public_keys": [service.public_key]}
    with service.connect() as connection:
        create(connection, set_name).add(set_name, MEMBERS[:1000])
        connection.publish(set_name)
        first = veilset.open(service.redis, set_name, cache_dir=tmp_path, **pinned)  # type: ignore[arg-type]
        assert first.age_seconds < 3600

        async def follow() -> None:
            async with veilset.aio.follow(service.redis, set_name, poll_seconds=86_400, **pinned) as other:  # type: ignore[arg-type]
                await asyncio.to_thread(connection.publish, set_name)
                await asyncio.to_thread(wait_until, lambda: other.sequence == 2)

        with (
            veilset.follow(service.redis, set_name, poll_seconds=86_400, cache_dir=tmp_path, **pinned) as follower,  # type: ignore[arg-type]
            veilset.remote(service.redis, set_name, **pinned) as remote,  # type: ignore[arg-type]
        ):
            asyncio.run(follow())
            wait_until(lambda: follower.sequence == 2)
            assert follower.last_error is None
            assert follower.age_seconds < 3600
            assert (first.header.sequence, remote.header.sequence) == (1, 1)
            assert remote.scores(MEMBERS[:50]).tolist() == first.scores(MEMBERS[:50]).tolist()
        newest = veilset.open(service.redis, set_name)
        assert follower.contains_many(MEMBERS).tolist() == newest.contains_many(MEMBERS).tolist()
        assert sorted(path.name for path in tmp_path.rglob("*.veilset")) == ["1.veilset", "2.veilset"]


def test_the_page_about_readers_works_as_it_stands(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/readers.md: its code, and its command lines but the endless one, with this test's addresses and key."""
    monkeypatch.chdir(tmp_path)
    with service.connect() as connection:
        create(connection, "customers").add("customers", MEMBERS)
        connection.publish("customers")
        key = b"k" * 32
        (tmp_path / "our.secret").write_bytes(key)
        spec = veilset.Spec.plan(size=3000, epsilon=4, adjacency="add-remove", scheme="blake2b-1", key=key)
        spec.save(tmp_path / "partners.toml")
        connection.create_set_from_spec("ours", spec)
        connection.add("ours", MEMBERS, key=key)
        connection.publish("ours")
        code, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        assert code.count("redis://localhost:16379/0") == code.count("PUBLIC_KEY") == 1
        code = code.replace("redis://localhost:16379/0", service.redis).replace("PUBLIC_KEY", service.public_key)
        names: dict[str, object] = {"asyncio": asyncio, "long_list": MEMBERS, "service": connection}
        exec(code, names)  # noqa: S102 - our own page
        for other in others:
            awaited = eval(compile(other, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
            if awaited is not None:
                asyncio.run(awaited)
        assert len(others) == 5
        assert (tmp_path / "overlap.png").stat().st_size > 10_000
        assert isinstance(names["known"], bool)
        assert len(names["many"]) == len(MEMBERS)  # type: ignore[arg-type]
        assert isinstance(names["view"], veilset.View)
        (tmp_path / "list.txt").write_text("alice@example.com\n")
        (tmp_path / "people.csv").write_text("id,e-mail\n1,a@example.com\n2,\n")
        (tmp_path / "export.csv").write_text("1;a@example.com\n")
        (tmp_path / "redis.url").write_text(service.redis + "\n")
        (block,) = re.findall(r"## On the command line\n\n((?:    .*\n)+)", PAGE)
        lines = [line.split(" #")[0].strip() for line in block.splitlines()]
        ran = [line for line in lines if line.startswith("veilset ")]
        assert len(ran) == len(lines) - 1 == 5
        for line in ran:
            arguments = shlex.split(line.replace("URL", service.redis).replace("HEX", service.public_key))[1:]
            done = run(*arguments, cwd=tmp_path)
            skipped = "veilset: 1 empty line, row or value skipped\n" if "people.csv" in line else ""
            assert (done.code, done.err) == (0, skipped), line
        connection.delete_set("customers")
        connection.delete_set("ours")


COLUMNS: dict[str, Callable[[list[str]], object]] = {
    "numpy": np.array,
    "numpy objects": lambda texts: np.array(texts, dtype=object),
    "pandas": pd.Series,
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunks": lambda texts: pa.chunked_array([texts[:700], texts[700:]]),
}


def test_columns_are_added_as_they_are(service: ServiceProcess, set_name: str) -> None:
    """Each library's column gives the bits of the list; one with a null gives none."""
    with service.connect() as connection:
        info = create(connection, set_name).get_set(set_name)
        for number, make in enumerate(COLUMNS.values()):
            own = MEMBERS[number * 400 : number * 400 + 800]
            assert connection.add(set_name, make(own)).elements == len(own)  # type: ignore[arg-type]
        added = [element.encode() for element in MEMBERS[: 400 * (len(COLUMNS) + 1)]]
        before = raw_vector(service.state, set_name)
        assert before == expected_vector(shape_of_set(info), added)
        for make in COLUMNS.values():
            if make is not np.array:  # which has no nulls
                with pytest.raises(InvalidInput, match="index 2, a null"):
                    connection.add(set_name, make([*MEMBERS[-2:], None]))  # type: ignore[arg-type, list-item]
        for table in (pd.DataFrame({"a": MEMBERS}), pl.DataFrame({"a": MEMBERS}), pa.table({"a": MEMBERS})):
            with pytest.raises(InvalidInput, match="one column, not a table"):
                connection.add(set_name, table)  # type: ignore[arg-type]
        assert raw_vector(service.state, set_name) == before
