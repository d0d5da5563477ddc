"""``veilset secret``: the secret of a keyed scheme, made and named on the machines of those who share it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from veilset.cli import options
from veilset.cli.output import emit
from veilset.core.elements.hashing import key_check

SECRET_BYTES = 32


@click.group("secret", short_help="Make the secret of a keyed scheme.")
def secret() -> None:
    """Make the secret of a keyed scheme, and tell two secrets apart by their check values."""


@secret.command("create", short_help="Make a random secret.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
def create(path: Path, as_json: bool) -> None:
    """Write 32 random bytes to a new FILE that only you can read.

    Hand it to your partner by a channel that you both trust. A password in its place can be guessed from any release,
    by its check value.
    """
    made = b"\n"
    while made.endswith(b"\n"):  # which reading would take for the end of a line
        made = secrets.token_bytes(SECRET_BYTES)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    _show(path, made, as_json, f"wrote {path}; check value")


@secret.command("check", short_help="Show the check value of a secret.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
def check(path: Path, as_json: bool) -> None:
    """Show the check value of the secret in FILE: equal secrets have equal ones. It is public, as every release tells it."""
    found = options.read_key(path)
    assert found is not None
    _show(path, found, as_json, "check value")


def _show(path: Path, key: bytes, as_json: bool, text: str) -> None:
    value = key_check(key)
    emit({"file": str(path), "key_check": value}, as_json, f"{text} {value}")
