"""Rotating the signing key under a running service, as readers who pinned one key or the other see it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

import veilset
from harness.programs import Finished, wait_until
from harness.programs import veilset as command
from harness.service_process import ServiceProcess
from veilset.errors import ReleaseRejected
from veilset_server.state.keys import load_or_make_keys


def reload(service: ServiceProcess, event: str = "signing keys read again") -> None:
    """Send SIGHUP; return once the keys were looked at."""

    def seen() -> int:
        return sum(record["event"] == event for record in service.log_records())

    before = seen()
    os.kill(service.pid, signal.SIGHUP)
    wait_until(lambda: seen() > before)


def refused(service: ServiceProcess, key: str) -> bool:
    """Whether a reader that pinned ``key`` refuses the newest release, by the name of the check."""
    try:
        veilset.open(service.redis, "set", public_keys=[key])
    except ReleaseRejected as error:
        return error.details["check"] == "signature"
    return False


def test_readers_of_either_key_go_on_over_a_rotation(
    start_service: Callable[..., ServiceProcess], veilset_here: Callable[..., Finished]
) -> None:
    """Old, new, and both pinned: before, during and after the overlap, over SIGHUP and over a restart."""
    service = start_service()
    old = service.public_key
    state = ("--state", service.state)
    with service.connect() as connection:
        connection.create_set("set", size=100, epsilon=1, adjacency="add-remove", budget_epsilon=9)
        connection.add("set", ["a"])
        connection.publish("set")
        new = veilset_here("keys", "rotate", "--overlap", "1h", *state, "--json").json()["public_key"]
        assert veilset_here("keys", "export", *state).out.split() == [new, old]

        assert [key.hex() for key in connection.publish("set").public_keys] == [old], "it was not told yet"
        assert (refused(service, old), refused(service, new)) == (False, True)
        reload(service)
        assert [key.hex() for key in connection.publish("set").public_keys] == [new, old]
        assert (refused(service, old), refused(service, new)) == (False, False)
        assert veilset.open(service.redis, "set", public_keys=[old, new]).header.sequence == 3

        old_id = veilset_here("keys", "list", *state, "--json").json_lines()[1]["key_id"]
        assert veilset_here("keys", "retire", old_id, *state, "--json").json()["state"] == "retired"
        reload(service)
        assert [key.hex() for key in connection.publish("set").public_keys] == [new]
        assert (refused(service, old), refused(service, new)) == (True, False)
        assert veilset.open(service.redis, "set", public_keys=[old, new]).header.sequence == 4

        newest = veilset_here("keys", "rotate", "--overlap", "0", *state, "--json").json()["public_key"]
    service.stop()
    service.start()
    assert service.public_key == newest
    with service.connect() as connection:  # what Redis shows was signed by a key that is retired by now
        assert [key.hex() for key in connection.publish("set").public_keys] == [newest]
    assert (refused(service, new), refused(service, newest)) == (True, False)


def test_a_damaged_key_file_changes_nothing_in_a_running_service(start_service: Callable[..., ServiceProcess]) -> None:
    """It says so in its log; and would not start with it."""
    service = start_service()
    path = service.state / "signing.pem"
    content = path.read_bytes()
    with service.connect() as connection:
        connection.create_set("set", size=100, epsilon=1, adjacency="add-remove")
        connection.add("set", ["a"])
        path.write_bytes(content[:-20])
        reload(service, "signing keys could not be read; the old ones stay")
        assert connection.publish("set").state == "published"
    service.stop()
    assert "signing.pem" in command("serve", *("--state", service.state), "--port", 0).err.splitlines()[-1]
    path.write_bytes(content)


def test_the_commands_show_public_things_only(
    start_service: Callable[..., ServiceProcess], veilset_here: Callable[..., Finished]
) -> None:
    """As text and as JSON; PEM that others read; and what is wrong is told in one line."""
    service = start_service()
    state = ("--state", service.state)
    (first,) = veilset_here("keys", "list", *state, "--json").json_lines()
    assert first["public_key"] == service.public_key
    assert (first["state"], first["retires"]) == ("signing", None)
    said = veilset_here("keys", "rotate", *state)
    assert "SIGHUP" in said.out
    keys = veilset_here("keys", "list", *state, "--json").json_lines()
    assert [key["state"] for key in keys] == ["signing", "retiring"]
    assert keys[1]["retires"] is not None
    listed = veilset_here("keys", "list", *state)
    assert all(key["key_id"] in line for key, line in zip(keys, listed.out.splitlines(), strict=True))
    pem = veilset_here("keys", "export", "--pem", *state).out
    assert "PRIVATE" not in pem + listed.out + said.out
    assert load_pem_public_key(pem.encode()).public_bytes_raw().hex() == keys[0]["public_key"]  # type: ignore[union-attr]
    assert veilset_here("keys", "export", *state, "--json").json() == {
        "public_keys": [key["public_key"] for key in keys]
    }
    assert (service.state / "signing.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("keys", "list"), "this file is missing"),
        (("keys", "rotate"), "this file is missing"),
        (("keys", "retire", "0123456789abcdef"), "this file is missing"),
        (("keys", "rotate", "--overlap", "30"), "30d"),
        (("keys", "rotate", "--overlap", "-1d"), "30d"),
        (("keys", "rotate", "--overlap", "99999d"), "overlap"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: tuple[str, ...], text: str, tmp_path: Path, veilset_here: Callable[..., Finished]
) -> None:
    """And makes nothing."""
    if "99999d" in arguments:
        load_or_make_keys(tmp_path, 1, may_make=True)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert text in veilset_here(*arguments, "--state", tmp_path).complaint()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
