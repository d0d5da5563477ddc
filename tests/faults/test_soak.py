"""Mixed load for half an hour on two services of real processes: one whose Redis is killed, emptied and stopped, and whose own
process has to hold the same at the end as after its warm-up; one that is ended, killed and started again as well. After
each fault all must hold that the fault suite asks. SOAK_MINUTES sets the length.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from soak_load import Load
from soak_watch import Growth, Watch, by_tenths, growth
from stricken import stricken

from harness.programs import unused_port
from harness.redis_server import RedisServer

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
OPTIONS = ("--metrics-port", "0", "--redis-timeout-seconds", "2")
REST_SECONDS = 15.0
HANG_SECONDS = 4.0

pytestmark = pytest.mark.soak


def redis_killed(load: Load) -> None:
    """And started again, empty."""
    redis = load.service.redis
    os.kill(redis.pid, signal.SIGKILL)
    redis.stop()
    time.sleep(1.0)
    redis.start()


def redis_flushed(load: Load) -> None:
    """All keys gone."""
    load.service.redis.command("FLUSHALL")


def redis_hung(load: Load) -> None:
    """It answers nothing for a while."""
    os.kill(load.service.redis.pid, signal.SIGSTOP)
    time.sleep(HANG_SECONDS)
    os.kill(load.service.redis.pid, signal.SIGCONT)


def service_killed(load: Load) -> None:
    """SIGKILL, whatever it was at; nothing visible that was not charged; started again."""
    load.service.process.kill()
    load.service.check_dead()
    load.service.process.start()


def service_ended(load: Load) -> None:
    """SIGTERM; it ends with 0; started again."""
    load.service.process.stop()
    load.service.check_dead()
    load.service.process.start()


OF_REDIS = (redis_killed, redis_flushed, redis_hung)
OF_SERVICE = (service_killed, service_ended)


@contextmanager
def loaded(folder: Path, start_redis: Callable[..., RedisServer], name: str, *, steady: bool) -> Iterator[Load]:
    """A service with its Redis and its load."""
    folder.mkdir()
    with (
        stricken(folder, lambda: start_redis(f"{name}-redis"), *OPTIONS, port=unused_port()) as service,
        Load(service, name, steady=steady).running() as load,
    ):
        yield load


@pytest.mark.timeout(MINUTES * 60 + 600)
def test_soak(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> None:
    """The whole of it; prints what was done and what was held."""
    tried: Counter[str] = Counter()
    with ExitStack() as stack:
        steady = stack.enter_context(loaded(tmp_path / "steady", start_redis, "steady", steady=True))
        struck = stack.enter_context(loaded(tmp_path / "struck", start_redis, "struck", steady=False))
        watch = stack.enter_context(Watch(steady.service.process.pid).running())
        deadline = time.monotonic() + MINUTES * 60
        faults = zip(itertools.cycle(OF_REDIS), itertools.cycle((*OF_SERVICE, *OF_REDIS)), strict=False)
        for on_steady, on_struck in faults:
            if time.monotonic() > deadline or steady.failures or struck.failures:
                break
            time.sleep(REST_SECONDS)
            for load, fault in ((steady, on_steady), (struck, on_struck)):
                fault(load)
                tried[f"{load.name}: {fault.__name__}"] += 1
            time.sleep(2.0)
            settle(steady)
            watch.sample(idle=True)
            settle(struck)
        found = growth(watch.after(min(300.0, MINUTES * 60 / 4)))
    report(tried, steady, struck, found)
    print("  anonymous memory by tenths of the time, MiB:", *(f"{m:.1f}" for m in by_tenths(watch.samples)))
    assert steady.failures + struck.failures == []
    assert found.complaints() == []


def settle(load: Load) -> None:
    """Hold the load, and look whether all that must hold does."""
    with load.paused():
        load.service.check_alive()
        load.done["checks of all invariants"] += 1


def report(tried: Counter[str], steady: Load, struck: Load, found: Growth) -> None:
    """The summary."""
    lines = [f"soak of {MINUTES:g} minutes", *(f"  {fault}: {count}" for fault, count in sorted(tried.items()))]
    for load in (steady, struck):
        lines.append(f"{load.name} service")
        lines += [f"  {what}: {count}" for what, count in sorted(load.done.items())]
        half, nearly_all = np.quantile(load.answer_seconds, [0.5, 0.99])
        lines += [f"  a question takes {1000 * half:.0f} ms, and {1000 * nearly_all:.0f} ms in one case of a hundred"]
    lines.append("steady service, first and last third behind the warm-up")
    lines += [f"  {name}: {a / 2**20:.1f} -> {b / 2**20:.1f} MiB" for name, (a, b) in memory(found)]
    lines += [f"  descriptors, idle: {found.descriptors[0]:g} -> {found.descriptors[1]:g}"]
    lines += [f"  threads, idle: {found.threads[0]:g} -> {found.threads[1]:g}"]
    print("\n" + "\n".join(lines))


def memory(found: Growth) -> list[tuple[str, tuple[float, float]]]:
    """The two kinds, by name."""
    return [("resident memory", found.resident), ("anonymous memory", found.anonymous)]
