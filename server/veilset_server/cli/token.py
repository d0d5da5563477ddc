"""``veilset token``: the access tokens of a service, made and revoked in its state folder, also while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from veilset._system import iso_time
from veilset.cli import options
from veilset.errors import must_be
from veilset_server.cli import parse_duration, state_folder
from veilset_server.principals import Role, make_principal
from veilset_server.state.entropy import SystemClock
from veilset_server.state.tokens import TokenFile, TokenRecord, make_token, make_token_id, token_hash

LONGEST_SECONDS = 10 * 365 * 86_400
NEVER = "never"


def _parse_expiry(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    return None if value == NEVER else parse_duration(context, parameter, value)


@click.group("token", short_help="Make, list and revoke access tokens.")
def token() -> None:
    """Make, list and revoke the tokens that clients show. With the first one a service asks every caller for a token."""


@token.command("create", short_help="Make a token.")
@click.option("--role", "roles", type=options.choice(Role), multiple=True, required=True, help="Role; repeatable.")
@click.option(
    "--sets", multiple=True, required=True, metavar="PATTERN", help="Sets it is for: a name, 'customers-*', or '*'."
)
@click.option(
    "--expires", default="90d", show_default=True, callback=_parse_expiry, help="Valid for: 12h, 30d, … or 'never'."
)
@click.option(
    "--name",
    help="Who holds it: uploads and sets belong to the name, so the token that follows gets the same.  [default: its id]",
)
@state_folder
@options.as_json
def create_token(
    roles: tuple[str, ...], sets: tuple[str, ...], expires: int | None, name: str | None, state: Path, as_json: bool
) -> None:
    """Make a token and print it, once: only its hash is kept. A running service knows it at once.

    Example: veilset token create --role producer --sets 'customers-*' --expires 30d --name crm > crm.token
    """
    if expires is not None and not 1 <= expires <= LONGEST_SECONDS:
        raise must_be("expires", f"between 1s and {LONGEST_SECONDS // 86_400}d, or {NEVER}")
    now_us, token_id = SystemClock().now_us(), make_token_id()
    text = make_token(token_id)
    record = TokenRecord(
        token_id=token_id,
        principal=make_principal(name or token_id, roles, sets),
        sha256=token_hash(text),
        created_at_us=now_us,
        expires_at_us=None if expires is None else now_us + expires * 1_000_000,
    )
    new_folder = not state.exists()
    TokenFile(state).add(record, now_us)
    if new_folder:
        click.echo(
            f"veilset: {state} did not exist and was made; the token is known only to a service that runs with this --state",
            err=True,
        )
    shown = describe(record, now_us)
    click.echo(json.dumps({"token": text} | shown) if as_json else text)
    if not as_json:
        click.echo(f"veilset: token {token_id}, expires {shown['expires'] or NEVER}; it is not shown again", err=True)


@token.command("list", short_help="List the tokens.")
@state_folder
@options.as_json
def list_tokens(state: Path, as_json: bool) -> None:
    """List all tokens by id, never the tokens themselves, one a line; with --json one object a line."""
    now_us = SystemClock().now_us()
    for record in TokenFile(state).read():
        shown = describe(record, now_us)
        rights = f"{','.join(shown['roles'])}\t{','.join(shown['sets'])}"
        text = f"{shown['id']}\t{shown['name']}\t{rights}\t{shown['state']}\texpires {shown['expires'] or NEVER}"
        click.echo(json.dumps(shown) if as_json else text)


@token.command("revoke", short_help="End a token.")
@click.argument("token_id", metavar="ID")
@state_folder
@options.as_json
def revoke_token(token_id: str, state: Path, as_json: bool) -> None:
    """End the token of that id. A running service refuses it from its next call on, and an open upload at its next message."""
    now_us = SystemClock().now_us()
    record = TokenFile(state).revoke(token_id, now_us)
    click.echo(json.dumps(describe(record, now_us)) if as_json else f"revoked {token_id}")


def describe(record: TokenRecord, now_us: int) -> dict[str, Any]:
    """What may be shown of a token: not its hash. Times as ISO 8601, None for never."""
    return {
        "id": record.token_id,
        "name": record.principal.name,
        "roles": sorted(record.principal.roles),
        "sets": list(record.principal.sets),
        "state": record.state(now_us),
        "created": iso_time(record.created_at_us),
        "expires": iso_time(record.expires_at_us),
        "revoked": iso_time(record.revoked_at_us),
    }
