"""``veilset query``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from veilset._input import files as inputs
from veilset._input.csv import CsvForm, csv_form
from veilset._reader.follower import Follower
from veilset._reader.remote_view import RemoteView
from veilset._reader.view import View
from veilset.cli import options
from veilset.cli.output import emit, progress
from veilset.cli.source import Source, kept, source, warn_if_useless
from veilset.core.elements.normalization import Element
from veilset.core.encodings.bloom.decoding import Decoder, Rule
from veilset.errors import InvalidInput

Counts = NDArray[np.int64]
Reading = tuple[Decoder, list[Element], Counts, Counts]
"""What decides, a batch of elements, and the ones and distinct positions of each."""

Extras = dict[str, Callable[[Decoder, Counts, Counts], NDArray[np.float64]]]
"""What is shown beside the answers: name → its values for a batch."""

_FORMATS = {"score": "+.4f", "posterior": ".6f"}


EXIT_NOT_A_MEMBER = 3


@click.command("query", short_help="Ask a release about elements.")
@source
@kept
@click.argument("elements", nargs=-1)
@click.option("--from", "files", multiple=True, metavar="FILE", help="Elements to ask about; - is standard input.")
@inputs.formats
@inputs.column
@csv_form
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
@click.option(
    "--follow", is_flag=True, help="Keep up with new releases while reading; each answer comes as its line does."
)
@click.option(
    "--remote",
    is_flag=True,
    help="Download nothing and ask Redis bit by bit: Redis then sees what is asked, and its bits cannot be checked.",
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
    form: CsvForm,
    rule: str,
    threshold_fpr: float | None,
    threshold_tpr: float | None,
    scores: bool,
    posterior: float | None,
    follow: bool,
    remote: bool,
    summary: bool,
    exit_code: bool,
    as_json: bool,
) -> int:
    """Ask whether ELEMENTS are in SET. The release is fetched once; what is asked stays on this machine, but for --remote.

    Answers are noisy: --summary shows the error rates to expect. With --json one object a line. Nulls, empty lines and empty
    cells of files are skipped. A --column that is a number means a CSV file without a header, unless --header is given.
    """
    if not elements and not files:
        raise InvalidInput("elements", "given as arguments or by --from FILE")
    if follow and remote:
        raise InvalidInput("remote", "absent with --follow")
    extras = _extras(scores, posterior)
    asked = chain(elements, *(inputs.read_elements(file, file_format, column, form) for file in files))
    decision: dict[str, Any] = {
        "rule": rule,
        "max_false_positive_rate": threshold_fpr,
        "min_true_positive_rate": threshold_tpr,
    }
    with inputs.telling_where(files, file_format, column, form, len(elements)), ExitStack() as stack:
        if follow:
            follower = stack.enter_context(source.follow(**decision))
            view: View | RemoteView = follower.view
            readings = _follow(follower, asked)
        else:
            view = stack.enter_context(source.remote(**decision)) if remote else source.open(**decision)
            readings = ((view.decoder, *reading) for reading in view.read_batches(asked))
        warn_if_useless(view)
        show = stack.enter_context(progress(f"asking {source.set_name}", prints=not summary))
        total, members = _answer(readings, extras, as_json, None if summary else _write(follow), show)
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


def _extras(scores: bool, prior: float | None) -> Extras:
    extras: Extras = {}
    if scores:
        extras["score"] = lambda decoder, ones, distinct: decoder.scores(ones, distinct)
    if prior is not None:
        if not 0.0 <= prior <= 1.0:  # before Redis is asked
            raise InvalidInput("prior", "a probability in [0, 1]")
        extras["posterior"] = lambda decoder, ones, distinct: decoder.posteriors(ones, distinct, prior)
    return extras


def _follow(follower: Follower, asked: Iterable[Element]) -> Iterator[Reading]:
    """Each element by itself, from the release that is the newest when it comes. Raises StaleRelease."""
    for position, element in enumerate(asked):
        view = follower.view
        for reading in view.read_batches([element], position):
            yield view.decoder, *reading


def _write(at_once: bool) -> Callable[[str], None]:
    def write(text: str) -> None:
        sys.stdout.write(text)
        if at_once:
            sys.stdout.flush()

    return write


def _answer(
    readings: Iterable[Reading],
    extras: Extras,
    as_json: bool,
    write: Callable[[str], None] | None,
    show: Callable[[int], None],
) -> tuple[int, int]:
    total = members = 0
    for decoder, batch, ones, distinct in readings:
        found = decoder.decide(ones, distinct)
        total += len(batch)
        members += int(found.sum())
        if write is not None:
            values = {name: compute(decoder, ones, distinct).tolist() for name, compute in extras.items()}
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
