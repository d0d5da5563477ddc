"""``veilset keys``: the signing keys of a state folder, also while a service runs on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from veilset._system import iso_time
from veilset.cli import options
from veilset.cli.output import emit
from veilset_server.cli import parse_duration, state_folder
from veilset_server.state.entropy import SystemClock
from veilset_server.state.keys import SigningKey, change_keys, new_key, public_pem, read_keys, retire, rotate

_REMINDER = "a running service takes this up on SIGHUP"


@click.group("keys", short_help="Show and rotate the signing keys.")
def keys() -> None:
    """Show, rotate and export the keys that sign a service's releases. Readers pin their public halves."""


@keys.command("list", short_help="List the keys.")
@state_folder
@options.as_json
def list_keys(state: Path, as_json: bool) -> None:
    """List the keys, the newest first, one a line; with --json one object a line."""
    now_us = SystemClock().now_us()
    for key in read_keys(state):
        shown = describe(key, now_us)
        times = f"since {shown['active_since'] or 'the first start'}, retires {shown['retires'] or 'never'}"
        text = f"{shown['key_id']}\t{shown['public_key']}\t{shown['state']}\t{times}"
        click.echo(json.dumps(shown) if as_json else text)


@keys.command("rotate", short_help="Make a new key beside the present one.")
@click.option(
    "--overlap",
    default="30d",
    show_default=True,
    callback=parse_duration,
    help="How long the present key signs too, for readers to learn the new one; 0 where it has leaked.",
)
@state_folder
@options.as_json
def rotate_keys(overlap: int, state: Path, as_json: bool) -> None:
    """Make a new key. It signs at once, and the present one beside it until the overlap is over; private keys whose time is over
    are destroyed.

    Before that time give readers the new public key, and publish every set once: releases of before carry the old signature only.
    """
    now_us = SystemClock().now_us()
    made = new_key(now_us)
    changed = change_keys(state, lambda known: rotate(known, made, now_us, overlap))
    shown = describe(made, now_us) | {"keys": [describe(key, now_us) for key in changed]}
    emit(shown, as_json, f"new key {shown['key_id']}; to pin: {shown['public_key']}; {_REMINDER}")


@keys.command("retire", short_help="End a key at once.")
@click.argument("key_id", metavar="KEY_ID")
@state_folder
@options.as_json
def retire_key(key_id: str, state: Path, as_json: bool) -> None:
    """End the key of that id before its time and destroy its private half. What it signed stays this service's own."""
    now_us = SystemClock().now_us()
    changed = change_keys(state, lambda known: retire(known, key_id, now_us))
    shown = next(describe(key, now_us) for key in changed if key.key_id == key_id)
    emit(shown, as_json, f"retired {key_id}; {_REMINDER}")


@keys.command("export", short_help="Print the public keys.")
@click.option("--pem", is_flag=True, help="As PEM blocks.")
@click.option("--retired", "with_retired", is_flag=True, help="Those of retired keys too.")
@state_folder
@options.as_json
def export_keys(pem: bool, with_retired: bool, state: Path, as_json: bool) -> None:
    """Print the public keys to pin, one a line in hexadecimal digits, the newest first: for ``--public-key`` and
    VEILSET_PUBLIC_KEY."""
    now_us = SystemClock().now_us()
    chosen = [key.public for key in read_keys(state) if with_retired or key.signs(now_us)]
    texts = [public_pem(public).decode("ascii").strip() if pem else public.hex() for public in chosen]
    emit({"public_keys": texts}, as_json, "\n".join(texts))


def describe(key: SigningKey, now_us: int) -> dict[str, Any]:
    """What may be shown of a key. Times as ISO 8601, None for unknown or never."""
    return {
        "key_id": key.key_id,
        "public_key": key.public.hex(),
        "state": key.state(now_us),
        "active_since": iso_time(key.since_us),
        "retires": iso_time(key.retires_us),
    }
