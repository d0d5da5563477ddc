"""``veilset serve``: found by the client's command line through the entry point group ``veilset.commands``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from veilset_server.settings import Limits, Settings

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the log is JSON lines; what gRPC says of a fault comes as an error

_TYPES = {"int": click.INT, "float": click.FLOAT, "str": click.STRING, "bool": click.BOOL}


def _option(item: Field[Any], text: str) -> Callable[[Any], Any]:
    """The option of one field of the settings."""
    about = dict(item.metadata["option"])
    kind, name = str(item.type).removesuffix(" | None"), f"--{item.name.replace('_', '-')}"
    if choices := about.pop("choices", ()):
        about |= {"type": click.Choice([str(choice) for choice in choices]), "default": str(item.default)}
    elif kind == "Path":
        folder = not about.pop("file_okay", True)
        about["type"] = click.Path(path_type=Path, file_okay=not folder, dir_okay=folder)
    else:
        about["type"] = _TYPES[kind]
    about = {"default": item.default} | about
    if kind == "bool":
        about["is_flag"] = True
    about.setdefault("show_default", kind != "bool" and item.default is not None)
    return click.option(name, help=text or None, **about)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All options of the settings, in their order; the limits among them."""
    found: list[Callable[[Any], Any]] = []
    for item in fields(Settings):
        if item.name == "limits":
            for limit in fields(Limits):
                low, high = limit.metadata["range"]
                found.append(_option(limit, f"{limit.metadata['help']} In [{low:g}, {high:g}]."))
        else:
            found.append(_option(item, item.metadata["help"]))
        if item.name == "redis":
            found.append(
                click.option(
                    "--redis-file",
                    type=click.Path(path_type=Path, dir_okay=False),
                    help="File that holds the Redis URL, to keep a password off the command line; read at the start only.",
                )
            )
    for option in reversed(found):
        command = option(command)
    return command


@click.command("serve", short_help="Run the service.")
@_options
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as JSON.")
def serve(as_json: bool, redis: str | None, redis_file: Path | None, **options: Any) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Prints one line on standard output when it is ready: the gRPC address, the Redis URL for readers on this machine,
    and the public key that readers pin. Logs go to standard error as JSON lines.
    """
    from veilset_server.process import starting

    with starting():
        _serve(options, redis, redis_file, as_json=as_json)


def _serve(options: dict[str, Any], redis: str | None, redis_file: Path | None, *, as_json: bool) -> None:
    from veilset.cli.options import read_redis
    from veilset_server.app import Ready
    from veilset_server.app import serve as run
    from veilset_server.metrics.logs import configure_logs
    from veilset_server.process import prepare_process, refuse_core_dumps, return_freed_memory

    limits = Limits(**{limit.name: options.pop(limit.name) for limit in fields(Limits)})
    settings = Settings(**options, redis=read_redis(redis, redis_file), limits=limits)
    configure_logs(settings.log_level)
    return_freed_memory()
    prepare_process()
    if not settings.allow_core_dumps:
        refuse_core_dumps()

    def announce(ready: Ready) -> None:
        own = settings.redis is None
        if as_json:
            shown = {"address": ready.address, "redis": ready.redis if own else None, "public_key": ready.public_key}
            shown |= {"metrics": ready.metrics} if ready.metrics is not None else {}
            click.echo(json.dumps(shown))
        else:
            readers = ready.redis if own else "the Redis URL you gave"
            click.echo(f"veilset serves on {ready.address}; readers: {readers}; key to pin: {ready.public_key}")

    run(settings, announce)
