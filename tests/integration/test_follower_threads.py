"""Queries in many threads while releases are swapped: each answer is one release's, whole, and none goes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

import veilset
from harness.programs import wait_until
from harness.redis_releases import publish
from harness.releases import release_bytes
from harness.shapes import FilterParameters

SHAPE = FilterParameters(30_001, 2, seed=11)
MEMBERS = [f"user{number}" for number in range(3000)]
RELEASES = 8
THREADS = 6

ANSWERS: dict[str, Callable[[Any], bytes]] = {
    "contains_many": lambda asked: bytes(asked.contains_many(MEMBERS).tobytes()),
    "scores": lambda asked: bytes(asked.scores(MEMBERS).tobytes()),
    "filter": lambda asked: repr(asked.filter(MEMBERS)).encode(),
    "overlap": lambda asked: repr(astuple(asked.overlap(MEMBERS))).encode(),
}


@pytest.mark.parametrize("cached", [False, True], ids=["memory", "mapped files"])
def test_every_answer_is_of_one_release(cached: bool, valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """The noise of each release is its own, so a mixture of two answers like neither."""
    files = {n: release_bytes(MEMBERS, SHAPE, 3.0, name=set_name, sequence=n) for n in range(1, RELEASES + 1)}
    truth = {name: {ask(veilset.open(data)): n for n, data in files.items()} for name, ask in ANSWERS.items()}
    assert all(len(answers) == RELEASES for name, answers in truth.items() if name != "overlap")
    publish(valkey_url, files[1])
    swapped = threading.Event()
    asked: dict[str, int] = dict.fromkeys(ANSWERS, 0)

    def ask(follower: veilset.Follower) -> str:
        """What went wrong; empty if nothing did."""
        last = 0
        while not swapped.is_set() or last < RELEASES:
            for name, question in ANSWERS.items():
                answer = question(follower)
                if answer not in truth[name]:
                    return f"{name}: an answer of no release"
                asked[name] += 1
                if name == "contains_many":
                    sequence = truth[name][answer]
                    if sequence < last or follower.sequence < sequence:
                        return f"went back from {last} to {sequence}"
                    last = sequence
        return ""

    with (
        veilset.follow(valkey_url, set_name, poll_seconds=0.05, cache_dir=tmp_path if cached else None) as follower,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        asking = [pool.submit(ask, follower) for _ in range(THREADS)]
        for sequence in range(2, RELEASES + 1):
            publish(valkey_url, files[sequence])
            seen = dict(asked)
            wait_until(lambda s=sequence: follower.sequence == s)  # type: ignore[misc]
            wait_until(lambda b=seen: asked["overlap"] > b["overlap"] or any(a.done() for a in asking))  # type: ignore[misc]
        swapped.set()
        assert [answer.result() for answer in asking] == [""] * THREADS


def test_one_view_asked_by_many_threads(valkey_url: str, set_name: str) -> None:
    """A view is never changed; neither is one that is asked bit by bit."""
    data = release_bytes(MEMBERS, SHAPE, 3.0, name=set_name)
    publish(valkey_url, data)
    view = veilset.open(data)
    truth = {name: ask(view) for name, ask in ANSWERS.items()}
    with ThreadPoolExecutor(THREADS) as pool, veilset.remote(valkey_url, set_name) as remote:
        for name, ask in ANSWERS.items():
            assert set(pool.map(ask, [view] * 4 * THREADS)) == {truth[name]}
        asked = pool.map(lambda _: remote.contains_many(MEMBERS[:300]).tolist(), range(2 * THREADS))
        assert list(asked) == [view.contains_many(MEMBERS[:300]).tolist()] * 2 * THREADS
