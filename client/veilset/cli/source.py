"""Where a reading command gets its release from: Redis, or a file saved by ``veilset fetch``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from veilset.cli.options import key_file, public_key, read_key, redis, set_name
from veilset.errors import InvalidInput
from veilset.reader import View, open_view

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Source:
    """A release to read, as the options name it."""

    set_name: str
    target: str
    sequence: int
    public_keys: tuple[str, ...]
    key: bytes | None

    def open(self, **decision: Any) -> View:
        """Fetch and check it; arguments as `veilset.open`."""
        return open_view(
            self.target,
            self.set_name,
            sequence=self.sequence,
            public_keys=self.public_keys,
            key=self.key,
            **decision,
        )


def source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds SET, --release, --redis, --sequence, --public-key and --key-file; the command gets them as ``source``."""

    @set_name
    @click.option("--release", type=click.Path(dir_okay=False), help="Read a saved release (veilset fetch), not Redis.")
    @redis
    @click.option("--sequence", type=int, default=0, help="Which release; default: the newest.")
    @public_key
    @key_file
    @wraps(command)
    def with_source(
        set_name: str,
        release: str | None,
        redis: str | None,
        sequence: int,
        public_keys: tuple[str, ...],
        key_file: Path | None,
        **rest: Any,
    ) -> Any:
        target = release or redis
        if target is None:
            raise InvalidInput("redis", "given, by --redis URL or VEILSET_REDIS, or a saved release by --release FILE")
        if release is None and "://" not in target:  # else it would be taken for a file
            raise InvalidInput("redis", "a URL such as redis://127.0.0.1:6379/0")
        return command(source=Source(set_name, target, sequence, public_keys, read_key(key_file)), **rest)

    return with_source


def warn_if_useless(view: View) -> None:
    """One line on standard error where the release takes nobody for a member."""
    if view.decoder.true_positive_rate == 0:
        click.echo(
            "veilset: warning: this release answers yes to nobody: its vector is overfull, or its ε too small", err=True
        )
