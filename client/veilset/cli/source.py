"""Where a command that reads gets its release from: Redis, or a file saved by ``veilset fetch``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from veilset._reader.follower import Follower, follow
from veilset._reader.reader import open_view
from veilset._reader.remote_view import RemoteView, remote
from veilset._reader.sources import is_url
from veilset._reader.view import View
from veilset._service.spec import Spec
from veilset.cli.options import (
    key_file,
    parse_seconds,
    public_key,
    read_key,
    read_redis,
    redis,
    redis_file,
    set_name,
    spec_file,
)
from veilset.errors import InvalidInput, must_be

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Source:
    """A release to read, from the options."""

    set_name: str
    target: str
    sequence: int
    public_keys: tuple[str, ...]
    key: bytes | None
    spec: Spec | None = None
    cache_dir: Path | None = None
    max_age_seconds: float | None = None

    def open(self, **decision: Any) -> View:
        """Fetch and check it, with a warning if Redis could not be asked; arguments as of `veilset.open`."""
        cache_dir = self.cache_dir if is_url(self.target) else None  # a saved release needs no cache
        view = open_view(
            self.target, self.set_name, sequence=self.sequence, cache_dir=cache_dir, **self._demands, **decision
        )
        if view.offline is not None:
            name, age = f"{self.set_name}/{view.header.sequence}", f"{view.age_seconds:.0f} s old"
            click.echo(
                f"veilset: warning: {view.offline.message}; answering from the cached release {name}, {age}", err=True
            )
        return view

    def remote(self, **decision: Any) -> RemoteView:
        """Ask the release in Redis; arguments as of `veilset.remote`. Raises InvalidInput for options that exclude this."""
        if self.cache_dir is not None:
            raise InvalidInput(
                "cache-dir", "cache-dir and --remote exclude each other, since --remote keeps nothing; give one of them"
            )
        return remote(self._url("remote"), self.set_name, sequence=self.sequence, **self._demands, **decision)

    def follow(self, **decision: Any) -> Follower:
        """Follow the set; arguments as of `veilset.follow`. Raises InvalidInput for options that exclude this."""
        if self.sequence:
            raise InvalidInput(
                "sequence",
                "sequence and --follow exclude each other, since --follow reads each new release; give one of them",
            )
        return follow(self._url("follow"), self.set_name, cache_dir=self.cache_dir, **self._demands, **decision)

    @property
    def _demands(self) -> dict[str, Any]:
        return {
            "public_keys": self.public_keys,
            "key": self.key,
            "spec": self.spec,
            "max_age_seconds": self.max_age_seconds,
        }

    def _url(self, option: str) -> str:
        if not is_url(self.target):
            raise InvalidInput(
                "redis",
                f"redis is needed with --{option}, which does not work on a file; give --redis in place of --release",
            )
        return self.target


def source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds SET, --release, --redis, --redis-file, --sequence, --public-key, --key-file and --spec; the command gets
    them as ``source``."""

    @set_name
    @click.option("--release", type=click.Path(dir_okay=False), help="Read a saved release (veilset fetch), not Redis.")
    @redis
    @redis_file
    @click.option("--sequence", type=int, default=0, help="Which release; default: the newest.")
    @public_key
    @key_file
    @spec_file("Refuse a release that was not made as this spec says.")
    @wraps(command)
    def with_source(
        set_name: str,
        release: str | None,
        redis: str | None,
        redis_file: Path | None,
        sequence: int,
        public_keys: tuple[str, ...],
        key_file: Path | None,
        spec_file: Path | None,
        **rest: Any,
    ) -> Any:
        redis = read_redis(redis, redis_file)
        target = release or redis
        if target is None:
            raise InvalidInput(
                "redis",
                "redis is needed: give --redis URL or set VEILSET_REDIS, or open a saved release by --release FILE",
            )
        if release is None and "://" not in target:  # else it would be opened as a file
            raise must_be("redis", "a URL such as redis://127.0.0.1:6379/0")
        spec = Spec.load(spec_file) if spec_file is not None else None
        return command(source=Source(set_name, target, sequence, public_keys, read_key(key_file), spec), **rest)

    return with_source


def kept(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --cache-dir and --max-age; below `source`, whose ``source`` gets them."""

    @click.option(
        "--cache-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="VEILSET_CACHE_DIR",
        help="Keep releases in this folder, never go back to an older one, and answer from it while Redis is away.",
    )
    @click.option(
        "--max-age",
        callback=parse_seconds,
        metavar="TIME",
        help="Refuse a release made longer ago, such as 90s, 15m, 12h or 7d.",
    )
    @wraps(command)
    def with_cache(source: Source, cache_dir: Path | None, max_age: float | None, **rest: Any) -> Any:
        return command(source=replace(source, cache_dir=cache_dir, max_age_seconds=max_age), **rest)

    return with_cache


def warn_if_useless(view: View | RemoteView) -> None:
    """Warn on standard error of a release that answers no to every element, and of saturated increments."""
    if view.decoder.saturated:
        why = "saturated: it holds more than it was made for, and every reading would be yes; all answers are no"
    elif view.decoder.true_positive_rate == 0:
        why = "too noisy: its ε is so small that all answers are no"
    else:
        for number in view.decoder.saturated_parts:
            click.echo(
                f"veilset: warning: increment {number} of this generation is saturated: it holds more than it was made for, and "
                "is left out of the answers",
                err=True,
            )
        return
    click.echo(f"veilset: warning: this release is {why}", err=True)
