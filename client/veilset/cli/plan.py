"""``veilset plan``: what each encoding makes of a promise, and which to take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.core.encodings import ENCODINGS, check_increments, plan_all, recommended
from veilset.core.encodings.decoder import Rule
from veilset.core.encodings.planning import (
    DEFAULT_BITS_PER_ELEMENT,
    LargestAdvantage,
    LargestTruePositiveRate,
    Objective,
    Plan,
    PlanRequest,
    SmallestFalsePositiveRate,
    SmallestVector,
    alternatives,
    evaluate,
)
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.core.privacy.limits import advantage_limit
from veilset.core.privacy.statement import accuracy_text
from veilset.errors import InvalidInput, PoorUtility

_NEARLY = 0.9
_WORTH = 0.9
_COUNTED_FROM = 5_000


@click.command("plan", short_help="Find the best encoding and its dimensions for a size and a promise.")
@options.privacy
@click.option("--bits-per-element", type=float, help="Largest vector, as bits per element.")
@click.option("--rule", type=options.choice(Rule), default=Rule.BEST.value, show_default=True, help="Decision rule.")
@options.rate_limits
@click.option(
    "--efficiency", type=float, help="Plan the shortest vector that reaches this share of the possible advantage."
)
@options.increments
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the ROC curve and the efficiency as a PNG.",
)
@options.as_json
def plan(
    size: int,
    encoding: str | None,
    rule: str,
    min_tpr: float | None,
    max_fpr: float | None,
    efficiency: float | None,
    increment_capacity: int,
    plot: Path | None,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Compare what each encoding makes of a promise, and say which to take; needs no service.

    With the dimensions of an encoding this shows what they are worth, even if that is little. Example: veilset plan
    --size 1000000 --epsilon 3 --adjacency add-remove --max-bytes 8M
    """
    name, dimensions = options.take_dimensions(encoding, parameters)
    privacy = PrivacyParameters(
        adjacency=Adjacency(parameters.pop("adjacency")),
        calibration=Calibration(parameters.pop("calibration") or Calibration.W_QUANTILE),
        **{name: parameters.pop(name) for name in ("epsilon", "delta", "elements_per_user", "min_size")},
    )
    request = PlanRequest(
        size,
        privacy,
        objective=_objective(min_tpr, max_fpr, efficiency),
        rule=Rule(rule),
        increment_capacity=increment_capacity,
        **parameters,
    )
    found: dict[str, Plan | PoorUtility]
    if name is not None and dimensions:
        found = {name: evaluate(ENCODINGS[name].calibrate(privacy, dimensions), request)}
    elif name is not None:
        found = {name: ENCODINGS[name].plan(request)}
    else:
        found = plan_all(request)
    chosen = recommended(found, request)
    check_increments(chosen)
    options.warn_of_large_delta(chosen.privacy.delta, max(size, privacy.min_size))
    if plot is not None:
        from veilset._report.plots import plot_plan

        plot_plan(request, chosen, plot)
        click.echo(f"wrote {plot}", err=True)
    plans = {name: plan.record() if isinstance(plan, Plan) else {"refused": str(plan)} for name, plan in found.items()}
    shown = chosen.record() | {"encodings": plans}
    emit(shown, as_json, _table(request, chosen, found, searched=not dimensions))


def _objective(min_tpr: float | None, max_fpr: float | None, efficiency: float | None) -> Objective:
    wishes = ((SmallestFalsePositiveRate, min_tpr), (LargestTruePositiveRate, max_fpr), (SmallestVector, efficiency))
    given = [objective(value) for objective, value in wishes if value is not None]
    if len(given) > 1:
        raise InvalidInput("min-tpr", "min-tpr, max-fpr and efficiency exclude each other; give one of them")
    return given[0] if given else LargestAdvantage()


def _table(request: PlanRequest, chosen: Plan, found: dict[str, Plan | PoorUtility], searched: bool) -> str:
    """The plan of every encoding, what twice the ε or size would buy, and the parameters of the plan to take."""
    rows: list[tuple[str, Plan | None]] = [
        (name + " (take it)" * (plan is chosen and len(found) > 1), plan)
        for name, plan in found.items()
        if isinstance(plan, Plan)
    ]
    if searched:
        more = alternatives(request, chosen)
        name = chosen.parameters.encoding
        rows += [
            (f"{name}, {what}", plan)
            for what, plan in (("twice the ε", more.doubled_epsilon), ("twice the size", more.doubled_bytes))
            if plan is not None and plan.advantage > chosen.advantage
        ]
    head = (
        f"{'':<22}{'bytes':>14}{'bits/element':>14}{'TPR':>9}{'FPR':>9}{'advantage':>11}{'efficiency':>12}  dimensions"
    )
    table = [
        f"{name:<22}{row.bytes:>14}{row.bits_per_element:>14.2f}{row.true_positive_rate:>9.4f}"
        f"{row.false_positive_rate:>9.4f}{row.advantage:>11.4f}{row.efficiency:>12.3f}  {row.parameters}"
        for name, row in rows
        if row is not None
    ]
    for name, plan in found.items():
        if isinstance(plan, Plan):
            table += [
                f"{f'{name}, {rates.increments} increment' + 's' * (rates.increments > 1):<22}{rates.bytes:>14}{'':>14}"
                f"{rates.true_positive_rate:>9.4f}{rates.false_positive_rate:>9.4f}{rates.advantage:>11.4f}"
                for rates in plan.milestones
            ]
    table += [f"{name:<22}{refused}" for name, refused in found.items() if isinstance(refused, PoorUtility)]
    facts = lines(
        {"encoding": f"{chosen.parameters.encoding}, {chosen.parameters}"}
        | {name.replace("_", " "): f"{value:.6g}" for name, value in chosen.parameters.facts().items()}
        | {
            "capacity": f"{chosen.capacity:,} elements; {chosen.parameters.BEYOND}",
            "promise": f"ε = {chosen.privacy.epsilon:g}, δ = {chosen.privacy.delta:g}",
            "limit": f"no test can have an advantage above {chosen.advantage_limit:.4f}",
            "attacker": f"a guess at one user's presence is right at most "
            f"{accuracy_text(chosen.privacy.epsilon, chosen.privacy.delta)} of the time",
        }
        | (
            {"removals": f"a removed element is answered no from the next increment on with {chosen.removal_rate:.1%}"}
            if chosen.removals_epsilon
            else {}
        )
    )
    return "\n".join([head, *table, "", facts, *_notes(request, found), *_generation_notes(request, chosen)])


def _generation_notes(request: PlanRequest, chosen: Plan) -> list[str]:
    """What whole releases would be worth instead of increments, and after how many these lose too much."""
    if not request.increments:
        return []
    whole = advantage_limit(chosen.privacy.epsilon / (request.increments + 1), 0.0)
    shared = f"{request.increments + 1} whole releases in place of the generation, sharing its ε, have an advantage of at most"
    notes = [f"{shared} {whole:.4f} each"]
    last = chosen.after(request.increments)
    if last.advantage < _WORTH * chosen.advantage:
        kept = max(
            number
            for number in range(request.increments)
            if chosen.after(number).advantage >= _WORTH * chosen.advantage
        )
        notes.append(
            f"after {request.increments} increments {last.advantage / chosen.advantage:.0%} of the base's advantage is left, and "
            f"{_WORTH:.0%} after {kept}: take fewer increments, publish less often, or spend a larger ε (below about 5 "
            "increments are seldom worth it)"
        )
    return ["", *notes]


def _notes(request: PlanRequest, found: dict[str, Plan | PoorUtility]) -> list[str]:
    """What limits the answers, and what would improve them."""
    notes = []
    stopped = [
        name
        for name, plan in found.items()
        if isinstance(plan, Plan)
        and not request.is_limited
        and plan.bits_per_element > _NEARLY * DEFAULT_BITS_PER_ELEMENT
    ]
    if stopped:
        notes.append(
            f"{', '.join(stopped)}: the search ended at {DEFAULT_BITS_PER_ELEMENT} bits per element; --bits-per-element or "
            "--max-bytes extends it"
        )
    if request.privacy.adjacency is Adjacency.REPLACE_ONE and "bloom" in found:
        notes.append(
            "replace-one doubles the bits of a Bloom filter that one user changes, which halves ε for each; where the number of "
            "elements may be private, add-remove gives far fewer false positives"
        )
    least = _COUNTED_FROM * request.privacy.elements_per_user
    if request.privacy.adjacency is Adjacency.ADD_REMOVE and request.size < least:
        notes.append(
            f"below about {least:,} elements declare the size: a noisy count (create without --size) has too large an error"
        )
    return ["", *notes] if notes else []
