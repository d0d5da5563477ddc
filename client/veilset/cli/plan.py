"""``veilset plan``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.core.encodings.bloom.decoding import Rule
from veilset.core.encodings.bloom.planning import planner
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.core.privacy.statement import accuracy_text
from veilset.errors import InvalidInput


@click.command("plan", short_help="Find the best setting for a size and a promise.")
@options.privacy
@click.option("--bits-per-element", type=float, help="Largest vector, as bits per element.")
@click.option("--rule", type=options.choice(Rule), default=Rule.BEST.value, show_default=True, help="Decision rule.")
@click.option("--min-tpr", type=float, help="Seek the smallest FPR with at least this TPR.")
@click.option("--max-fpr", type=float, help="Seek the largest TPR with at most this FPR.")
@click.option("--efficiency", type=float, help="Seek the shortest vector that reaches this share of the possible.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write ROC and efficiency as a PNG.")
@options.as_json
def plan(
    size: int,
    bits: int,
    hashes: int,
    max_bytes: int | None,
    bits_per_element: float | None,
    rule: str,
    min_tpr: float | None,
    max_fpr: float | None,
    efficiency: float | None,
    plot: Path | None,
    as_json: bool,
    **promise: Any,
) -> None:
    """Find the vector length, number of hashes and threshold that make the most of a promise; needs no service.

    With --bits and --hashes it prices that setting, however poor. Example: veilset plan --size 1000000 --epsilon 3
    --delta 1e-9 --adjacency add-remove --max-bytes 8M
    """
    privacy = _privacy(**promise)
    if bool(bits) != bool(hashes):
        raise InvalidInput("bits" if hashes else "hashes", "given together with the other, or neither")
    request = planner.PlanRequest(
        size,
        privacy,
        max_bytes=max_bytes,
        bits_per_element=bits_per_element,
        objective=_objective(min_tpr, max_fpr, efficiency),
        rule=Rule(rule),
    )
    if bits:
        chosen = planner.evaluate(
            size,
            privacy,
            bits,
            hashes,
            rule=Rule(rule),
            max_false_positive_rate=max_fpr,
            min_true_positive_rate=min_tpr,
        )
    else:
        chosen = planner.plan(request)
    options.warn_of_large_delta(privacy.delta, max(size, privacy.min_size))
    if plot is not None:
        from veilset._report.plots import plot_plan

        plot_plan(request, chosen, plot)
        click.echo(f"wrote {plot}", err=True)
    emit(asdict(chosen), as_json, _table(request, chosen, searched=not bits))


def _objective(min_tpr: float | None, max_fpr: float | None, efficiency: float | None) -> planner.Objective:
    given: list[planner.Objective] = []
    if min_tpr is not None:
        given.append(planner.SmallestFalsePositiveRate(min_tpr))
    if max_fpr is not None:
        given.append(planner.LargestTruePositiveRate(max_fpr))
    if efficiency is not None:
        given.append(planner.SmallestVector(efficiency))
    if len(given) > 1:
        raise InvalidInput("min-tpr", "given without max-fpr and efficiency: only one of the three")
    return given[0] if given else planner.LargestAdvantage()


def _privacy(
    epsilon: float, delta: float, adjacency: str, calibration: str | None, elements_per_user: int, min_size: int
) -> PrivacyParameters:
    return PrivacyParameters(
        epsilon,
        delta,
        Adjacency(adjacency),
        Calibration(calibration) if calibration else Calibration.W_QUANTILE,
        elements_per_user,
        min_size,
    )


def _table(request: planner.PlanRequest, chosen: planner.Plan, searched: bool) -> str:
    """The chosen setting, the textbook's beside it, and what more would buy."""
    privacy = request.privacy
    textbook = planner.textbook_setting(request.size, request.privacy, chosen.bits)
    rows: list[tuple[str, planner.Plan | None]] = [
        ("recommended" if searched else "as given", chosen),
        (f"textbook, all {textbook.hashes} ones", textbook),
    ]
    if searched:
        more = planner.alternatives(request, chosen)
        rows += [("twice the ε", more.doubled_epsilon), ("twice the size", more.doubled_bytes)]
    head = f"{'':<22}{'bits':>14}{'hashes':>8}{'TPR':>9}{'FPR':>9}{'advantage':>11}{'efficiency':>12}"
    table = [
        f"{name:<22}{row.bits:>14}{row.hashes:>8}{row.true_positive_rate:>9.4f}{row.false_positive_rate:>9.4f}"
        f"{row.advantage:>11.4f}{row.efficiency:>12.3f}"
        for name, row in rows
        if row is not None
    ]
    facts = lines(
        {
            "vector": f"{chosen.bytes} bytes, {chosen.bits / request.size:.2f} bits per element",
            "noise": f"ε0 = {chosen.epsilon0:.6g} a bit over N = {chosen.changed_bits}; "
            f"each bit flips with probability {chosen.flip_probability:.6g}",
            "answer yes": f"from {chosen.threshold} ones of {chosen.hashes}",
            "limit": f"no test can have an advantage above {chosen.advantage_limit:.4f}",
            "attacker": f"who guesses one user's presence is right at most "
            f"{accuracy_text(privacy.epsilon, privacy.delta)} of the time",
        }
    )
    why = (
        f"\nThe textbook's k = (m/n)·ln 2 splits ε over {textbook.changed_bits} changed bits and so drowns each in noise."
        if textbook.hashes > chosen.hashes
        else ""
    )
    return "\n".join([head, *table, "", facts]) + why
