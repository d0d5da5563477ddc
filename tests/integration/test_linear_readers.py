"""A linear release read in every way: in memory, in place in Redis, from a cache, by asyncio, and what it cannot show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import veilset
from harness.programs import Finished
from harness.redis_releases import publish
from harness.redis_server import RedisServer
from harness.releases import PUBLIC_KEY, linear_parameters, release_bytes
from harness.shapes import FilterParameters
from veilset.core import compiled
from veilset.core.elements.hashing import digests
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.encodings.linear.rows import piece_bytes, pieces
from veilset.errors import NotComparable, PoorUtility, Unsupported

SEED = FilterParameters(64, 1, seed=5)
MEMBERS = [f"user{number}" for number in range(4000)]
OTHERS = [f"other{number}" for number in range(4000)]
ASKED = MEMBERS[:300] + OTHERS[:300]
LONG = linear_parameters(3_000_000, 3.0)
"""Of two chunks."""


def linear(capacity: int = 4000, elements: list[str] = MEMBERS, epsilon: float = 3.0, **more: object) -> bytes:
    return release_bytes(elements, SEED, epsilon, encoding=linear_parameters(capacity, epsilon), **more)  # type: ignore[arg-type]


def test_answers_scores_and_posteriors_are_those_of_the_law() -> None:
    view = veilset.open(linear())
    yes = view.contains_many(MEMBERS)
    assert abs(yes.mean() - view.decoder.true_positive_rate) < 6 * math.sqrt(0.047 * 0.953 / len(MEMBERS))
    assert abs(view.contains_many(OTHERS).mean() - 1 / 16) < 6 * math.sqrt(15 / 256 / len(OTHERS))
    assert [element in view for element in ASKED] == view.contains_many(ASKED).tolist()
    scores = view.scores(MEMBERS)
    assert set(scores.tolist()) == set(view.decoder.law.scores.tolist())
    assert np.array_equal(scores > 0, yes)
    assert max(abs(scores)) <= 3.0 + 1e-9  # no answer moves the odds by more than e^ε
    one = int(np.flatnonzero(yes)[0])
    check = view.check(MEMBERS[one], prior=0.5)
    assert check.member
    assert check.posterior == pytest.approx(1 / (1 + math.exp(-scores[one])))
    kept = view.filter(ASKED)
    assert kept == [element for element, lost in zip(ASKED, view.contains_many(ASKED), strict=True) if not lost]
    with pytest.raises(PoorUtility, match="smallest possible"):
        view.filter(ASKED, max_false_positive_rate=0.01)


@pytest.mark.parametrize("load", [True, False], ids=["kernels", "numpy"])
def test_kernels_and_numpy_answer_alike(load: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not load:
        monkeypatch.setattr("veilset.core.encodings.linear.rows.kernels", lambda _: None)
    assert compiled.load() is not None
    view = veilset.open(linear())
    assert view.contains_many(ASKED).tolist() == [element in view for element in ASKED]


def test_overlap_of_a_list_is_found_and_a_comparison_is_refused() -> None:
    view = veilset.open(linear())
    found = view.overlap(MEMBERS[2000:] + OTHERS)
    assert found.low <= 2000 + 250
    assert found.high >= 2000 - 250
    assert abs(found.estimate - 2000) < 6 * math.sqrt(2000 * 0.045 + 4000 * 0.0586) / 0.89
    other = veilset.open(linear(elements=OTHERS, name="others"))
    with pytest.raises(Unsupported, match=r"compare each with a list by overlap.*encoding bloom"):
        view.compare(other)
    bloom = veilset.open(release_bytes(MEMBERS, FilterParameters(80_000, 1, seed=5), 3.0))
    with pytest.raises(NotComparable, match="encoding"):
        view.compare(bloom)
    with pytest.raises(Unsupported, match="noisy count"):
        view.size()


def test_a_statement_assumes_nothing_of_the_hash() -> None:
    statement = veilset.open(linear()).statement
    assert statement.delta == 0
    assert "assuming nothing about the hash" in str(statement)


def test_a_release_that_holds_too_much_says_so(veilset_here: Callable[..., Finished], tmp_path: Path) -> None:
    """Made for 1,000, holds 4,000: every answer would be yes."""
    view = veilset.open(linear(capacity=1000))
    assert view.decoder.saturated
    assert not view.contains_many(ASKED).any()
    assert not view.scores(ASKED).any()
    assert view.overlap(ASKED).interval == (0, len(ASKED))
    path = tmp_path / "full.veilset"
    view.save(path)
    said = veilset_here("query", "members", "anybody", "--release", path)
    assert "saturated" in said.err
    assert veilset_here("inspect", "members", "--release", path, "--json").json()["saturated"] is True


def test_in_place_answers_are_those_of_the_downloaded_release(valkey_url: str, set_name: str) -> None:
    publish(valkey_url, release_bytes(MEMBERS, SEED, 3.0, name=set_name, encoding=LONG))
    view = veilset.open(valkey_url, set_name)
    assert len(view.vector) > CHUNK_BYTES
    across = row_across_chunks()
    with veilset.remote(valkey_url, set_name, public_keys=[PUBLIC_KEY]) as remote:
        asked = [*ASKED, *across]
        assert remote.contains_many(asked).tolist() == view.contains_many(asked).tolist()
        assert remote.scores(asked).tolist() == view.scores(asked).tolist()
        assert [element in remote for element in across] == [element in view for element in across]


def test_one_read_in_place_is_one_range(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    """Of (128 + 64)·planes bits; two where the row lies across two chunks."""
    server = start_redis()
    publish(server.url, release_bytes(MEMBERS, SEED, 3.0, name=set_name, encoding=LONG))
    with veilset.remote(server.url, set_name) as remote:
        for asked, reads in ((["anybody"], 1), (row_across_chunks()[:1], 2)):
            server.command("CONFIG", "RESETSTAT")
            remote.contains_many(asked)
            calls = {name: found["calls"] for name, found in server.command("INFO", "commandstats").items()}
            assert calls["cmdstat_getrange"] == reads
            assert not {"cmdstat_get", "cmdstat_getbit", "cmdstat_bitcount"} & set(calls)
    assert piece_bytes(LONG) == (128 + 64) * LONG.planes // 8


def row_across_chunks() -> list[str]:
    """Elements whose piece of the long vector begins in one chunk and ends in the next."""
    candidates = [f"c{number}" for number in range(400_000)]
    offsets, _ = pieces(LONG, digests([element.encode() for element in candidates], SEED.scheme, SEED.seed))
    first, last = offsets // CHUNK_BYTES, (offsets + piece_bytes(LONG) - 1) // CHUNK_BYTES
    found = [candidates[index] for index in np.flatnonzero(first != last)]
    assert found
    return found


def test_cache_and_asyncio_answer_alike(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    publish(valkey_url, linear(name=set_name))
    view = veilset.open(valkey_url, set_name)
    cached = veilset.open(valkey_url, set_name, cache_dir=tmp_path)
    assert cached.contains_many(ASKED).tolist() == view.contains_many(ASKED).tolist()
    assert veilset.open(valkey_url, set_name, cache_dir=tmp_path).header == view.header

    async def ask() -> list[bool]:
        opened = await veilset.aio.open(valkey_url, set_name)
        return list(map(bool, opened.contains_many(ASKED)))

    assert asyncio.run(ask()) == view.contains_many(ASKED).tolist()
    with veilset.follow(valkey_url, set_name) as follower:
        assert follower.view.contains_many(ASKED).tolist() == view.contains_many(ASKED).tolist()
