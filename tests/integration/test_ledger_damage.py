"""Damaged, foreign, older and later ledger files: refused by name, or read exactly as written; never repaired or reset."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import (
    LEDGER_ID,
    add_set,
    charge_of,
    new_ledger,
    open_ledger,
    publish,
)

from veilset.core.params import Operation
from veilset.errors import StateCorrupted
from veilset_server.records import ReleaseState, SmallBatch
from veilset_server.state.ledger.budgets import BUDGET_COLUMNS, CHARGE_COLUMNS
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.schema import VERSION, first_link, next_link
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

# No shrinking: no damage is simpler than another.
QUICK = settings(
    max_examples=200,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A ledger with something in every table."""
    folder = tmp_path_factory.mktemp("sample")
    with new_ledger(folder) as ledger:
        for name in ("apples", "pears", "plums"):
            stored = add_set(ledger, name, account="fruit")
            for number in range(4):
                publish(ledger, stored, f"{name} {number}", charge_of())
                upload = ledger.open_upload(stored.set_id, f"upload {number}", 0, Operation.REMOVE)
                if number == 1:
                    ledger.seal_part(upload, 3, bytes(16))
                if number > 1:
                    ledger.finish_upload(upload, 7, bytes(16))
            ledger.add_batches([SmallBatch(name, "small", Operation.ADD, bytes(range(16)))])
            ledger.new_run_file(stored.set_id)
            ledger.mark_release(stored.set_id, ledger.next_sequence(name) - 1, ReleaseState.PUBLISHED)
        ledger.raise_budget("fruit", 200 * 10**9, ledger.get_account("fruit").total_delta, "more", 1)
        ledger.delete_set("plums")
    return (folder / LEDGER_NAME).read_bytes()


def content(ledger: SqliteLedger) -> list[object]:
    """Everything that the port tells."""
    names = ("apples", "pears", "plums")
    uploads = [(i, f"upload {n}", 0, Operation.REMOVE) for i in (1, 2) for n in range(4)]
    return [
        ledger.list_sets("", 100),
        [ledger.open_upload(*upload) for upload in uploads],
        ledger.all_open_uploads(),
        [repr(ledger.items(i)) for i in (1, 2)],
        [ledger.operations(name) for name in names],
        ledger.run_files(),
        [ledger.list_releases(name, 0, 100) for name in names],
        [ledger.find_release(name, f"{name} {number}") for name in names for number in range(4)],
        [ledger.releases_in_state(state) for state in ReleaseState],
        [ledger.next_sequence(name) for name in names],
        ledger.get_account("fruit"),
        ledger.charged(),
        ledger.highest_set_id(),
    ]


@pytest.fixture(scope="module")
def sound_content(sample: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What the sample tells."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / LEDGER_NAME).write_bytes(sample)
    with open_ledger(folder) as ledger:
        return content(ledger)


def refused_or_unchanged(folder: Path, damaged: bytes, expected: list[object]) -> bool:
    """Whether the damaged file is refused, by name and untouched; else it must tell the very same as the sound one."""
    path = folder / LEDGER_NAME
    path.write_bytes(damaged)
    try:
        with open_ledger(folder) as ledger:
            assert content(ledger) == expected
    except StateCorrupted as refusal:
        names_the_file = LEDGER_NAME in refusal.message and refusal.details["file"] == LEDGER_NAME
    else:
        return False
    assert names_the_file
    assert path.read_bytes() == damaged
    return True


PLACES = st.integers(0, 1 << 40)
"""Of a bit or byte, modulo the length."""


@QUICK
@given(place=PLACES)
def test_a_flipped_bit_is_refused_or_makes_no_difference(
    tmp_path: Path, sample: bytes, sound_content: list[object], place: int
) -> None:
    """Bits that make no difference lie in unused space and in fields that SQLite keeps for itself."""
    damaged = bytearray(sample)
    damaged[place // 8 % len(sample)] ^= 1 << place % 8
    refused_or_unchanged(tmp_path, bytes(damaged), sound_content)


@QUICK
@given(place=PLACES, stretch=st.one_of(st.binary(min_size=1, max_size=64), st.integers(1, 8192).map(bytes)))
def test_an_overwritten_stretch_is_refused_or_makes_no_difference(
    tmp_path: Path, sample: bytes, sound_content: list[object], place: int, stretch: bytes
) -> None:
    """As from a misplaced write, or a block that reads back as zeros."""
    start = place % len(sample)
    damaged = (sample[:start] + stretch + sample[start + len(stretch) :])[: len(sample)]
    refused_or_unchanged(tmp_path, damaged, sound_content)


@settings(QUICK, max_examples=60)
@given(place=PLACES)
def test_a_truncated_file_is_refused(tmp_path: Path, sample: bytes, sound_content: list[object], place: int) -> None:
    """Whatever is missing at the end."""
    assert refused_or_unchanged(tmp_path, sample[: place % len(sample)], sound_content)


def test_most_flipped_bits_do_make_a_difference(tmp_path: Path, sample: bytes, sound_content: list[object]) -> None:
    """So that the property above is not met by ignoring everything: in the rows of charges every bit counts."""
    start = sample.index(b"1e-9")
    for place in range(8 * start, 8 * (start + 4)):
        damaged = bytearray(sample)
        damaged[place // 8] ^= 1 << place % 8
        assert refused_or_unchanged(tmp_path, bytes(damaged), sound_content)


@pytest.mark.parametrize("stretch", [b"CREATE TABLE charges", b"charges_within_budget", b"live_set_names"])
def test_table_definitions_that_are_no_longer_text_are_refused(
    tmp_path: Path, sample: bytes, sound_content: list[object], stretch: bytes
) -> None:
    """SQLite's own complaint about them is then no text either."""
    damaged = bytearray(sample)
    damaged[sample.index(stretch) + 3] ^= 0x80
    assert refused_or_unchanged(tmp_path, bytes(damaged), sound_content)


def test_a_schema_format_that_sqlite_does_not_know_is_refused(
    tmp_path: Path, sample: bytes, sound_content: list[object]
) -> None:
    """Byte 47 of the file's head; SQLite reports it as an error without a kind."""
    assert refused_or_unchanged(tmp_path, sample[:47] + b"\xff" + sample[48:], sound_content)


@pytest.mark.parametrize("length", [None, 0, 1, 100, 4096])
def test_a_missing_or_cut_ledger_is_not_made_anew(tmp_path: Path, sample: bytes, length: int | None) -> None:
    """Missing, empty, or less than its pages."""
    path = tmp_path / LEDGER_NAME
    if length is not None:
        path.write_bytes(sample[:length])
    with pytest.raises(StateCorrupted, match=LEDGER_NAME):
        open_ledger(tmp_path)
    assert (path.read_bytes() if length is not None else None) == (sample[:length] if length is not None else None)
    assert path.exists() == (length is not None)


def test_making_a_ledger_never_takes_the_place_of_one(tmp_path: Path, sample: bytes) -> None:
    """Not even of an empty file."""
    (tmp_path / LEDGER_NAME).write_bytes(b"")
    with pytest.raises(FileExistsError):
        new_ledger(tmp_path)


EDITS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "later version": lambda plain: plain.execute(f"PRAGMA user_version = {VERSION + 1}"),
    "no version": lambda plain: plain.execute("PRAGMA user_version = 0"),
    "other program's file": lambda plain: plain.execute("PRAGMA application_id = 1"),
    "trigger gone": lambda plain: plain.execute("DROP TRIGGER charges_within_budget"),
    "table added": lambda plain: plain.execute("CREATE TABLE more (x)"),
    "nobody's": lambda plain: plain.execute("DELETE FROM ledger"),
    "other folder's": lambda plain: plain.execute("UPDATE ledger SET ledger_id = 'f'"),
    "amount changed": lambda plain: _without_triggers(plain, "UPDATE charges SET nano_epsilon = 1 WHERE position = 2"),
    "charge moved": lambda plain: _without_triggers(plain, "UPDATE charges SET set_name = 'q' WHERE position = 12"),
    "first charge gone": lambda plain: _without_triggers(
        plain, "DELETE FROM releases WHERE position = 1", "DELETE FROM charges WHERE position = 1"
    ),
    "budget changed": lambda plain: _without_triggers(plain, "UPDATE budgets SET total_nano_epsilon = 999000000000"),
    "audit row gone": lambda plain: _without_triggers(plain, "DELETE FROM budgets WHERE position = 1"),
    "manifest changed": lambda plain: _without_triggers(
        plain, "UPDATE releases SET manifest = x'00' WHERE position = 3"
    ),
    "release gone": lambda plain: _without_triggers(plain, "DELETE FROM releases WHERE position = 3"),
    "operations changed": lambda plain: plain.execute("UPDATE contents SET operations = 1"),
    "digests changed": lambda plain: plain.execute("UPDATE small_uploads SET digests = x'0000000000000000'"),
    "parameter changed": lambda plain: plain.execute(
        "UPDATE sets SET description = replace(description, '1.0', '2.0')"
    ),
    "account's relation changed": lambda plain: _without_triggers(
        plain, "UPDATE accounts SET adjacency = 'replace-one'"
    ),
    "account's unit changed": lambda plain: _without_triggers(plain, "UPDATE accounts SET elements_per_user = 3"),
    "set brought back": lambda plain: plain.execute("UPDATE sets SET deleted = 0"),
    "run's checksum changed": lambda plain: plain.execute(
        "UPDATE runs SET checksum = x'01010101010101010101010101010101'"
    ),
    "removal made an add": lambda plain: plain.execute("UPDATE runs SET operation = 'add'"),
    "upload sealed": lambda plain: plain.execute("UPDATE uploads SET state = 'sealed' WHERE state = 'open'"),
}


def _without_triggers(
    plain: sqlite3.Connection, *statements: str, then: Callable[[sqlite3.Connection], None] = lambda _: None
) -> None:
    """As an edit by hand would that covers its tracks."""
    triggers = plain.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        plain.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert plain.execute(statement).rowcount > 0
    then(plain)
    for _, sql in triggers:
        plain.execute(sql)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_by_hand_is_refused(tmp_path: Path, sample: bytes, edit: str) -> None:
    """Where the file is a sound SQLite database, chains, seals and the schema still tell; refused, and left as it is."""
    path = tmp_path / LEDGER_NAME
    path.write_bytes(sample)
    with closing(sqlite3.connect(path, isolation_level=None)) as plain:
        EDITS[edit](plain)
    edited = path.read_bytes()
    assert edited != sample
    with pytest.raises(StateCorrupted, match=LEDGER_NAME):
        open_ledger(tmp_path)
    assert path.read_bytes() == edited


FORGERIES = {
    "the sums do not add up": "UPDATE charges SET nano_epsilon = 1 WHERE position = 2",
    "passes the budget": "UPDATE budgets SET total_nano_epsilon = 5000000000",
    "lowers a budget": "UPDATE budgets SET total_delta = '0' WHERE position = 2",
    "the sequence does not rise": "UPDATE charges SET sequence = 99 WHERE position = 1",
    "points to one that is missing": "UPDATE charges SET set_id = 99 WHERE position = 1",
}


@pytest.mark.parametrize("complaint", FORGERIES)
def test_sums_are_checked_beneath_the_hashes(tmp_path: Path, sample: bytes, complaint: str) -> None:
    """An edit by a program that makes the hash chain fit again still has to add up."""
    path = tmp_path / LEDGER_NAME
    path.write_bytes(sample)
    with closing(sqlite3.connect(path, isolation_level=None)) as plain:
        _without_triggers(plain, FORGERIES[complaint], then=_chain_anew)
    with pytest.raises(StateCorrupted, match=complaint):
        open_ledger(tmp_path)


def _chain_anew(plain: sqlite3.Connection) -> None:
    for table, columns in (("budgets", BUDGET_COLUMNS), ("charges", CHARGE_COLUMNS)):
        link = first_link(table, LEDGER_ID)
        for row in plain.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY position").fetchall():  # noqa: S608 - constants
            link = next_link(link, *row)
            plain.execute(f"UPDATE {table} SET chain = ? WHERE position = ?", (link, row[0]))  # noqa: S608 - constants


def test_a_ledger_that_is_damaged_while_it_is_open_is_refused_at_the_next_read(tmp_path: Path) -> None:
    """A seal is checked at each read, not only at the start."""
    with new_ledger(tmp_path) as ledger:
        add_set(ledger)
        with ledger._file.transaction() as transaction:
            transaction.execute("UPDATE sets SET seal = x'00'")
        with pytest.raises(StateCorrupted, match=LEDGER_NAME):
            ledger.get_set("guests")
