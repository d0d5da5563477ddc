"""Many hands on the same names, and a Redis that somebody else writes to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

import veilset
from harness.service_process import ServiceProcess
from veilset._service.service import Service
from veilset.errors import VeilsetError

RACE_SECONDS = 4.0
ELEMENTS = [f"member-{number}" for number in range(500)]


def create(service: Service, name: str) -> None:
    service.create_set(name, size=1000, epsilon=1, adjacency="add-remove", budget_epsilon=1)


def test_racing_owners_leave_nothing_of_deleted_sets(start_service: Callable[..., ServiceProcess]) -> None:
    """Create, add and delete one name from many threads: no internal error, no file of a set that is gone, and what a
    call says it made is there until somebody deletes it."""
    process = start_service()
    internal: list[str] = []
    deadline = time.monotonic() + RACE_SECONDS

    def hammer(number: int) -> None:
        with process.connect() as service:
            while time.monotonic() < deadline:
                for step in (
                    lambda: create(service, "contested"),
                    lambda: service.add("contested", ELEMENTS, upload_id=f"upload-{number % 3}"),
                    lambda: service.delete_set("contested"),
                ):
                    try:
                        step()
                    except VeilsetError as error:
                        if error.reason in ("UNKNOWN", "INTERNAL"):
                            internal.append(str(error))

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not internal
    with process.connect() as service:
        with suppress(VeilsetError):
            service.delete_set("contested")
        assert not list(service.list_sets())
    left = [path.name for folder in ("runs", "spools", "artefacts") for path in (process.state / folder).iterdir()]
    assert not left


@pytest.mark.parametrize("kind", ["long number", "list"])
@pytest.mark.parametrize("key", ["latest", "1:manifest", "1:bits:0"])
def test_a_poisoned_key_is_written_over_and_stops_no_other_set(
    service: ServiceProcess, set_name: str, key: str, kind: str
) -> None:
    """Whatever stands in the place of one set's key, reconcile restores that set and every other."""
    names = (f"{set_name}-a", f"{set_name}-b")
    client = redis.Redis.from_url(service.redis)
    with service.connect() as connection:
        for name in names:
            create(connection, name)
            connection.add(name, ELEMENTS)
            connection.publish(name)
        poisoned = f"veilset:{names[0]}:{key}"
        client.delete(poisoned, f"veilset:{names[1]}:1:bits:0")
        if kind == "list":
            client.rpush(poisoned, "x")
        else:
            client.set(poisoned, "9" * 5000)
        with suppress(VeilsetError):
            veilset.open(service.redis, names[0])  # refused or not found, but nothing else
        connection.reconcile()
        for name in names:
            assert veilset.open(service.redis, name, public_keys=[service.public_key]).header.sequence == 1
            connection.delete_set(name)
    client.close()
