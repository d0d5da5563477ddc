"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from veilset._system import read_small
from veilset.cli.server import server as server_options
from veilset.core.elements.hashing import AmbientKey
from veilset.core.encodings import ENCODINGS
from veilset.core.params import Adjacency, Calibration, HashScheme, Normalization
from veilset.core.privacy.limits import delta_is_large
from veilset.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A number of bytes such as 65536, 64K, 8M or 1G (powers of 1024)."""
    if value is None:
        return None
    text = value.strip().lower().removesuffix("ib").removesuffix("b")
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("k", "m", "g") else (text, "")
    if not (number.isascii() and number.isdigit() and int(number)):
        raise click.BadParameter("must be a number of bytes such as 65536, 64K, 8M or 1G", context, parameter)
    return int(number) * _UNITS[unit]


def parse_seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A length of time such as 90, 90s, 15m, 12h or 7d, in seconds."""
    if value is None:
        return None
    text = value.strip().lower()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, "s")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number, re.ASCII):
        raise click.BadParameter("must be a length of time such as 90s, 15m, 12h or 7d", context, parameter)
    return float(number) * _SECONDS[unit]


def choice(values: type[StrEnum]) -> click.Choice[str]:
    """The values of an enumeration as users write them."""
    return click.Choice([value.value for value in values])


server = server_options
redis = click.option("--redis", envvar="VEILSET_REDIS", metavar="URL", help="Redis or Valkey to read from.")
redis_file = click.option(
    "--redis-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="VEILSET_REDIS_FILE",
    help="File that holds the URL, so that a password in it stands on no command line.",
)


def read_redis(url: str | None, path: Path | None) -> str | None:
    """The URL as given, or from a file. Raises InvalidInput for both on the command line, and without the content of the file."""
    context = click.get_current_context()
    given = [
        name for name in ("redis", "redis_file") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if len(given) == 2:
        raise InvalidInput("redis-file", "redis-file and --redis exclude each other; give one of them")
    if path is None or given == ["redis"]:
        return url
    try:
        return read_small(path).decode().strip() if given or url is None else url
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidInput(
            "redis-file", f"redis-file cannot be read ({reason}); give a file that holds a URL"
        ) from None


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
set_name = click.argument("set_name", metavar="SET")


def encoding(command: Command) -> Command:
    """--encoding, and the dimensions that each has; see `take_dimensions`."""
    for family in reversed(list(ENCODINGS.values())):
        for name, text in reversed(list(family.DIMENSIONS.items())):
            flag = "--" + name.replace("_", "-")
            command = click.option(flag, name, type=int, help=f"Of {family.encoding}. {text} Default: planned.")(
                command
            )
    return click.option("--encoding", type=click.Choice(list(ENCODINGS)), help="How a set becomes a noisy vector.")(
        command
    )


def privacy(command: Command) -> Command:
    """What a release promises: --epsilon, --delta, --adjacency and their companions."""
    return _promise(command, required=True)


def privacy_unless_spec(command: Command) -> Command:
    """The same for a command that takes --spec in their place; see `veilset.cli.spec.read_agreed`."""
    return _promise(command, required=False)


def _promise(command: Command, *, required: bool) -> Command:
    for option in reversed(
        (
            click.option(
                "--size",
                type=int,
                required=required,
                help="Expected number of distinct elements (beside --spec: of this side): a round number, since the "
                "vector's public length follows from it.",
            ),
            click.option("--epsilon", type=float, required=required, help="ε of one release, in (0, 64]."),
            click.option("--delta", type=float, default=0.0, show_default=True, help="δ of one release, in [0, 0.1]."),
            click.option(
                "--adjacency",
                type=choice(Adjacency),
                required=required,
                help="Neighbouring relation: add-remove hides the size too; replace-one takes it as public.",
            ),
            click.option("--calibration", type=choice(Calibration), help="How ε becomes noise."),
            click.option(
                "--elements-per-user", type=int, default=1, show_default=True, help="Elements one user may contribute."
            ),
            click.option(
                "--min-size",
                type=int,
                default=1,
                show_default=True,
                help="Public promise: at least this many distinct elements.",
            ),
            encoding,
            click.option("--max-bytes", callback=parse_bytes, metavar="SIZE", help="Largest vector, such as 8M."),
        )
    ):
        command = option(command)
    return command


def take_dimensions(encoding: str | None, parameters: dict[str, Any]) -> tuple[str | None, dict[str, int]]:
    """The encoding's name, as given or by what it alone has, and its dimensions, taken out of a command's parameters.

    Raises InvalidInput for dimensions of another encoding.
    """
    given = {
        family.encoding: {name: value for name in family.DIMENSIONS if (value := parameters.pop(name)) is not None}
        for family in ENCODINGS.values()
    }
    named = [name for name, dimensions in given.items() if dimensions]
    if encoding is None and len(named) == 1:
        encoding = named[0]
    for name in named:
        if name != encoding:
            raise InvalidInput(
                option := next(iter(given[name])),
                f"{option} belongs to the encoding {name}; leave it out, or choose {name}",
            )
    return encoding, given.get(encoding or "", {})


def warn_of_large_delta(delta: float, size: int) -> None:
    """One line on standard error where δ is so large that a mechanism which publishes a whole entry would satisfy it."""
    if delta_is_large(delta, size):
        click.echo(
            f"veilset: warning: δ = {delta:g} is no guarantee for a set of {size} elements: publishing a random one "
            f"outright would keep it; stay below {0.1 / size:g}",
            err=True,
        )


def read_key(path: Path | None) -> bytes | None:
    """The secret of a keyed scheme from a file, one trailing newline aside; ambient where the environment names the file."""
    if path is None:
        return None
    try:
        key = read_small(path).removesuffix(b"\n")
        return key if _key_is_explicit() else AmbientKey(key)
    except OSError as error:
        raise InvalidInput("key-file", f"key-file cannot be read: {error.strerror}") from None


def _key_is_explicit() -> bool:
    context = click.get_current_context(silent=True)
    return context is None or context.get_parameter_source("key_file") is not ParameterSource.ENVIRONMENT


def read_key_of(scheme: str, path: Path | None, *, required: bool = True) -> bytes | None:
    """The secret for a set that is being made: with a keyed scheme ``required``, with another refused (but the environment may
    name the file for the keyed sets among many)."""
    if scheme != HashScheme.BLAKE2B:
        if path is not None and _key_is_explicit():
            raise InvalidInput(
                "key-file", f"key-file does not belong with scheme {scheme}, which takes no secret; leave it out"
            )
        return None
    if path is None and required:
        raise InvalidInput(
            "key-file",
            f"key-file is needed with scheme {scheme}; the service receives only a check value of the secret",
        )
    return read_key(path)


scheme = click.option(
    "--scheme",
    type=choice(HashScheme),
    default=HashScheme.MMH3.value,
    show_default=True,
    help="Element to digest; the keyed one needs a secret (veilset secret create).",
)


class _Profile(click.Choice[str]):
    """A normalization by its name, with its version or without."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        known = {profile.versioned: profile.value for profile in Normalization}
        return super().convert(known.get(value, value), param, ctx)


normalization = click.option(
    "--normalization",
    type=_Profile([profile.value for profile in Normalization]),
    default=Normalization.NONE.value,
    show_default=True,
    help="What is done to each element's text first; with its version (email-1) too.",
)
key_file = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="VEILSET_KEY_FILE",
    help="File with the secret of a keyed scheme; refused for any other, unless the environment names it.",
)


def spec_file(text: str) -> Callable[[Command], Command]:
    """--spec FILE."""
    return click.option(
        "--spec", "spec_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=text
    )


public_key = click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    envvar="VEILSET_PUBLIC_KEY",
    metavar="HEX",
    help="Key to trust; repeatable.",
)
