"""``veilset budget``."""

from __future__ import annotations

from dataclasses import asdict

import click

from veilset._service.records import Budget
from veilset._system import iso_time
from veilset.cli import options
from veilset.cli.output import emit, escape, lines
from veilset.cli.server import Server
from veilset.errors import InvalidInput


@click.command("budget", short_help="Show or raise a privacy budget.")
@click.argument("set_name", metavar="[SET]", default="")
@click.option("--account", default="", help="A budget account by its own name.")
@click.option("--raise-epsilon", type=float, default=0.0, help="New total of ε; never lower than the present one.")
@click.option("--raise-delta", type=float, help="New total of δ; never lower than the present one.")
@click.option("--reason", default="", help="Why, for the audit row; needed to raise.")
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
    """Show what the budget account of SET was given, has spent, has left, and when and why that was changed; or raise it."""
    if bool(set_name) == bool(account):
        raise InvalidInput("account", "account and SET exclude each other; give exactly one of them")
    with server.connect() as service:
        found = service.budget(set_name, account=account)
        if raise_epsilon or raise_delta is not None:
            service.raise_budget(found.account, epsilon=raise_epsilon, delta=raise_delta, reason=reason)
            found = service.budget(account=found.account)
    _show(found, as_json)


@click.command("confirm-loss", short_help="Charge what a restored ledger forgot.")
@options.set_name
@click.option("--epsilon", type=float, required=True, help="Lost ε, at least what the refused publish named.")
@click.option("--delta", type=float, default=0.0, help="Lost δ, at least what the refused publish named.")
@click.option("--reason", required=True, help="Why, for the audit row.")
@options.server
@options.as_json
def confirm_loss(set_name: str, epsilon: float, delta: float, reason: str, server: Server, as_json: bool) -> None:
    """Let SET publish again after its service was restored from an older copy: charge what was spent since that copy."""
    with server.connect() as service:
        account = service.confirm_loss(set_name, epsilon=epsilon, delta=delta, reason=reason).account
        found = service.budget(account=account)
    _show(found, as_json)


def _show(found: Budget, as_json: bool) -> None:
    shown = asdict(found)
    changes = [{"at": iso_time(change.pop("at_us"))} | change for change in shown.pop("changes")]
    rows = [
        f"{change['at']}  {'loss of ' + change['lost_set'] if change['lost_set'] else 'total'}: "
        f"ε {change['epsilon']:g}, δ {change['delta']}  {escape(change['reason'])}"
        for change in changes
    ]
    emit(shown | {"changes": changes}, as_json, "\n".join([lines(shown), "", "changes (UTC)", *rows]))
