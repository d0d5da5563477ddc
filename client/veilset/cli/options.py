"""Options that several commands share; `server` adds those for reaching the service."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from veilset._service.endpoint import Endpoint, make_endpoint, read_token
from veilset._system import read_small
from veilset.core.elements.hashing import AmbientKey
from veilset.core.encodings import ENCODINGS
from veilset.core.encodings.planning import MAX_INCREMENTS
from veilset.core.params import Adjacency, Calibration, HashScheme, Normalization
from veilset.core.privacy.limits import delta_is_large
from veilset.errors import InvalidInput

if TYPE_CHECKING:
    from veilset._service.service import Service


Command = TypeVar("Command", bound=Callable[..., Any])
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
redis = click.option("--redis", envvar="VEILSET_REDIS", metavar="URL", help="Redis or Valkey to read from.")
redis_file = click.option(
    "--redis-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="VEILSET_REDIS_FILE",
    help="File that holds the URL, so that its password is not on the command line.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
set_name = click.argument("set_name", metavar="SET")
key_file = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="VEILSET_KEY_FILE",
    help="File with the secret of a keyed scheme; refused for other schemes, unless the environment names it.",
)
public_key = click.option(
    "--public-key",
    "public_keys",
    multiple=True,
    envvar="VEILSET_PUBLIC_KEY",
    metavar="HEX",
    help="Public key to trust; repeatable.",
)


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach the service, from the options."""

    target: str
    credentials: Mapping[str, Any] = field(repr=False)

    def connect(self, timeout_seconds: float = 30.0) -> Service:
        """A connection to the service; use it as a context manager. Raises InvalidInput."""
        from veilset._service.service import Service

        with _naming_cert_key():
            return Service(self._endpoint(), timeout_seconds)

    def is_serving(self, timeout_seconds: float) -> bool:
        """As `veilset._service.channel.is_serving`."""
        from veilset._service.channel import is_serving

        with _naming_cert_key():
            return is_serving(self._endpoint(), timeout_seconds)

    def _endpoint(self) -> Endpoint:
        return make_endpoint(self.target, environment=os.environ, **self.credentials)


@contextmanager
def _naming_cert_key() -> Iterator[None]:
    """The library calls a certificate's key ``key``, which is another option here; errors name --cert-key."""
    try:
        yield
    except InvalidInput as error:
        if error.field == "key":
            error.field, error.message = "cert_key", f"cert_key{error.message.removeprefix('key')}"
            error.args = (error.message,)
        raise


def _file(flag: str, name: str, variable: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, name, type=kind, envvar=variable, help=text)


def server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --server, --token-file, --ca, --cert, --cert-key and --insecure; the command gets them as ``server``."""

    @click.option(
        "--server",
        "target",
        envvar="VEILSET_SERVER",
        default="localhost:50051",
        show_default=True,
        help="Address of the service; tls://host:port for TLS with a well-known authority.",
    )
    @click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="File with a bearer token; default: VEILSET_TOKEN, or the file VEILSET_TOKEN_FILE names.",
    )
    @_file("--ca", "ca", "VEILSET_CA_FILE", "Authority (PEM) that signed the service's certificate; means TLS.")
    @_file("--cert", "cert", "VEILSET_CERT_FILE", "Certificate (PEM) to show to the service.")
    @_file("--cert-key", "cert_key", "VEILSET_CERT_KEY_FILE", "Its private key (PEM).")
    @click.option("--insecure", is_flag=True, help="Allow plain text to an address that is not loopback.")
    @wraps(command)
    def with_server(target: str, token_file: Path | None, cert_key: Path | None, **rest: Any) -> Any:
        credentials = {name: rest.pop(name) for name in ("ca", "cert", "insecure")} | {"key": cert_key}
        credentials["token"] = read_token(token_file) if token_file is not None else None
        return command(server=Server(target, credentials), **rest)

    return with_server


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
    """A choice among the values of an enumeration."""
    return click.Choice([value.value for value in values])


def read_redis(url: str | None, path: Path | None) -> str | None:
    """The URL as given, or from a file. Raises InvalidInput where both are on the command line, and for a file that
    cannot be read, without its content."""
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


def encoding(command: Command) -> Command:
    """--encoding, and the dimensions of every encoding; see `take_dimensions`."""
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
    """`privacy` for a command that also takes --spec instead; see `veilset.cli.spec.read_agreed`."""
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


def increments(command: Command) -> Command:
    """--increments, --increment-capacity and --removals-epsilon: the generation that follows a base release."""
    for option in reversed(
        (
            click.option(
                "--increments",
                type=click.IntRange(0, MAX_INCREMENTS),
                default=0,
                help="Releases of new elements that may follow each base release at no further charge (publish --increment); "
                "default: none.",
            ),
            click.option(
                "--increment-capacity",
                type=int,
                default=0,
                help="New elements that one increment is made for; default: a hundredth of --size, at least 1000.",
            ),
            click.option(
                "--removals-epsilon",
                type=float,
                default=0.0,
                help="ε, on top of that of each base release, that lets increments show which elements were removed. Without "
                "it a removed element is answered yes until the next base release.",
            ),
        )
    ):
        command = option(command)
    return command


def rate_limits(command: Command) -> Command:
    """--min-tpr and --max-fpr: what the planner has to keep."""
    command = click.option("--max-fpr", type=float, help="Plan the largest TPR with at most this FPR.")(command)
    return click.option("--min-tpr", type=float, help="Plan the smallest FPR with at least this TPR.")(command)


def take_dimensions(encoding: str | None, parameters: dict[str, Any]) -> tuple[str | None, dict[str, int]]:
    """Take the dimensions out of a command's parameters; returns the encoding's name, given or inferred from them, and
    these.

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
    """One line on standard error where δ is so large that publishing a random element would satisfy it."""
    if delta_is_large(delta, size):
        click.echo(
            f"veilset: warning: δ = {delta:g} is no guarantee for a set of {size} elements: publishing a random one would "
            f"satisfy it; choose a δ below {0.1 / size:g}",
            err=True,
        )


def read_key(path: Path | None) -> bytes | None:
    """The secret of a keyed scheme from a file, without one newline at its end; an `AmbientKey` if the environment
    names the file."""
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
    """The secret for a new set: ``required`` with a keyed scheme, refused with another one unless the environment names
    the file."""
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
    help="How an element becomes a digest; the keyed scheme needs a secret (veilset secret create).",
)


class _Profile(click.Choice[str]):
    """A normalization by its name, with or without version."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        known = {profile.versioned: profile.value for profile in Normalization}
        return super().convert(known.get(value, value), param, ctx)


normalization = click.option(
    "--normalization",
    type=_Profile([profile.value for profile in Normalization]),
    default=Normalization.NONE.value,
    show_default=True,
    help="What is done to the text of each element first; the name may have its version (email-1).",
)


def spec_file(text: str) -> Callable[[Command], Command]:
    """The option --spec FILE; text: its help."""
    return click.option(
        "--spec", "spec_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=text
    )
