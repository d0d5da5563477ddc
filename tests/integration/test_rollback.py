"""A ledger that is an older copy of itself publishes nothing until the loss is charged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names
from storage_examples import MAX_SETS, StoppedClock, add_set, charge_of, new_ledger, publish

from harness.log_hooks import logs_left_alone
from veilset.core.params import Calibration
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.errors import FailedPrecondition, InvalidInput, StateRolledBack
from veilset_server.metrics.logs import configure_logs
from veilset_server.records import Charged, Mark
from veilset_server.state.keys import SigningKeys, change_keys, new_key, read_keys, rotate
from veilset_server.state.ledger.file import LEDGER_NAME


@pytest.fixture
def rolled_back(tmp_path: Path) -> Iterator[Desk]:
    """Two releases were charged and delivered; then the ledger of before the second came back."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create(budget=5, calibration=Calibration.EXACT)
    desk.upload("one", names(100))
    desk.publish("r")
    desk.delivery.deliver_pending()
    desk.close()
    shutil.copy(tmp_path / LEDGER_NAME, tmp_path / "older")
    desk = Desk(tmp_path, desk.anchor, desk.store)
    desk.publish("s")
    desk.delivery.deliver_pending()
    desk.close()
    shutil.copy(tmp_path / "older", tmp_path / LEDGER_NAME)
    desk = Desk(tmp_path, desk.anchor, desk.store)
    yield desk
    desk.close()


@pytest.mark.parametrize("witness", ["anchor", "redis"])
def test_either_witness_stops_publishing(witness: str, rolled_back: Desk) -> None:
    """What was lost is named; nothing is charged, written or delivered."""
    desk = rolled_back
    if witness == "anchor":
        desk.store.pointer = 0
    else:
        desk.anchor.sequences.clear()
        desk.anchor.accounts.clear()
    with pytest.raises(StateRolledBack) as refused:
        desk.publish("t")
    details = {"set_name": "set", "sequence": "2", "lost_epsilon": "1", "lost_delta": "1e-9"}
    assert refused.value.details == details
    assert (desk.account().charges, len(desk.store.uploads)) == (1, 2)


def test_the_loss_is_charged_before_anything_is_published(rolled_back: Desk) -> None:
    """Less than what is known is refused; then sequences go on above what was seen, and the sum is whole again."""
    desk = rolled_back
    with pytest.raises(InvalidInput, match="epsilon"):
        desk.guard.confirm("set", 0.5, 1e-9, "restored from a backup")
    with pytest.raises(InvalidInput, match="delta"):
        desk.guard.confirm("set", 1.0, 1e-10, "restored from a backup")
    desk.guard.confirm("set", 1.0, 1e-9, "restored from a backup")
    assert desk.publish("t").sequence == 3
    assert desk.account().spent_nano_epsilon == 3 * NANO
    assert desk.anchor.read("set", "set") == Mark(3, 3 * NANO, charge_delta(3e-9))
    with pytest.raises(FailedPrecondition, match="nothing is known"):
        desk.guard.confirm("set", 1.0, 1e-9, "once more")


@pytest.mark.parametrize("others", [0, 1, 3])
def test_what_others_charge_to_the_account_hides_no_loss(others: int, rolled_back: Desk) -> None:
    """Without the anchor only the header in Redis tells of the loss, and its sum is of before the others' charges."""
    desk = rolled_back
    desk.anchor.sequences.clear()
    desk.anchor.accounts.clear()
    description = replace(desk.ledger.get_set("set").description, name="beside")
    beside = desk.ledger.create_set(description, NANO, charge_delta(1e-6), MAX_SETS)
    for number in range(others):
        publish(desk.ledger, beside, f"b{number}", charge_of())
    with pytest.raises(StateRolledBack) as refused:
        desk.publish("t")
    assert (refused.value.details["lost_epsilon"], refused.value.details["lost_delta"]) == ("1", "1e-9")
    with pytest.raises(InvalidInput, match="epsilon"):
        desk.guard.confirm("set", 0.0, 1e-9, "restored")
    desk.guard.confirm("set", 1.0, 1e-9, "restored")
    assert desk.account().spent_nano_epsilon == (2 + others) * NANO


def test_a_pointer_that_nobody_can_explain_stops_publishing(rolled_back: Desk) -> None:
    """Redis points beyond the ledger and its manifest is gone: another service, or a loss without a witness."""
    rolled_back.anchor.sequences.clear()
    rolled_back.anchor.accounts.clear()
    rolled_back.store.lost = True
    with pytest.raises(FailedPrecondition, match="did not sign"):
        rolled_back.publish("t")
    assert rolled_back.account().charges == 1


@pytest.fixture
def lost_folder(rolled_back: Desk, tmp_path: Path) -> Iterator[Desk]:
    """An empty folder and a new key, beside the anchor and the Redis of before, which tell of two releases."""
    rolled_back.close()
    for name in ("runs", "spools", "artefacts"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    (tmp_path / LEDGER_NAME).unlink()
    signer = SigningKeys(tmp_path, StoppedClock(), may_make=True)
    desk = Desk(tmp_path, rolled_back.anchor, rolled_back.store, signer)
    desk.create(budget=5, calibration=Calibration.EXACT)
    desk.upload("new", names(100))
    yield desk
    desk.close()


def test_a_lost_folder_is_charged_from_the_anchor_with_any_key(lost_folder: Desk) -> None:
    """The anchor knows the sums of all that Redis shows; without them charged nothing goes on, with them all does."""
    desk = lost_folder
    with pytest.raises(StateRolledBack) as refused:
        desk.publish("t")
    assert refused.value.details | {"set_name": ""} == {
        "set_name": "", "sequence": "2", "lost_epsilon": "2", "lost_delta": "2e-9",
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="epsilon"):
        desk.guard.confirm("set", 1.9, 2e-9, "state folder lost")
    desk.guard.confirm("set", 2.0, 2e-9, "state folder lost")
    assert desk.publish("t").sequence == 3
    assert desk.account().spent_nano_epsilon == 3 * NANO


def test_beyond_the_anchor_a_lost_key_stops_everything(lost_folder: Desk) -> None:
    """What Redis shows beyond the anchor may cost anything: neither publish nor confirm-loss until its one key is removed, which
    the error names; and then the anchor still asks for what it knows."""
    desk = lost_folder
    desk.anchor.sequences["set"] = 1
    desk.anchor.accounts["set"] = Mark(1, NANO, charge_delta(1e-9))
    for refused_now in (lambda: desk.publish("t"), lambda: desk.guard.confirm("set", 2.0, 2e-9, "lost")):
        with pytest.raises(FailedPrecondition, match=r"did not sign.* veilset:set:latest ") as refused:
            refused_now()
        assert not isinstance(refused.value, StateRolledBack)
    desk.store.pointer = 0
    with pytest.raises(StateRolledBack):
        desk.publish("t")
    desk.guard.confirm("set", 2.0, 2e-9, "state folder lost")
    assert desk.publish("t").sequence == 2
    assert desk.account().spent_nano_epsilon == 3 * NANO


def test_a_start_tells_of_the_sets_that_the_anchor_knows_more_of(
    rolled_back: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name and sequence; nothing once the loss is charged."""
    capsys.readouterr()
    with logs_left_alone():
        configure_logs("warning")
        rolled_back.guard.catch_up({"set": "set"})
        (line,) = map(json.loads, capsys.readouterr().err.splitlines())
        assert line.pop("timestamp")
        assert "older than the anchor" in line.pop("event")
        assert line == {"level": "warning", "set": "set", "ledger_sequence": 1, "anchor_sequence": 2}
        rolled_back.guard.confirm("set", 1.0, 1e-9, "restored from a backup")
        rolled_back.guard.catch_up({"set": "set"})
        assert capsys.readouterr().err == ""


def test_a_start_brings_back_the_marks_of_every_set_there_ever_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of hundreds of deleted ones, some on a shared account, to an anchor made anew or an older one; in one write, with one
    warning, and with none where it knew all."""
    with new_ledger(tmp_path) as ledger:
        for number in range(200):
            stored = add_set(ledger, f"s{number}", "shared" if number % 2 else None, epsilon=1000, delta=1e-3)
            for request in range(1 + number % 3 // 2):
                publish(ledger, stored, f"{request}", charge_of())
            ledger.delete_set(f"s{number}")
        expected = ledger.charged()
    assert len(expected.sequences) == 200
    assert expected.accounts["shared"] == (133 * NANO, charge_delta(1e-9) * 133)
    older = Charged({"s0": 1, "gone": 7}, {"s0": (NANO, charge_delta(1e-9))})
    for held, missing, warning in (
        (None, True, "there was no anchor, though there are charges"),
        (older, False, "the anchor was behind the ledger"),
        (expected, False, ""),
    ):
        anchor, capture = MemoryAnchor(), capsys.readouterr()
        anchor.missing = missing
        if held is not None:
            anchor.raise_to(held)
        anchor.room = 1
        with logs_left_alone():
            configure_logs("warning")
            Desk(tmp_path, anchor, MemoryStore(tmp_path / LEDGER_NAME)).close()
        capture = capsys.readouterr()
        told = [json.loads(line) for line in capture.err.splitlines()]
        assert [line["set"] for line in told if "older than the anchor" in line["event"]] == ["gone"] * (held is older)
        behind = [line for line in told if "set" not in line]
        assert [line["event"].startswith(warning) for line in behind] == [True] * bool(warning)
        assert [line["releases"] for line in behind] == [266 - (held is older)] * bool(warning)
        sequences = expected.sequences if held is not older else {**expected.sequences, "gone": 7}
        assert anchor.charged() == Charged(sequences, expected.accounts)
        assert anchor.room == 0


def test_one_charge_behind_is_a_crash_and_no_warning(rolled_back: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Which comes between a commit and its mark; an anchor that is missing is told even then."""
    desk = rolled_back
    desk.store.pointer = 0
    desk.anchor.sequences.clear()
    desk.anchor.accounts.clear()
    capsys.readouterr()
    with logs_left_alone():
        configure_logs("warning")
        desk.guard.catch_up({"set": "set"})
        assert capsys.readouterr().err == ""
        assert desk.anchor.read("set", "set") == Mark(1, NANO, charge_delta(1e-9))
        desk.anchor.sequences.clear()
        desk.anchor.missing = True
        desk.guard.catch_up({"set": "set"})
        (line,) = map(json.loads, capsys.readouterr().err.splitlines())
        assert line["event"].startswith("there was no anchor")


def test_what_a_retired_key_signed_still_counts(tmp_path: Path) -> None:
    """Redis shows a release of before the rotation: without loss it is the service's own, and with a loss it is a witness."""
    signer = SigningKeys(tmp_path, StoppedClock(), may_make=True)
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME), signer)
    desk.create(budget=5, calibration=Calibration.EXACT)
    shutil.copy(tmp_path / LEDGER_NAME, tmp_path / "older")
    desk.upload("one", names(100))
    desk.publish("r")
    desk.delivery.deliver_pending()
    now_us = StoppedClock().now_us()
    change_keys(tmp_path, lambda keys: rotate(keys, new_key(now_us), now_us, 0))
    assert signer.reload()
    assert [key.state(now_us) for key in read_keys(tmp_path)] == ["signing", "retired"]
    desk.guard.check("set", "set")
    desk.close()
    shutil.copy(tmp_path / "older", tmp_path / LEDGER_NAME)
    shutil.rmtree(tmp_path / "spools")
    desk = Desk(tmp_path, MemoryAnchor(), desk.store, SigningKeys(tmp_path, StoppedClock(), may_make=False))
    with pytest.raises(StateRolledBack) as refused:
        desk.guard.check("set", "set")
    assert refused.value.details["sequence"] == "1"
    desk.close()
