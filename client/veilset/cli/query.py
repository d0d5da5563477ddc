"""``veilset query``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import click
import numpy as np
from numpy.typing import NDArray

from veilset.cli import inputs, options
from veilset.cli.output import emit, progress
from veilset.cli.source import Source, source, warn_if_useless
from veilset.core.decoding import Rule
from veilset.core.normalization import Element
from veilset.errors import InvalidInput
from veilset.view import BATCH, View

Extras = dict[str, Callable[[list[Element]], NDArray[np.float64]]]

_FORMATS = {"score": "+.4f", "posterior": ".6f"}


EXIT_NOT_A_MEMBER = 3


@click.command("query", short_help="Ask a release about elements.")
@source
@click.argument("elements", nargs=-1)
@click.option("--from", "files", multiple=True, metavar="FILE", help="Elements to ask about; - is standard input.")
@inputs.formats
@inputs.column
@click.option("--rule", type=options.choice(Rule), default=Rule.BEST.value, show_default=True, help="Decision rule.")
@click.option("--threshold-fpr", type=float, help="Largest false positive rate, in place of the rule.")
@click.option("--threshold-tpr", type=float, help="Smallest true positive rate, in place of the rule.")
@click.option("--scores", is_flag=True, help="Show the log-likelihood ratio too.")
@click.option(
    "--posterior",
    type=float,
    metavar="PRIOR",
    help="Show the probability of being a member too, given that before asking, in [0, 1].",
)
@click.option("--summary", is_flag=True, help="Count only.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if any element is not a member.")
@options.as_json
def query(
    source: Source,
    elements: tuple[str, ...],
    files: tuple[str, ...],
    file_format: str | None,
    column: str | None,
    rule: str,
    threshold_fpr: float | None,
    threshold_tpr: float | None,
    scores: bool,
    posterior: float | None,
    summary: bool,
    exit_code: bool,
    as_json: bool,
) -> int:
    """Ask whether ELEMENTS are in SET. The release is fetched once; what is asked stays on this machine.

    Answers are noisy: --summary shows the error rates to expect. With --json one object a line.
    """
    if not elements and not files:
        raise InvalidInput("elements", "given as arguments or by --from FILE")
    view = source.open(rule=rule, max_false_positive_rate=threshold_fpr, min_true_positive_rate=threshold_tpr)
    warn_if_useless(view)
    asked = chain(elements, *(inputs.read_elements(file, file_format, column) for file in files))
    with progress(f"asking {source.set_name}") as show:
        extras = _extras(view, scores, posterior)
        total, members = _answer(view, asked, extras, as_json, None if summary else sys.stdout.write, show)
    if summary:
        shown = {
            "asked": total,
            "members": members,
            "true_positive_rate": view.decoder.true_positive_rate,
            "false_positive_rate": view.decoder.false_positive_rate,
        }
        rates = f"TPR {view.decoder.true_positive_rate:.4f}, FPR {view.decoder.false_positive_rate:.4f}"
        emit(shown, as_json, f"{members} of {total} taken for members (expected: {rates})")
    return EXIT_NOT_A_MEMBER if exit_code and members < total else 0


def _extras(view: View, scores: bool, prior: float | None) -> Extras:
    """What is shown beside the answers: name → its values for a batch."""
    extras: Extras = {}
    if scores:
        extras["score"] = view.scores
    if prior is not None:
        view.posteriors([], prior)  # a prior out of range is refused before any answer
        extras["posterior"] = lambda batch: view.posteriors(batch, prior)
    return extras


def _answer(
    view: View,
    asked: Iterable[Element],
    extras: Extras,
    as_json: bool,
    write: Callable[[str], object] | None,
    show: Callable[[int], None],
) -> tuple[int, int]:
    total = members = 0
    remaining = iter(asked)
    while batch := list(islice(remaining, BATCH)):
        found = view.contains_many(batch)
        total += len(batch)
        members += int(found.sum())
        if write is not None:
            values = {name: compute(batch).tolist() for name, compute in extras.items()}
            write("".join(_lines(batch, found.tolist(), values, as_json)))
        show(total)
    return total, members


def _lines(batch: list[Element], found: list[bool], values: dict[str, list[float]], as_json: bool) -> Iterator[str]:
    for index, (element, member) in enumerate(zip(batch, found, strict=True)):
        text = element if isinstance(element, str) else element.decode("utf-8", "backslashreplace")
        extra = {name: column[index] for name, column in values.items()}
        if as_json:
            yield json.dumps({"element": text, "member": member} | extra) + "\n"
        else:
            shown = "".join(f"\t{value:{_FORMATS[name]}}" for name, value in extra.items())
            yield f"{'yes' if member else 'no'}{shown}\t{text}\n"
