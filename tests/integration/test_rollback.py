"""A ledger that is an older copy of itself publishes nothing until the loss is charged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names
from storage_examples import StoppedClock

from veilset.core.budget import NANO, charge_delta
from veilset.errors import FailedPrecondition, InvalidInput, StateRolledBack
from veilset_server.adapters.key_file import change_keys, read_keys
from veilset_server.adapters.ledger.file import LEDGER_NAME
from veilset_server.adapters.signing_keys import SigningKeys
from veilset_server.key_rotation import new_key, rotate
from veilset_server.records import Mark


@pytest.fixture
def rolled_back(tmp_path: Path) -> Iterator[Desk]:
    """Two releases were charged and delivered; then the ledger of before the second came back."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create(budget=5)
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


def test_a_pointer_that_nobody_can_explain_stops_publishing(rolled_back: Desk) -> None:
    """Redis points beyond the ledger and its manifest is gone: another service, or a loss without a witness."""
    rolled_back.anchor.sequences.clear()
    rolled_back.anchor.accounts.clear()
    rolled_back.store.lost = True
    with pytest.raises(FailedPrecondition, match="did not sign"):
        rolled_back.publish("t")
    assert rolled_back.account().charges == 1


def test_what_a_retired_key_signed_still_counts(tmp_path: Path) -> None:
    """Redis shows a release of before the rotation: without loss it is no stranger's, and with a loss it is a witness."""
    signer = SigningKeys(tmp_path, StoppedClock(), may_make=True)
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME), signer)
    desk.create(budget=5)
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
    shutil.rmtree(tmp_path / "vectors")
    desk = Desk(tmp_path, MemoryAnchor(), desk.store, SigningKeys(tmp_path, StoppedClock(), may_make=False))
    with pytest.raises(StateRolledBack) as refused:
        desk.guard.check("set", "set")
    assert refused.value.details["sequence"] == "1"
    desk.close()
