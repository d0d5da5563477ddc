"""``veilset budget``, ``confirm-loss``, ``health`` and ``secret``: what an owner looks after beside sets and
releases."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veilset._system import iso_time
from veilset.cli import options
from veilset.cli.options import Server
from veilset.cli.output import emit, escape, lines
from veilset.core.elements.hashing import key_check
from veilset.errors import InvalidInput

if TYPE_CHECKING:
    from veilset._service.records import Budget


SECRET_BYTES = 32


@click.command("budget", short_help="Show or raise a privacy budget.")
@click.argument("set_name", metavar="[SET]", default="")
@click.option("--account", default="", help="A budget account by its own name.")
@click.option("--raise-epsilon", type=float, default=0.0, help="New total of ε; never lower than the present one.")
@click.option("--raise-delta", type=float, help="New total of δ; never lower than the present one.")
@click.option("--reason", default="", help="Why, for the audit log; needed to raise.")
@options.server
@options.as_json
def budget(
    set_name: str,
    account: str,
    raise_epsilon: float,
    raise_delta: float | None,
    reason: str,
    server: Server,
    as_json: bool,
) -> None:
    """Show what the budget account of SET was given, has spent, has left, and when and why that was changed; or raise
    it."""
    if bool(set_name) == bool(account):
        raise InvalidInput("account", "account and SET exclude each other; give exactly one of them")
    with server.connect() as service:
        found = service.budget(set_name, account=account)
        if raise_epsilon or raise_delta is not None:
            service.raise_budget(found.account, epsilon=raise_epsilon, delta=raise_delta, reason=reason)
            found = service.budget(account=found.account)
    _show_account(found, as_json)


@click.command("confirm-loss", short_help="Charge what a restored ledger forgot.")
@options.set_name
@click.option("--epsilon", type=float, required=True, help="Lost ε, at least what the refused publish named.")
@click.option("--delta", type=float, default=0.0, help="Lost δ, at least what the refused publish named.")
@click.option("--reason", required=True, help="Why, for the audit log.")
@options.server
@options.as_json
def confirm_loss(set_name: str, epsilon: float, delta: float, reason: str, server: Server, as_json: bool) -> None:
    """Let SET publish again after its service was restored from an older copy: charge what was spent since that
    copy."""
    with server.connect() as service:
        account = service.confirm_loss(set_name, epsilon=epsilon, delta=delta, reason=reason).account
        found = service.budget(account=account)
    _show_account(found, as_json)


def _show_account(found: Budget, as_json: bool) -> None:
    shown = asdict(found)
    changes = [{"at": iso_time(change.pop("at_us"))} | change for change in shown.pop("changes")]
    rows = [
        f"{change['at']}  {'loss of ' + change['lost_set'] if change['lost_set'] else 'total'}: "
        f"ε {change['epsilon']:g}, δ {change['delta']}  {escape(change['reason'])}"
        for change in changes
    ]
    emit(shown | {"changes": changes}, as_json, "\n".join([lines(shown), "", "changes (UTC)", *rows]))


@click.command("health", short_help="Ask whether the service is ready.")
@click.option("--timeout-seconds", type=float, default=5.0, show_default=True, help="How long to wait for an answer.")
@options.server
@options.as_json
@click.pass_context
def health(context: click.Context, timeout_seconds: float, server: Server, as_json: bool) -> None:
    """Ask the service whether it is ready, for container health checks: exit code 0 if it is, 1 if not or out of
    reach."""
    serving = server.is_serving(timeout_seconds)
    status = "serving" if serving else "not serving"
    emit({"server": server.target, "status": status}, as_json, status)
    if not serving:
        context.exit(1)


@click.group("secret", short_help="Make the secret of a keyed scheme.")
def secret() -> None:
    """Make the secret of a keyed scheme, and compare secrets by their check values."""


@secret.command("create", short_help="Make a random secret.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
def create_secret(path: Path, as_json: bool) -> None:
    """Write 32 random bytes to a new FILE that only you can read.

    Send it to your partner by a channel that you both trust. Do not use a password instead: it can be guessed from the
    check value in any release.
    """
    made = b"\n"
    while made.endswith(b"\n"):  # reading would remove it as the end of a line
        made = secrets.token_bytes(SECRET_BYTES)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    _show_check(path, made, as_json, f"wrote {path}; check value")


@secret.command("check", short_help="Show the check value of a secret.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@options.as_json
def check_secret(path: Path, as_json: bool) -> None:
    """Show the check value of the secret in FILE: equal secrets have equal ones. It is public; every release has it."""
    found = options.read_key(path)
    assert found is not None
    _show_check(path, found, as_json, "check value")


def _show_check(path: Path, key: bytes, as_json: bool, text: str) -> None:
    value = key_check(key)
    emit({"file": str(path), "key_check": value}, as_json, f"{text} {value}")
