"""``veilset create``, ``sets`` and ``delete``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from veilset._service.records import SetInfo
from veilset.cli import options
from veilset.cli.options import Server
from veilset.cli.output import emit, lines
from veilset.cli.spec import FIXED, read_agreed
from veilset.core.encodings.planning import UNKNOWN_SIZE, PlanRequest, evaluate
from veilset.core.privacy.budget import amount_text


@click.command("create", short_help="Create a set.")
@options.set_name
@options.spec_file("Use what partners agreed on (veilset spec) instead of the options that it fixes.")
@options.privacy_unless_spec
@click.option(
    "--count-epsilon",
    type=float,
    help="Part of ε that pays for a noisy count, the capacity of each release, without --size.  [default: 0.05]",
)
@click.option("--budget-epsilon", type=float, default=0.0, help="ε of all releases together; default: one release.")
@click.option("--budget-delta", type=float, help="δ of all releases together; default: in step with ε.")
@click.option("--account", default="", help="Budget account to charge; default: one named after the set.")
@options.normalization
@options.scheme
@options.key_file
@click.option("--seed", type=int, help="Seed shared with partners; default: the service draws one.")
@options.rate_limits
@click.option(
    "--allow-poor-utility", is_flag=True, help="Create it even if it gives less than 5% of the advantage that ε allows."
)
@options.increments
@click.option(
    "--expire-days",
    type=int,
    default=0,
    help="An element that was not added again for so many days leaves the set. Like a removal this takes effect in the next "
    "base release, refunds nothing, and is never confirmed.  [default: never]",
)
@options.server
@options.as_json
@click.pass_context
def create(
    context: click.Context,
    /,
    set_name: str,
    server: Server,
    as_json: bool,
    spec_file: Path | None,
    key_file: Path | None,
    **parameters: Any,
) -> None:
    """Create an empty set named SET.

    Example: veilset create customers --size 1000000 --epsilon 3 --delta 1e-9 --adjacency add-remove --budget-epsilon 9
    With partners: veilset create customers --spec partners.toml; --size may give the size expected on this side.
    """
    spec = read_agreed(context, spec_file)
    with server.connect() as service:
        if spec is None:
            encoding, dimensions = options.take_dimensions(parameters.pop("encoding"), parameters)
            limits = {name: parameters.pop(name) or 0 for name in ("max_bytes", "max_fpr", "min_tpr")}
            parameters |= {name: parameters[name] or 0 for name in ("size", "count_epsilon")}
            key = options.read_key_of(parameters["scheme"], key_file)
            created = service.create_set(
                set_name,
                key=key,
                encoding=encoding or "",
                max_bytes=limits["max_bytes"],
                max_false_positive_rate=limits["max_fpr"],
                min_true_positive_rate=limits["min_tpr"],
                **(parameters | dimensions),
            )
        else:
            key = options.read_key_of(spec.hashing.scheme, key_file, required=False)
            free = {name: value for name, value in parameters.items() if name not in FIXED}
            created = service.create_set_from_spec(set_name, spec, key=key, **free)
        budget = service.budget(set_name)
    size = max(created.declared_size or UNKNOWN_SIZE, created.privacy.min_size)
    options.warn_of_large_delta(created.privacy.delta, size)
    shown = describe(created) | {"budget_epsilon": budget.epsilon_total, "budget_delta": budget.delta_total}
    expected = evaluate(
        created.encoding,
        PlanRequest(
            size,
            created.privacy,
            increments=created.increments,
            increment_capacity=created.increment_capacity,
            removals_epsilon=created.removals_epsilon,
        ),
    )
    shown |= {name: getattr(expected, name) for name in ("true_positive_rate", "false_positive_rate", "efficiency")}
    if created.declared_size:
        shown["capacity"] = expected.capacity
    if created.increments:
        after = expected.after(created.increments)
        shown["true_positive_rate_after_increments"] = after.true_positive_rate
        shown["false_positive_rate_after_increments"] = after.false_positive_rate
    emit(shown, as_json, lines(shown))


@click.command("sets", short_help="List the sets.")
@options.server
@options.as_json
def sets(server: Server, as_json: bool) -> None:
    """List the sets of a service, one per line; with --json one object per line."""
    with server.connect() as service:
        for found in service.list_sets():
            shown = describe(found)
            promise = (
                f"ε={amount_text(found.privacy.epsilon)} δ={amount_text(found.privacy.delta)} {found.privacy.adjacency}"
            )
            click.echo(
                json.dumps(shown)
                if as_json
                else f"{found.name}\t{promise}\t{found.encoding.encoding}, {found.encoding}"
            )


@click.command("delete", short_help="Delete a set; its charges stay.")
@options.set_name
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.server
@options.as_json
def delete(set_name: str, yes: bool, server: Server, as_json: bool) -> None:
    """Delete SET, what it holds and its releases. What was charged to its budget account stays charged."""
    if not yes:
        click.confirm(f"Delete the set {set_name} and all its releases?", abort=True, err=True)
    with server.connect() as service:
        service.delete_set(set_name)
    emit({"deleted": set_name}, as_json, f"deleted {set_name}; its charges stay (see veilset budget --account)")


def describe(info: SetInfo) -> dict[str, object]:
    """The public parameters of a set, flat; name → value."""
    return {
        "name": info.name,
        "encoding": info.encoding.encoding,
        **info.encoding.dimensions(),
        "bytes": info.encoding.vector_bytes,
        "scheme": str(info.hashing.scheme),
        "seed": info.hashing.seed,
        "shared_seed": info.shared_seed,
        "key_check": info.hashing.key_check or None,
        "normalization": info.normalization.versioned,
        **asdict(info.privacy),
        "declared_size": info.declared_size,
        "count_epsilon": info.count_epsilon,
        "increments": info.increments,
        "increment_capacity": info.increment_capacity,
        "removals_epsilon": info.removals_epsilon,
        "expire_days": info.expire_days,
        "account": info.account,
    }
