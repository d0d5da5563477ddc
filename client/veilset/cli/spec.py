"""``veilset spec``: what partners agree on before each creates a set, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from veilset._service.spec import Spec
from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.core.encodings import DEFAULT_ENCODING, ENCODINGS
from veilset.core.encodings.planning import Plan, PlanRequest, evaluate
from veilset.core.params import Calibration
from veilset.errors import InvalidInput

FIXED = (
    "epsilon",
    "delta",
    "adjacency",
    "calibration",
    "elements_per_user",
    "min_size",
    "encoding",
    *(name for family in ENCODINGS.values() for name in family.DIMENSIONS),
    "max_bytes",
    "max_fpr",
    "min_tpr",
    "count_epsilon",
    "normalization",
    "scheme",
    "seed",
)
"""Options that a spec replaces; --size may differ from it."""

_NEEDED = ("epsilon", "adjacency")
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_path = click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))


@click.group("spec", short_help="Agree on parameters with partners.")
def spec() -> None:
    """What partners agree on so that releases of their sets compare: a small text file without secrets."""


@spec.command("create", short_help="Plan a spec and write it to a file.")
@_path
@options.privacy
@options.normalization
@options.scheme
@options.key_file
@options.as_json
def create(
    path: Path, max_bytes: int | None, scheme: str, key_file: Path | None, as_json: bool, **parameters: Any
) -> None:
    """Plan as veilset create does, draw a seed, and write both to a new FILE; needs no service.

    The calibration is worst-case unless you choose another, since a shared seed is known before the data are collected.
    With a keyed scheme the file has the check value of the secret in --key-file, never the secret. Example:
    veilset spec create partners.toml --size 1000000 --epsilon 3 --adjacency add-remove --normalization email
    """
    key = options.read_key_of(scheme, key_file)
    encoding, dimensions = options.take_dimensions(parameters.pop("encoding"), parameters)
    planned = Spec.plan(
        encoding=encoding or DEFAULT_ENCODING,
        max_bytes=max_bytes or 0,
        scheme=scheme,
        key=key,
        **(parameters | dimensions),
    )
    planned.save(path)
    _warn(planned)
    emit(_describe(planned), as_json, f"wrote {path}\n{_rates(planned)}")


@spec.command("show", short_help="Check a spec and show what it leads to.")
@_path
@options.as_json
def show(path: Path, as_json: bool) -> None:
    """Check FILE strictly and show its fields, and the rates that a set of the planned size leads to."""
    found = Spec.load(path)
    _warn(found)
    shown = {name: value for name, value in found.fields().items() if value != ""}
    emit(_describe(found), as_json, f"{lines(shown)}\n\n{_rates(found)}")


def read_agreed(context: click.Context, path: Path | None) -> Spec | None:
    """The spec that a command was given instead of the options it fixes; None without. Raises for both, and for
    neither."""
    if path is None:
        for parameter in context.command.params:
            if parameter.name in _NEEDED and context.params[parameter.name] is None:
                raise click.MissingParameter(ctx=context, param=parameter)
        return None
    for name in FIXED:
        if context.get_parameter_source(name) in _GIVEN:
            raise InvalidInput(
                option := name.replace("_", "-"),
                f"{option} and --spec exclude each other, since the spec fixes it; leave it out",
            )
    return Spec.load(path)


def _price(found: Spec) -> Plan:
    return evaluate(found.encoding, PlanRequest(found.size, found.privacy))


def _describe(found: Spec) -> dict[str, object]:
    priced = _price(found)
    rates = {name: getattr(priced, name) for name in ("true_positive_rate", "false_positive_rate", "efficiency")}
    return found.fields() | rates


def _rates(found: Spec) -> str:
    priced = _price(found)
    return (
        f"At {found.size} elements a release answers with TPR {priced.true_positive_rate:.4f} and FPR "
        f"{priced.false_positive_rate:.4f}, {priced.efficiency:.1%} of the advantage that ε allows."
    )


def _warn(found: Spec) -> None:
    if found.privacy.calibration is not Calibration.WORST_CASE:
        click.echo(
            f"veilset: warning: calibration {found.privacy.calibration} assumes that the elements were chosen without knowledge "
            "of the seed, which this file contains; worst-case does not",
            err=True,
        )
    options.warn_of_large_delta(found.privacy.delta, found.size)
