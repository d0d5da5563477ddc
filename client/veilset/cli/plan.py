"""``veilset plan``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.core import planner
from veilset.core.calibration import delta_is_large
from veilset.core.decoding import Rule
from veilset.core.params import Adjacency, Calibration, PrivacyParameters
from veilset.errors import InvalidInput


@click.command("plan", short_help="Find the best setting for a size and a promise.")
@options.privacy
@click.option("--bits-per-element", type=float, help="Largest vector, as bits per element.")
@click.option("--rule", type=options.choice(Rule), default=Rule.BEST.value, show_default=True, help="Decision rule.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write ROC and efficiency as a PNG.")
@options.as_json
def plan(
    size: int,
    bits: int,
    hashes: int,
    max_bytes: int | None,
    bits_per_element: float | None,
    rule: str,
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
        size, privacy, max_bytes=max_bytes, bits_per_element=bits_per_element, rule=Rule(rule)
    )
    chosen = planner.evaluate(size, privacy, bits, hashes, rule=Rule(rule)) if bits else planner.plan(request)
    if delta_is_large(privacy.delta, privacy.min_size):
        click.echo(
            f"veilset: warning: δ = {privacy.delta:g} is no guarantee for a set of {privacy.min_size} or more; keep it "
            f"below {0.1 / privacy.min_size:g}",
            err=True,
        )
    if plot is not None:
        from veilset.plots import plot_plan

        plot_plan(request, chosen, plot)
    emit(asdict(chosen), as_json, _table(request, chosen, searched=not bits))


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
    textbook = planner.textbook_setting(request.size, request.privacy, chosen.bits)
    rows: list[tuple[str, planner.Plan | None]] = [
        ("recommended" if searched else "as given", chosen),
        (f"textbook, k = {textbook.hashes}", textbook),
    ]
    if searched:
        more = planner.alternatives(request, chosen)
        rows += [("twice the ε", more.doubled_epsilon), ("twice the size", more.doubled_bytes)]
    head = f"{'':<18}{'bits':>14}{'hashes':>8}{'TPR':>9}{'FPR':>9}{'advantage':>11}{'efficiency':>12}"
    table = [
        f"{name:<18}{row.bits:>14}{row.hashes:>8}{row.true_positive_rate:>9.4f}{row.false_positive_rate:>9.4f}"
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
            "attacker": f"who guesses one user's presence is right at most {chosen.attacker_accuracy_limit:.1%} of the time",
        }
    )
    why = (
        f"\nThe textbook's k = (m/n)·ln 2 splits ε over {textbook.changed_bits} changed bits and so drowns each in noise."
        if textbook.hashes > chosen.hashes
        else ""
    )
    return "\n".join([head, *table, "", facts]) + why
