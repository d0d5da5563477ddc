"""What a publish must keep whatever happens: one charge for one drawing of noise, and nothing
leaves before its charge. On a real ledger and real files; Redis and the anchor are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from publish_examples import Desk, MemoryAnchor, MemoryStore, names, restarted

from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.core.privacy.counts import calibrate_count, integer_noise
from veilset.core.release.signing import open_manifest
from veilset.errors import BudgetExceeded, StorageFull
from veilset_server.records import Mark, ReleaseState
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.usecases.budgets import CountPurchase
from veilset_server.usecases.rollback import NOTHING


class Crashed(Exception):
    """Where the process ends in the middle of something."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    yield made
    made.close()


def crash(*_: object, **__: object) -> None:
    raise Crashed


def test_min_size_is_an_assumption_that_nothing_checks(desk: Desk) -> None:
    """A refusal would tell how many distinct elements there are."""
    desk.create(min_size=50)
    desk.upload("one", names(1))
    assert desk.publish("r").sequence == 1


def test_noise_that_was_not_charged_is_never_seen(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between artefact and charge: nothing is owed, the artefact goes, and other noise is drawn."""
    desk.create()
    desk.upload("one", names(100))
    monkeypatch.setattr(desk.ledger, "charge_release", crash)
    with pytest.raises(Crashed):
        desk.publish("r")
    assert desk.account().charges == 0
    lost = b"".join(desk.artefacts.read(1, 1, CHUNK_BYTES))
    after = restarted(desk, tmp_path)
    assert after.artefacts.list() == []
    release = after.publish("r")
    after.delivery.deliver_pending()
    [(manifest, bits)] = after.store.uploads
    assert (manifest, after.account().charges) == (release.manifest, 1)
    assert bits != lost
    after.close()


def test_noise_that_was_charged_is_the_noise_that_goes_out(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash right behind the charge: more elements, a restart, the same request: the same bytes, one charge."""
    desk.create()
    desk.upload("one", names(100))
    monkeypatch.setattr(desk.guard, "record", crash)
    with pytest.raises(Crashed):
        desk.publish("r")
    drawn = b"".join(desk.artefacts.read(1, 1, CHUNK_BYTES))
    desk.upload("two", names(100, start=100))
    after = restarted(desk, tmp_path)
    release = after.publish("r")
    after.delivery.deliver_pending()
    assert after.store.uploads == [(release.manifest, drawn)]
    assert after.account().charges == 1
    assert after.anchor.read("set", "set") == Mark(1, NANO, Fraction(0))
    after.close()


def test_every_release_has_noise_and_a_charge_of_its_own(desk: Desk) -> None:
    """Unchanged data under new request ids: other bits each time, until the budget ends."""
    desk.create(budget=2)
    desk.upload("one", names(100))
    for request_id in ("r", "r", "s"):
        desk.publish(request_id)
        desk.delivery.deliver_pending()
    with pytest.raises(BudgetExceeded):
        desk.publish("t")
    (first, one), (second, two) = desk.store.uploads
    assert one != two
    assert [open_manifest(manifest).total_nano_epsilon for manifest in (first, second)] == [NANO, 2 * NANO]
    assert desk.artefacts.list() == [(1, 1), (1, 2)]


def test_an_anchor_that_fails_after_the_charge_costs_one_charge(desk: Desk) -> None:
    """The release is told all the same, or every retry would be charged; then nothing is charged until a mark covers it."""
    desk.create()
    desk.upload("one", names(10))
    desk.anchor.room = 1
    assert desk.publish("r").state is ReleaseState.PENDING
    assert (desk.account().charges, desk.anchor.read("set", "set")) == (1, NOTHING)
    with pytest.raises(StorageFull):
        desk.publish("s")
    assert desk.publish("r").sequence == 1  # what is charged is told again
    assert (desk.account().charges, len(desk.artefacts.list())) == (1, 1)
    desk.anchor.room = None
    desk.publish("s")
    assert desk.anchor.read("set", "set") == Mark(2, 2 * NANO, Fraction(0))


def test_a_bought_count_is_of_distinct_digests_with_fresh_noise(desk: Desk) -> None:
    """u is its sensitivity, its noise comes from the stream's first 64 bits, and its price is charged beside the vector."""
    desk.create(hashes=4, budget=3)
    desk.upload("one", names(100))
    desk.upload("again", names(100))
    count = open_manifest(desk.publish("r", CountPurchase(0.5, 1e-8)).manifest).count
    noise = calibrate_count(0.5, 1e-8, sensitivity=1)
    assert count is not None
    assert (count.mechanism, count.scale, count.sensitivity) == (noise.mechanism, noise.scale, 1)
    assert count.value == 100 + integer_noise(noise, desk.entropy.first_integers[0])
    account = desk.account()
    assert (account.spent_nano_epsilon, account.spent_delta) == (1_500_000_000, charge_delta(1e-8))
