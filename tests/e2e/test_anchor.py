"""A service whose anchor becomes unwritable, and commands on the state folder that `serve` was told of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.metrics import scrape, value
from harness.programs import veilset
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from veilset.errors import BudgetExceeded, StateRolledBack, Unavailable
from veilset_server.state.anchor import AnchorFile


def sequences(anchor: Path) -> dict[str, int]:
    """The highest sequence of each set by an anchor file."""
    return dict(AnchorFile(anchor).charged().sequences)


def test_two_services_with_one_anchor_do_not_both_start(
    tmp_path: Path, start_service: Callable[..., ServiceProcess]
) -> None:
    """One on a copy of the other's state folder would spend the budget again; once alone it knows what was spent."""
    anchor = tmp_path / "anchor.json"
    process = start_service("--anchor", anchor)
    with process.connect() as service:
        service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=1)
        service.add("s", ["element"])
    process.stop()
    shutil.copytree(process.state, tmp_path / "copy", ignore=shutil.ignore_patterns("valkey"))
    process.start()
    (tmp_path / "link").symlink_to(anchor)
    for path in (anchor, tmp_path / "link"):
        done = veilset("serve", "--state", "copy", "--port", "0", "--anchor", path, cwd=tmp_path)
        assert done.code == 1
        assert f"veilset: anchor: {anchor} is in use by process {process.pid}; each service" in done.err
    with process.connect() as service:
        service.publish("s")
    process.stop()
    with start_service("--anchor", tmp_path / "link", name="copy").connect() as service:
        with pytest.raises(StateRolledBack, match="--epsilon 1 "):
            service.publish("s")
        service.confirm_loss("s", epsilon=1, delta=1e-9, reason="a copy was started")
        with pytest.raises(BudgetExceeded):
            service.publish("s")


def test_the_anchor_of_another_state_folder_is_refused(
    tmp_path: Path, start_service: Callable[..., ServiceProcess]
) -> None:
    """A folder that was in use keeps to its own; a new one takes over what there is, as after a loss."""
    first, second = start_service(name="first"), start_service(name="second")
    for process in (first, second):
        process.stop()
    anchor = tmp_path / "first.anchor"
    done = veilset("serve", "--state", "second", "--port", "0", "--anchor", anchor, cwd=tmp_path)
    assert done.code == 1
    assert f"veilset: anchor: {anchor} belongs to another state folder; name this one's own" in done.err
    shutil.rmtree(first.state)
    first.start()


def test_an_anchor_that_cannot_be_written_stops_publishing(
    tmp_path: Path, start_service: Callable[..., ServiceProcess]
) -> None:
    """Nothing is charged meanwhile, though Redis is there; metric and log tell; it goes on by itself."""
    volume, gone = tmp_path / "volume", tmp_path / "gone"
    volume.mkdir()
    process = start_service("--anchor", volume / "anchor.json", "--metrics-port", "0")
    with process.connect() as service:
        service.create_set("s", size=1000, epsilon=1, adjacency="add-remove", delta=1e-9, budget_epsilon=9)
        service.add("s", ["element"])
        service.publish("s", request_id="one")
        assert value(scrape(process.metrics), "veilset_anchor_written") == 1
        volume.rename(gone)
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"^anchor: volume/anchor\.json cannot be written"):
                service.publish("s", request_id="two")
        assert service.publish("s", request_id="one").sequence == 1
        assert service.budget("s").charges == 1
        assert value(scrape(process.metrics), "veilset_anchor_written") == 0
        gone.rename(volume)
        assert service.publish("s", request_id="two").sequence == 2
        assert value(scrape(process.metrics), "veilset_anchor_written") == 1
    lines = [json.loads(line) for line in process.log_path.read_text().splitlines()]
    errors = [line for line in lines if line["level"] == "error"]
    assert [(line["event"], line["set"], line["file"]) for line in errors] == [
        ("anchor not written", "s", "volume/anchor.json")
    ] * 2
    refused = [line for line in lines if line["event"] == "call" and line["code"] != "OK"]
    assert [(line["method"], line["reason"]) for line in refused] == [("PublishRelease", "UNAVAILABLE")] * 2
    assert sequences(volume / "anchor.json") == {"s": 2}


def test_a_deleted_set_stays_charged_though_anchor_and_state_folder_went(
    tmp_path: Path, start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer]
) -> None:
    """First the anchor, which is rewritten from the ledger; then the state folder, which is asked for from the anchor."""
    anchor = tmp_path / "state.anchor"
    process = start_service("--redis", start_redis().url)

    def create(name: str, account: str = "") -> None:
        """With a budget for one release."""
        with process.connect() as service:
            promise: dict[str, Any] = {
                "epsilon": 1,
                "adjacency": "add-remove",
                "delta": 1e-9,
                "calibration": "exact",
            }  # which spends its delta
            service.create_set(name, size=1000, budget_epsilon=1, account=account, **promise)
            service.add(name, ["element"])

    create("deleted")
    create("other", account="apart")
    with process.connect() as service:
        service.publish("deleted")
        service.publish("other")
        for name in ("deleted", "other"):
            service.delete_set(name)
    process.stop()
    before = AnchorFile(anchor).charged()
    anchor.rename(tmp_path / "away")
    process.start().stop()
    assert AnchorFile(anchor).charged() == before
    assert sequences(anchor) == {"deleted": 1, "other": 1}
    warnings = [line for line in process.log_records() if line["level"] == "warning"]
    assert [(line["event"][:19], line["releases"]) for line in warnings] == [("there was no anchor", 2)]
    shutil.rmtree(process.state)
    process.start()
    lacking = [line["set"] for line in process.log_records() if "older than the anchor" in line["event"]]
    assert lacking == ["deleted", "other"]
    create("deleted")
    create("new", account="apart")
    with process.connect() as service:
        for name, sequence in (("deleted", "1"), ("new", "0")):
            with pytest.raises(StateRolledBack) as refused:
                service.publish(name)
            details = refused.value.details
            assert (details["sequence"], details["lost_epsilon"], details["lost_delta"]) == (sequence, "1", "1e-9")
            service.confirm_loss(name, epsilon=1, delta=1e-9, reason="state folder lost")
            with pytest.raises(BudgetExceeded):
                service.publish(name)
            assert list(service.list_releases(name)) == []


def test_keys_and_tokens_find_the_state_folder_as_serve_does(
    tmp_path: Path, start_service: Callable[..., ServiceProcess]
) -> None:
    """By the same variable; a token for a folder that did not exist says so."""
    process = start_service()
    process.stop()
    settings = {"VEILSET_SERVE_STATE": str(process.state)}
    assert veilset("keys", "list", cwd=tmp_path, settings=settings).out.split("\t")[1] == process.public_key
    assert veilset("keys", "export", cwd=tmp_path, settings=settings).out.strip() == process.public_key
    create = ("token", "create", "--role", "reader", "--sets", "*")
    known = veilset(*create, cwd=tmp_path, settings=settings)
    assert "did not exist" not in known.err
    made = veilset(*create, "--state", "typo", cwd=tmp_path)
    assert made.code == 0
    assert "typo did not exist and was made" in made.err
    assert "did not exist" not in veilset(*create, "--state", "typo", cwd=tmp_path).err
