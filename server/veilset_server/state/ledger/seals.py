"""Hashes over ledger rows: a seal covers one row, a chain covers a row and all rows before it."""

from __future__ import annotations

import hashlib
from typing import Any

Value = int | str | bytes | None
"""What a chained or sealed column can hold."""

Row = tuple[Any, ...]
"""A row as SQLite gives it. STRICT tables guarantee the types; seals and chains are checked before a row is used."""


def seal(*values: Value) -> bytes:
    """SHA-256 of the values, each with its type and length, so that no two different rows give the same bytes."""
    hasher = hashlib.sha256()
    for value in values:
        encoded = _encode(value)
        hasher.update(len(encoded).to_bytes(8, "big") + encoded)
    return hasher.digest()


def _encode(value: Value) -> bytes:
    match value:
        case None:
            return b"n"
        case int():
            return b"i" + str(int(value)).encode("ascii")
        case str():
            return b"s" + value.encode("utf-8")
        case bytes():
            return b"b" + value


def first_link(table: str, ledger_id: str) -> bytes:
    """What the first row of a table is chained to."""
    return seal("veilset chain", table, ledger_id)


def next_link(before: bytes, *values: Value) -> bytes:
    """The chain at a row with these values, given the chain at the row before."""
    return seal(before, *values)
