"""A service with a hundred sets of a megabyte, killed while uploads were merged: ready again within three seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from harness.fault_tally import Trying
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from harness.vectors import expected_vector, raw_vector

SETS = 100
BITS = 1 << 23
READY_SECONDS = 3.0


@pytest.mark.faults
def test_a_cold_restart_with_a_hundred_sets(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """From the start of the process to its ready line, with a release of each set; nothing acknowledged is lost."""
    redis = start_redis()
    process = start_service("--redis", redis.url, "--keep-releases", "1")
    with process.connect() as service:
        for number in range(SETS):
            service.create_set(
                f"s{number}",
                size=100_000,
                epsilon=3,
                adjacency="add-remove",
                delta=1e-9,
                bits=BITS,
                hashes=1,
            )
            service.add(f"s{number}", [f"{number}-{element}" for element in range(1000)])
            assert service.publish(f"s{number}", request_id="r").state == "published"
    process.kill()
    with trying("cold restart with 100 sets of 1 MiB"):
        started = time.monotonic()
        process.start()
        seconds = time.monotonic() - started
        print(f"\nready after {seconds:.2f} s with {SETS} sets of {BITS >> 23} MiB")
        with process.connect() as service:
            for number in range(SETS):
                elements = [f"{number}-{element}".encode() for element in range(1000)]
                expected = expected_vector(shape_of_set(service.get_set(f"s{number}")), elements)
                assert raw_vector(process.state, f"s{number}") == expected
            assert service.reconcile() == (SETS, 0, ())
        assert seconds < READY_SECONDS
