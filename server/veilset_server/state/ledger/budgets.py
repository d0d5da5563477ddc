"""Budget accounts in the ledger: what was given, what was charged. Functions on an open transaction.

Both tables only grow. `append_charge` is the only way in for a charge; triggers check behind it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from veilset.core.params import Adjacency, PrivacyParameters, check_integer, check_name
from veilset.core.privacy.budget import format_delta, format_nano_epsilon, parse_delta
from veilset.errors import BudgetExceeded, FailedPrecondition, NotFound, StateCorrupted, must_be
from veilset_server.records import Account, BudgetChange, Charge
from veilset_server.state.ledger.file import LEDGER_NAME, damage
from veilset_server.state.ledger.schema import Row, Value, first_link, next_link, seal

MAX_NANO_EPSILON = 10**18
"""Of a budget or a charge; two of them stay below SQLite's 2^63."""

MOST_CHANGES = 1000
"""That are shown of one account."""

BUDGET_COLUMNS = ("position", "account", "total_nano_epsilon", "total_delta", "reason", "at_us")
CHARGE_COLUMNS = (
    "position",
    "account",
    "set_name",
    "sequence",
    "set_id",
    "request_id",
    "manifest_sha256",
    "nano_epsilon",
    "delta",
    "spent_nano_epsilon",
    "spent_delta",
    "reason",
    "at_us",
)


@dataclass(frozen=True, slots=True)
class ChargeEntry:
    """What a charge is for. set_id, request_id and manifest_sha256 are None where the releases themselves are lost."""

    set_name: str
    sequence: int
    set_id: int | None
    request_id: str | None
    manifest_sha256: bytes | None
    reason: str
    at_us: int


SELECT_ACCOUNTS = "SELECT name, adjacency, elements_per_user, seal FROM accounts"


def account_from_row(row: Row) -> tuple[Adjacency, int]:
    """Relation and unit in a row of `SELECT_ACCOUNTS`. Raises StateCorrupted."""
    name, adjacency, elements_per_user, stored_seal = row
    if seal(*row[:-1]) != stored_seal:
        raise StateCorrupted(f"{LEDGER_NAME}: the row of account {name} is damaged", file=LEDGER_NAME)
    with damage(LEDGER_NAME):
        return Adjacency(adjacency), elements_per_user


def join_account(
    transaction: sqlite3.Connection,
    name: str,
    privacy: PrivacyParameters,
    nano_epsilon: int,
    delta: Fraction,
    at_us: int,
) -> None:
    """Make the account with its first budget, or let a set that promises ``privacy`` join the one that there is.

    Raises InvalidInput, and FailedPrecondition if releases of that relation or unit cannot be summed with the account's.
    """
    check_name("account", name)
    row = transaction.execute(f"{SELECT_ACCOUNTS} WHERE name = ?", (name,)).fetchone()
    if row is None:
        values = (name, str(privacy.adjacency), privacy.elements_per_user)
        transaction.execute("INSERT INTO accounts VALUES (?, ?, ?, ?)", (*values, seal(*values)))
        _append_budget(transaction, name, nano_epsilon, delta, "account made", at_us)
        return
    adjacency, elements_per_user = account_from_row(row)
    for field, own, asked in (
        ("adjacency", adjacency, privacy.adjacency),
        ("elements_per_user", elements_per_user, privacy.elements_per_user),
    ):
        if own != asked:
            raise FailedPrecondition(
                f"{field}: budget account {name} sums releases with {field} {own} only, so a set with {asked} cannot join it; "
                f"give the set {own}, or an account of its own",
                field=field,
            )


def read_account(transaction: sqlite3.Connection, name: str) -> Account:
    """Raises NotFound."""
    made = transaction.execute(f"{SELECT_ACCOUNTS} WHERE name = ?", (name,)).fetchone()
    total = transaction.execute(
        "SELECT total_nano_epsilon, total_delta FROM budgets WHERE account = ? ORDER BY position DESC LIMIT 1", (name,)
    ).fetchone()
    if made is None or total is None:
        raise NotFound("account: no budget account of that name", field="account")
    spent = transaction.execute(
        "SELECT spent_nano_epsilon, spent_delta FROM charges WHERE account = ? ORDER BY position DESC LIMIT 1", (name,)
    ).fetchone() or (0, "0")
    (count,) = transaction.execute("SELECT COUNT(*) FROM charges WHERE account = ?", (name,)).fetchone()
    with damage(LEDGER_NAME):
        return Account(
            name, *account_from_row(made), total[0], spent[0], parse_delta(total[1]), parse_delta(spent[1]), count
        )


def read_changes(transaction: sqlite3.Connection, name: str) -> list[BudgetChange]:
    """The last `MOST_CHANGES` totals that were given and losses that were confirmed, oldest first."""
    query = (
        "SELECT at_us, total_nano_epsilon, total_delta, '', reason FROM budgets WHERE account = :name UNION ALL "
        "SELECT at_us, nano_epsilon, delta, set_name, reason FROM charges WHERE account = :name AND set_id IS NULL "
        f"ORDER BY 1 DESC LIMIT {MOST_CHANGES}"
    )
    with damage(LEDGER_NAME):
        rows = transaction.execute(query, {"name": name}).fetchall()
        return [BudgetChange(at, nano, parse_delta(delta), *rest) for at, nano, delta, *rest in reversed(rows)]


def read_spent(transaction: sqlite3.Connection) -> dict[str, tuple[int, Fraction]]:
    """What every account that was ever charged has spent: nano-ε and δ."""
    query = (
        "SELECT account, spent_nano_epsilon, spent_delta FROM charges "
        "WHERE position IN (SELECT MAX(position) FROM charges GROUP BY account)"
    )
    with damage(LEDGER_NAME):
        return {name: (nano, parse_delta(delta)) for name, nano, delta in transaction.execute(query)}


def raise_account(
    transaction: sqlite3.Connection, name: str, nano_epsilon: int, delta: Fraction, reason: str, at_us: int
) -> Account:
    """New totals, at least the present ones, and an audit row. Raises NotFound, InvalidInput."""
    present = read_account(transaction, name)
    if nano_epsilon < present.total_nano_epsilon:
        raise must_be("epsilon", "at least the present total; a budget is never lowered")
    if delta < present.total_delta:
        raise must_be("delta", "at least the present total; a budget is never lowered")
    _append_budget(transaction, name, nano_epsilon, delta, reason, at_us)
    return read_account(transaction, name)


def _append_budget(
    transaction: sqlite3.Connection, name: str, nano_epsilon: int, delta: Fraction, reason: str, at_us: int
) -> None:
    check_integer("nano_epsilon", nano_epsilon, 0, MAX_NANO_EPSILON)
    if not 0 <= delta <= 1:
        raise must_be("delta", "a number in [0, 1]")
    values = (name, nano_epsilon, format_delta(delta), reason, at_us)
    _append(transaction, "budgets", BUDGET_COLUMNS, values)


def check_fits(account: Account, charge: Charge) -> None:
    """Raises InvalidInput, or BudgetExceeded unless both ε and δ fit into what is left."""
    check_integer("nano_epsilon", charge.nano_epsilon, 0, MAX_NANO_EPSILON)
    if not 0 <= charge.delta <= 1:
        raise must_be("delta", "a number in [0, 1]")
    fits_epsilon = account.spent_nano_epsilon + charge.nano_epsilon <= account.total_nano_epsilon
    if not (fits_epsilon and account.spent_delta + charge.delta <= account.total_delta):
        raise budget_exceeded(account, charge)


def append_charge(transaction: sqlite3.Connection, account: Account, charge: Charge, entry: ChargeEntry) -> int:
    """Charge ``account``, as read in this transaction; returns the charge's position. Raises as `check_fits`."""
    check_fits(account, charge)
    values = (
        account.name,
        entry.set_name,
        entry.sequence,
        entry.set_id,
        entry.request_id,
        entry.manifest_sha256,
        charge.nano_epsilon,
        format_delta(charge.delta),
        account.spent_nano_epsilon + charge.nano_epsilon,
        format_delta(account.spent_delta + charge.delta),
        entry.reason,
        entry.at_us,
    )
    return _append(transaction, "charges", CHARGE_COLUMNS, values)


def _append(transaction: sqlite3.Connection, table: str, columns: tuple[str, ...], values: tuple[Value, ...]) -> int:
    last = transaction.execute(f"SELECT position, chain FROM {table} ORDER BY position DESC LIMIT 1").fetchone()
    position, before = last or (0, first_link(table, read_ledger_id(transaction)))
    row = (position + 1, *values)
    names, marks = ", ".join((*columns, "chain")), ", ".join("?" * (len(columns) + 1))
    transaction.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", (*row, next_link(before, *row)))
    return position + 1


def read_ledger_id(transaction: sqlite3.Connection) -> str:
    """The id that the ledger shares with its state folder. Raises StateCorrupted."""
    rows = transaction.execute("SELECT ledger_id FROM ledger").fetchall()
    if len(rows) != 1:
        raise StateCorrupted(f"{LEDGER_NAME}: does not say whose it is", file=LEDGER_NAME)
    return str(rows[0][0])


def budget_exceeded(account: Account, charge: Charge) -> BudgetExceeded:
    """The error to raise; asked, spent, left and total, each as exact decimal texts of ε and of δ, are its details."""
    asked = _texts("asked", charge.nano_epsilon, format_delta(charge.delta))
    spent = _texts("spent", account.spent_nano_epsilon, format_delta(account.spent_delta))
    left = _texts(
        "left",
        account.total_nano_epsilon - account.spent_nano_epsilon,
        format_delta(account.total_delta - account.spent_delta),
    )
    total = _texts("total", account.total_nano_epsilon, format_delta(account.total_delta))
    details = asked | spent | left | total
    return BudgetExceeded(
        f"budget account {account.name}: asked for epsilon {details['asked_epsilon']} and delta {details['asked_delta']}, "
        f"but of {details['total_epsilon']} and {details['total_delta']} only {details['left_epsilon']} and "
        f"{details['left_delta']} are left; nothing was charged. To go on, raise it: veilset budget --account "
        f"{account.name} {_raise(account, charge)} --reason …",
        account=account.name,
        **details,
    )


def _raise(account: Account, charge: Charge) -> str:
    """The options that raise what is short, δ rounded up to four digits."""
    short = []
    if account.spent_nano_epsilon + charge.nano_epsilon > account.total_nano_epsilon:
        short.append(f"--raise-epsilon {format_nano_epsilon(account.spent_nano_epsilon + charge.nano_epsilon)}")
    needed = account.spent_delta + charge.delta
    if needed > account.total_delta:
        with localcontext(prec=4, rounding=ROUND_CEILING):
            short.append(f"--raise-delta {Decimal(needed.numerator) / Decimal(needed.denominator):g}")
    return " ".join(short)


def _texts(what: str, nano_epsilon: int, delta: str) -> dict[str, str]:
    return {f"{what}_epsilon": format_nano_epsilon(nano_epsilon), f"{what}_delta": delta}
