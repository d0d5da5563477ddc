"""The ledger port: what each method does and refuses, and that it is all still there after a reopen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from storage_examples import (
    LEDGER_ID,
    MAX_SETS,
    StoppedClock,
    add_set,
    charge_of,
    description,
    new_ledger,
    open_ledger,
    publish,
    release_of,
)

from veilset.core.params import Adjacency, HashParameters, Operation, PrivacyParameters
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.errors import (
    AlreadyExists,
    BudgetExceeded,
    FailedPrecondition,
    InvalidInput,
    LimitExceeded,
    NotFound,
)
from veilset_server.records import (
    BudgetChange,
    Charge,
    ReleaseState,
    SetDescription,
    StoredRun,
    UploadPart,
    UploadState,
)
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

CHECKSUM = bytes(range(16))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    with new_ledger(tmp_path) as opened:
        yield opened


# Sets


def test_a_set_comes_back_as_it_was_described(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Every field survives, across a reopen too."""
    stored = add_set(ledger)
    assert stored.description == description()
    assert ledger.get_set("guests") == ledger.get_set_by_id(stored.set_id) == stored
    ledger.close()
    with open_ledger(tmp_path) as reopened:
        assert reopened.get_set("guests") == stored
        assert type(reopened.get_set("guests").description.hashing.scheme) is type(stored.description.hashing.scheme)


def test_what_a_description_holds_is_known_to_the_ledger() -> None:
    """A new field needs a default (older rows lack it) and, if it is an enumeration, a conversion in ledger_sets."""
    assert [field.name for field in fields(HashParameters)] == ["scheme", "seed", "key_check"]
    assert [field.name for field in fields(PrivacyParameters)] == [
        *("epsilon", "delta", "adjacency", "calibration", "elements_per_user", "min_size"),
    ]
    assert [field.name for field in fields(SetDescription)] == [
        *(
            "name",
            "hashing",
            "encoding",
            "privacy",
            "normalization",
            "account",
            "created_at_us",
            "declared_size",
            "shared_seed",
        ),
        "owner",
        "count_epsilon",
        *("increments", "increment_capacity", "removals_epsilon", "expire_days"),
    ]


def test_a_name_is_taken_until_its_set_is_deleted(ledger: SqliteLedger) -> None:
    """And the id of a deleted set never comes again."""
    first = add_set(ledger)
    with pytest.raises(AlreadyExists):
        add_set(ledger)
    assert ledger.delete_set("guests") == first
    with pytest.raises(NotFound):
        ledger.get_set("guests")
    with pytest.raises(NotFound):
        ledger.get_set_by_id(first.set_id)
    with pytest.raises(NotFound):
        ledger.delete_set("guests")
    again = add_set(ledger)
    assert again.set_id > first.set_id
    assert ledger.highest_set_id() == again.set_id


def test_sets_are_limited_and_listed_by_name(ledger: SqliteLedger) -> None:
    """Pages follow the names; deleted sets are not in them and do not count."""
    for name in ("pear", "apple", "plum"):
        add_set(ledger, name)
    ledger.delete_set("plum")
    assert [stored.description.name for stored in ledger.list_sets("", 10)] == ["apple", "pear"]
    assert [stored.description.name for stored in ledger.list_sets("apple", 1)] == ["pear"]
    assert ledger.list_sets("pear", 10) == []
    with pytest.raises(LimitExceeded):
        ledger.create_set(description("fig"), NANO, Fraction(0), max_sets=2)
    with pytest.raises(NotFound, match="account"):
        ledger.get_account("fig")


@pytest.mark.parametrize("name", ["", "../x", "A", "a" * 64, "a\0b", "-x"])
def test_names_outside_the_alphabet_are_refused(ledger: SqliteLedger, name: str) -> None:
    """Whatever the edge let through."""
    with pytest.raises(InvalidInput):
        add_set(ledger, name)
    with pytest.raises(InvalidInput):
        add_set(ledger, "guests", account=name or "-")


# Uploads


def test_a_finished_upload_is_a_run_and_its_id_is_known(ledger: SqliteLedger) -> None:
    set_id = add_set(ledger).set_id
    upload = ledger.open_upload(set_id, "u", 0, Operation.ADD)
    assert upload == ledger.open_upload(set_id, "u", 0, Operation.ADD)
    assert (upload.state, ledger.count_items(set_id)) == (UploadState.OPEN, (0, 0, 0))
    assert ledger.finish_upload(upload, 12, CHECKSUM) is None
    with pytest.raises(NotFound):
        ledger.finish_upload(upload, 12, CHECKSUM)
    finished = ledger.open_upload(set_id, "u", 0, Operation.ADD)
    assert (finished.state, finished.count) == (UploadState.FINISHED, 12)
    assert (ledger.all_open_uploads(), ledger.count_items(set_id)) == ([], (1, 0, 12))


def test_removals_and_replacements_are_numbered(ledger: SqliteLedger) -> None:
    """In one sequence of the set's name, adds between them or not."""
    set_id = add_set(ledger).set_id
    for number, operation in enumerate([Operation.REMOVE, Operation.ADD, Operation.REPLACE, Operation.ADD], start=2):
        upload = ledger.open_upload(set_id, f"{number}", 0, operation)
        told = ledger.finish_upload(upload, 1, CHECKSUM)
        assert told == (None if operation is Operation.ADD else number // 2)
    assert (ledger.operations("guests"), ledger.charged().operations) == (2, {"guests": 2})
    assert ledger.count_items(set_id) == (2, 0, 2)
    assert len(ledger.leftovers()) == 2


def test_uploads_go_with_their_set(ledger: SqliteLedger) -> None:
    """A re-created set knows none of them, and holds nothing."""
    first = add_set(ledger).set_id
    finished, opened = (ledger.open_upload(first, upload_id, 0, Operation.ADD) for upload_id in "uv")
    ledger.finish_upload(finished, 3, CHECKSUM)
    ledger.delete_set("guests")
    assert len(ledger.leftovers()) == 2
    with pytest.raises(NotFound):
        ledger.open_upload(first, "u", 0, Operation.ADD)
    with pytest.raises(NotFound):
        ledger.finish_upload(opened, 3, CHECKSUM)
    second = add_set(ledger)
    assert ledger.items(second.set_id) == []
    assert ledger.open_upload(second.set_id, "u", 0, Operation.ADD).state is UploadState.OPEN


def test_only_open_uploads_can_be_dropped(ledger: SqliteLedger) -> None:
    set_id = add_set(ledger).set_id
    old, finished, _ = (ledger.open_upload(set_id, upload_id, 0, Operation.ADD) for upload_id in ("old", "done", "new"))
    ledger.seal_part(ledger.open_upload(set_id, "parts", 3, Operation.ADD), 1, CHECKSUM)
    ledger.finish_upload(finished, 1, CHECKSUM)
    assert [upload.upload_id for upload in ledger.all_open_uploads()] == ["old", "new", "parts"]
    assert ledger.drop_upload(set_id, "old")
    assert not ledger.drop_upload(set_id, "old")
    assert not ledger.drop_upload(set_id, "done")
    assert ledger.drop_upload(set_id, "parts")
    with pytest.raises(NotFound):
        ledger.seal_part(old, 1, CHECKSUM)


def test_ids_of_finished_uploads_are_forgotten_in_time(tmp_path: Path) -> None:
    clock = StoppedClock()
    with SqliteLedger.create(tmp_path / LEDGER_NAME, LEDGER_ID, clock) as ledger:
        set_id = add_set(ledger).set_id
        for upload_id in "ab":
            clock.time_us += 10
            ledger.finish_upload(ledger.open_upload(set_id, upload_id, 0, Operation.ADD), 1, CHECKSUM)
        assert ledger.forget_finished(clock.time_us) == 1
        assert ledger.open_upload(set_id, "a", 0, Operation.ADD).state is UploadState.OPEN
        assert ledger.open_upload(set_id, "b", 0, Operation.ADD).state is UploadState.FINISHED


def test_parts_become_one_run_of_several_files(ledger: SqliteLedger) -> None:
    set_id = add_set(ledger).set_id
    parts = [UploadPart(part, part, bytes([part] * 16)) for part in (1, 2, 3)]
    for part in parts:
        ledger.seal_part(ledger.open_upload(set_id, "u", part.part, Operation.ADD), part.count, part.checksum)
    ledger.finish_upload(ledger.open_upload(set_id, "u", 0, Operation.ADD), 6, b"", parts)
    (run,) = ledger.items(set_id)
    assert isinstance(run, StoredRun)
    assert [(file.sent, file.checksum[0]) for file in run.files] == [(1, 1), (2, 2), (3, 3)]
    assert len(ledger.leftovers()) == 1  # the spool of part 0, which is empty


# Releases and budgets


def test_a_release_is_charged_and_found_again(ledger: SqliteLedger) -> None:
    """By sequence, as the newest, by request id, in lists."""
    stored = add_set(ledger)
    first = publish(ledger, stored, "monday", charge_of())
    second = publish(ledger, stored, "tuesday", charge_of())
    assert (first.sequence, second.sequence, ledger.next_sequence("guests")) == (1, 2, 3)
    assert ledger.get_release("guests", 1) == first
    assert ledger.get_release("guests", 0) == second
    assert ledger.find_release("guests", "monday") == first
    assert ledger.find_release("guests", "wednesday") is None
    assert ledger.list_releases("guests", 0, 10) == [second, first]
    assert ledger.list_releases("guests", 2, 10) == [first]
    assert ledger.list_releases("guests", 0, 1) == [second]
    assert ledger.releases_in_state(ReleaseState.PENDING) == [first, second]
    with pytest.raises(NotFound):
        ledger.get_release("guests", 3)
    account = ledger.get_account("guests")
    assert (account.spent_nano_epsilon, account.spent_delta, account.charges) == (2 * NANO, Fraction(2, 10**9), 2)


def test_both_epsilon_and_delta_have_to_fit(ledger: SqliteLedger) -> None:
    """The last unit fits, one more does not, and the refusal tells the numbers; nothing is charged by it."""
    stored = add_set(ledger, epsilon=3, delta=1e-8)
    publish(ledger, stored, "a", Charge(2 * NANO, charge_delta(9e-9)))
    with pytest.raises(BudgetExceeded) as refusal:
        publish(ledger, stored, "b", Charge(NANO + 1, charge_delta(1e-9)))
    assert refusal.value.details == {
        "account": "guests",
        "asked_epsilon": "1.000000001",
        "asked_delta": "1e-9",
        "spent_epsilon": "2",
        "spent_delta": "9e-9",
        "left_epsilon": "1",
        "left_delta": "1e-9",
        "total_epsilon": "3",
        "total_delta": "1e-8",
    }
    with pytest.raises(BudgetExceeded):
        publish(ledger, stored, "b", Charge(1, Fraction(1, 10**9) + Fraction(1, 10**30)))
    assert ledger.get_account("guests").charges == 1
    publish(ledger, stored, "b", Charge(NANO, charge_delta(1e-9)))
    with pytest.raises(BudgetExceeded):
        publish(ledger, stored, "c", Charge(1, Fraction(0)))


@pytest.mark.parametrize("charge", [Charge(0, Fraction(0)), Charge(-1, Fraction(0)), Charge(1, Fraction(-1, 10))])
def test_a_charge_cannot_give_back(ledger: SqliteLedger, charge: Charge) -> None:
    """Nothing below one nano-unit, no negative δ."""
    stored = add_set(ledger)
    with pytest.raises(InvalidInput):
        publish(ledger, stored, "a", charge)


def test_request_ids_and_sequences_are_used_once(ledger: SqliteLedger) -> None:
    """A taken one is AlreadyExists, a gap or an overtaken header FailedPrecondition; nothing is charged."""
    stored = add_set(ledger)
    publish(ledger, stored, "a", charge_of())
    attempts = [
        (release_of(stored, 2, "a"), NANO, AlreadyExists),
        (release_of(stored, 1, "b"), NANO, AlreadyExists),
        (release_of(stored, 3, "b"), NANO, FailedPrecondition),
        (release_of(stored, 2, "b"), 0, FailedPrecondition),
        (replace(release_of(stored, 2, "b"), state=ReleaseState.PUBLISHED), NANO, InvalidInput),
        (replace(release_of(stored, 2, "b"), set_name="others"), NANO, InvalidInput),
    ]
    for release, expected_spent, error in attempts:
        with pytest.raises(error):
            ledger.charge_release(release, "guests", charge_of(), expected_spent)
    with pytest.raises(InvalidInput):
        ledger.charge_release(release_of(stored, 2, "b"), "other", charge_of(), NANO)
    assert ledger.get_account("guests").charges == 1


def test_an_account_is_shared_and_outlives_its_sets(ledger: SqliteLedger) -> None:
    """Deletion and re-creation give back neither budget nor sequences, and do not change the budget."""
    first = add_set(ledger, "a", account="team", epsilon=3)
    other = add_set(ledger, "b", account="team", epsilon=1000)
    publish(ledger, first, "r", charge_of())
    publish(ledger, other, "r", charge_of())
    ledger.delete_set("a")
    again = add_set(ledger, "a", account="team", epsilon=1000)
    assert ledger.find_release("a", "r") is None
    assert publish(ledger, again, "r", charge_of()).sequence == 2
    with pytest.raises(BudgetExceeded):
        publish(ledger, other, "s", charge_of())
    account = ledger.get_account("team")
    assert (account.total_nano_epsilon, account.spent_nano_epsilon, account.charges) == (3 * NANO, 3 * NANO, 3)
    assert [release.set_id for release in ledger.list_releases("a", 0, 9)] == [again.set_id, first.set_id]


def test_a_name_keeps_its_account_after_deletion(ledger: SqliteLedger) -> None:
    """What readers hold of the deleted set was charged there; the refusal says what to do instead, and makes no account."""
    publish(ledger, add_set(ledger, "a", account="first", epsilon=3), "r", charge_of())
    ledger.delete_set("a")
    with pytest.raises(
        FailedPrecondition, match=r"^account: the name a belongs to the budget account first for good.*raise"
    ):
        add_set(ledger, "a", account="second", epsilon=3)
    with pytest.raises(NotFound):
        ledger.get_account("second")
    assert publish(ledger, add_set(ledger, "a", account="first"), "r", charge_of()).sequence == 2
    assert ledger.get_account("first").spent_nano_epsilon == 2 * NANO
    with pytest.raises(AlreadyExists):
        add_set(ledger, "a", account="second")


@pytest.mark.parametrize(("field", "other"), [("adjacency", Adjacency.REPLACE_ONE), ("elements_per_user", 3)])
def test_an_account_sums_releases_of_one_relation_and_unit(ledger: SqliteLedger, field: str, other: Any) -> None:
    """A set that promises something else cannot join it, whatever became of those that it was made for."""
    add_set(ledger, "a", account="team")
    ledger.delete_set("a")
    own = ledger.get_account("team")
    assert (own.adjacency, own.elements_per_user) == (Adjacency.ADD_REMOVE, 2)
    wanted = description("b", "team")
    wanted = replace(wanted, privacy=replace(wanted.privacy, **{field: other}))
    with pytest.raises(
        FailedPrecondition, match=f"^{field}: budget account team sums .* {getattr(own, field)} only.*{other}"
    ):
        ledger.create_set(wanted, NANO, charge_delta(1e-6), MAX_SETS)
    assert ledger.get_account("team") == own


def test_a_deleted_set_cannot_be_charged_and_its_releases_rest(ledger: SqliteLedger) -> None:
    """What was pending is lost, what was published is expired: nothing would deliver or restore them."""
    stored = add_set(ledger)
    publish(ledger, stored, "a", charge_of())
    publish(ledger, stored, "b", charge_of())
    ledger.mark_release(stored.set_id, 1, ReleaseState.PUBLISHED)
    ledger.delete_set("guests")
    states = [release.state for release in ledger.list_releases("guests", 0, 9)]
    assert states == [ReleaseState.LOST, ReleaseState.EXPIRED]
    with pytest.raises(NotFound):
        ledger.charge_release(release_of(stored, 3, "c"), "guests", charge_of(), 2 * NANO)
    add_set(ledger)
    with pytest.raises(NotFound):
        ledger.charge_release(release_of(stored, 3, "c"), "guests", charge_of(), 2 * NANO)


def test_a_release_moves_forward_only(ledger: SqliteLedger) -> None:
    """Every pair of states is either a step along, the same state again, or refused."""
    stored = add_set(ledger)
    onward = {
        "pending": {"pending", "published", "expired", "lost"},
        "published": {"published", "expired"},
        "expired": {"expired"},
        "lost": {"lost"},
    }
    pairs = [(before, after) for before in onward for after in onward]
    for sequence, (before, after) in enumerate(pairs, start=1):
        publish(ledger, stored, f"{sequence}", charge_of())
        ledger.mark_release(stored.set_id, sequence, ReleaseState(before))
        if after in onward[before]:
            ledger.mark_release(stored.set_id, sequence, ReleaseState(after))
        else:
            with pytest.raises(FailedPrecondition):
                ledger.mark_release(stored.set_id, sequence, ReleaseState(after))
        assert ledger.get_release("guests", sequence).state == (after if after in onward[before] else before)
    with pytest.raises(NotFound):
        ledger.mark_release(stored.set_id, 99, ReleaseState.LOST)


def test_a_budget_is_only_ever_raised_and_each_raise_is_on_record(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Both totals move up or stay; the audit rows survive a reopen."""
    stored = add_set(ledger, epsilon=1, delta=1e-9)
    publish(ledger, stored, "a", charge_of())
    with pytest.raises(BudgetExceeded):
        publish(ledger, stored, "b", charge_of())
    account = ledger.raise_budget("guests", 2 * NANO, charge_delta(2e-9), "board of 4 May", 5)
    assert (account.total_nano_epsilon, account.total_delta) == (2 * NANO, Fraction(2, 10**9))
    publish(ledger, stored, "b", charge_of())
    for nano_epsilon, delta in ((2 * NANO - 1, Fraction(1)), (3 * NANO, Fraction(1, 10**9)), (3 * NANO, Fraction(2))):
        with pytest.raises(InvalidInput):
            ledger.raise_budget("guests", nano_epsilon, delta, "down", 6)
    with pytest.raises(InvalidInput):
        ledger.raise_budget("guests", 3 * NANO, Fraction(1), "", 6)
    with pytest.raises(NotFound):
        ledger.raise_budget("nobody", NANO, Fraction(0), "why", 6)
    ledger.close()
    with open_ledger(tmp_path) as reopened:
        assert reopened.budget_changes("guests") == [
            BudgetChange(5, 2 * NANO, Fraction(2, 10**9), "", "board of 4 May"),
            BudgetChange(1_700_000_000_000_000, NANO, Fraction(1, 10**9), "", "account made"),
        ]


def test_lost_releases_are_charged_and_their_sequences_skipped(ledger: SqliteLedger, tmp_path: Path) -> None:
    """The operator's answer to a rolled-back ledger: the amount is spent, no sequence comes again, no release appears."""
    stored = add_set(ledger, epsilon=10)
    publish(ledger, stored, "a", charge_of())
    account = ledger.charge_lost_releases("guests", 4, "guests", charge_of(3), "restored the copy of 1 May")
    assert (account.spent_nano_epsilon, account.charges) == (4 * NANO, 2)
    assert ledger.next_sequence("guests") == 5
    with pytest.raises(AlreadyExists):
        ledger.charge_lost_releases("guests", 4, "guests", charge_of(3), "again")
    with pytest.raises(BudgetExceeded):
        ledger.charge_lost_releases("guests", 9, "guests", charge_of(7), "more than there is")
    assert publish(ledger, stored, "b", charge_of()).sequence == 5
    assert [release.sequence for release in ledger.list_releases("guests", 0, 9)] == [5, 1]
    ledger.close()
    open_ledger(tmp_path).close()


def test_confirmed_losses_are_among_the_changes_of_a_budget(ledger: SqliteLedger) -> None:
    """Releases are not."""
    stored = add_set(ledger, epsilon=4)
    publish(ledger, stored, "a", charge_of())
    ledger.charge_lost_releases("guests", 4, "guests", charge_of(2), "restored the copy of 1 May")
    assert {(change.lost_set, change.nano_epsilon, change.reason) for change in ledger.budget_changes("guests")} == {
        ("guests", 2 * NANO, "restored the copy of 1 May"),
        ("", 4 * NANO, "account made"),
    }
    assert ledger.budget_changes("nobody") == []
