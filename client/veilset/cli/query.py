"""``veilset query``: answers about elements, one line for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from veilset._display import is_terminal, progress
from veilset._input.columns import BATCH, Batch, element_batches
from veilset._input.digests import InvalidElements, valid_ones
from veilset._input.files import FileForm, read_files
from veilset._input.text import Tally
from veilset._reader.remote_view import RemoteView
from veilset._reader.view import View
from veilset.cli import input_options, options
from veilset.cli.output import emit, escape
from veilset.cli.source import Source, kept, source, warn_if_useless
from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Decoder, Rule
from veilset.errors import InvalidInput, must_be

Extras = dict[str, Callable[..., NDArray[np.float64]]]
"""What is shown beside the answers: name → function of a decoder and the readings of a batch, which returns the
values."""

_FORMATS = {"score": "+.4f", "posterior": ".6f"}


EXIT_NOT_A_MEMBER = 3


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers about a batch. members, values: of the valid elements, in order. kept: which those are; None: all."""

    decoder: Decoder
    elements: list[Element]
    kept: list[bool] | None
    members: list[bool]
    values: dict[str, list[float]]


@click.command("query", short_help="Ask a release about elements.")
@source
@kept
@click.argument("elements", nargs=-1)
@click.option("--from", "files", multiple=True, metavar="FILE", help="Elements to ask about; - is standard input.")
@input_options.file_form
@click.option("--rule", type=options.choice(Rule), default=Rule.BEST.value, show_default=True, help="Decision rule.")
@click.option("--threshold-fpr", type=float, help="Largest false positive rate, in place of the rule.")
@click.option("--threshold-tpr", type=float, help="Smallest true positive rate, in place of the rule.")
@click.option("--scores", is_flag=True, help="Show the log-likelihood ratio too.")
@click.option(
    "--posterior",
    type=float,
    metavar="PRIOR",
    help="Show the probability of being a member too; PRIOR is the probability before asking, in [0, 1].",
)
@click.option(
    "--follow", is_flag=True, help="Use new releases as they are published; each line is answered as it is read."
)
@click.option(
    "--remote",
    is_flag=True,
    help="Download nothing and ask Redis byte by byte: Redis then sees what is asked, and its bytes cannot be checked.",
)
@click.option("--summary", is_flag=True, help="Count only.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if any element is not a member.")
@options.as_json
def query(
    source: Source,
    elements: tuple[str, ...],
    files: tuple[str, ...],
    form: FileForm,
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
    """Ask whether ELEMENTS are in SET. The release is fetched once; what is asked stays on this machine, except with --remote.

    Prints one line per element: yes, no, or invalid (not an element under the set's normalization), then a tab and the element,
    with control characters, tabs and backslashes escaped; --json prints one object per line. Answers are noisy: on a terminal
    each shows how often it is wrong, and --summary shows the rates to expect. Missing values, empty lines and empty cells of
    files are skipped. A --column that is a number means a CSV file without a header, unless --header is given.
    """
    if not elements and not files:
        raise InvalidInput("elements", "elements are needed, as arguments or by --from FILE")
    if follow and remote:
        raise InvalidInput("remote", "remote and --follow exclude each other; give one of them")
    extras = _extras(scores, posterior)
    tally, invalid = Tally(), InvalidElements(skip=True)
    asked = chain(
        element_batches(list(elements), 1 if follow else BATCH),
        element_batches(read_files(files, form, tally), 1 if follow else BATCH),
    )
    decision: dict[str, Any] = {
        "rule": rule,
        "max_false_positive_rate": threshold_fpr,
        "min_true_positive_rate": threshold_tpr,
    }
    with ExitStack() as stack:
        if follow:
            follower = stack.enter_context(source.follow(**decision))
            view: View | RemoteView = follower.view
            answers = _ask(lambda: follower.view, asked, extras, invalid)
        else:
            view = stack.enter_context(source.remote(**decision)) if remote else source.open(**decision)
            answers = _ask(lambda: view, asked, extras, invalid)
        warn_if_useless(view)
        show: Callable[[int], None] = _ignore
        if summary or not is_terminal(sys.stdout):  # a bar would stand between the results
            show = stack.enter_context(progress(f"asking {source.set_name}"))
        total, members = _tell(answers, as_json, None if summary else _write(follow), show)
    input_options.report(tally)
    rates = view.decoder.true_positive_rate, view.decoder.false_positive_rate
    if summary:
        shown = {
            "asked": total,
            "members": members,
            "invalid": invalid.count,
            "true_positive_rate": rates[0],
            "false_positive_rate": rates[1],
        }
        bad = f", {invalid.count} invalid" if invalid.count else ""
        expected = f"TPR {rates[0]:.4f}, FPR {rates[1]:.4f}"
        emit(shown, as_json, f"{members} of {total} answered yes{bad} (expected: {expected})")
    return EXIT_NOT_A_MEMBER if exit_code and members < total else 0


def _ignore(_done: int) -> None:
    """Show nothing."""


def _extras(scores: bool, prior: float | None) -> Extras:
    extras: Extras = {}
    if scores:
        extras["score"] = lambda decoder, *reading: decoder.scores(*reading)
    if prior is not None:
        if not 0.0 <= prior <= 1.0:  # before Redis is asked
            raise must_be("prior", "a probability in [0, 1]")
        extras["posterior"] = lambda decoder, *reading: decoder.posteriors(*reading, prior)
    return extras


def _ask(
    newest: Callable[[], View | RemoteView], batches: Iterable[Batch], extras: Extras, invalid: InvalidElements
) -> Iterator[Answered]:
    """Answer batch by batch, each from the release that is then the newest. Raises StaleRelease."""
    start = 0
    for batch in batches:
        view, elements = newest(), list(batch)
        kept: list[bool] | None = None
        try:
            read = list(view.read_batches(elements, start))
        except InvalidInput:
            kept = valid_ones(batch, start, view.header.normalization, invalid)
            read = list(view.read_batches([element for element, good in zip(elements, kept, strict=True) if good]))
        members: list[bool] = []
        values: dict[str, list[float]] = {name: [] for name in extras}
        for _, *reading in read:
            members += view.decoder.decide(*reading).tolist()
            for name, compute in extras.items():
                values[name] += compute(view.decoder, *reading).tolist()
        yield Answered(view.decoder, elements, kept, members, values)
        start += len(elements)


def _write(at_once: bool) -> Callable[[str], None]:
    if sys.stdout is None:
        raise InvalidInput(
            "output",
            "output cannot be written, since standard output is closed; redirect it to a file, or use --summary",
        )

    def write(text: str) -> None:
        sys.stdout.write(text)
        if at_once:
            sys.stdout.flush()

    return write


def _tell(
    answers: Iterable[Answered], as_json: bool, write: Callable[[str], None] | None, show: Callable[[int], None]
) -> tuple[int, int]:
    """Write the answers; returns how many elements there were, and how many were answered yes."""
    total = members = 0
    worth = not as_json and write is not None and is_terminal(sys.stdout)
    for batch in answers:
        total += len(batch.elements)
        members += sum(batch.members)
        if write is not None:
            write("".join(_lines(batch, as_json, worth)))
        show(total)
    return total, members


def _lines(batch: Answered, as_json: bool, worth: bool) -> Iterator[str]:
    """The lines of a batch. worth: show beside each answer how often it is wrong."""
    answered = iter(zip(batch.members, *batch.values.values(), strict=True))
    for element, good in zip(batch.elements, batch.kept or repeat(True), strict=False):
        text = element if isinstance(element, str) else element.decode("utf-8", "backslashreplace")
        member, *values = next(answered) if good else (None,)
        extra = dict(zip(batch.values, values, strict=False))
        if as_json:
            bad = {} if good else {"invalid": True}
            yield json.dumps({"element": text, "member": member} | extra | bad) + "\n"
        else:
            answer = "invalid" if member is None else "yes" if member else "no"
            shown = "".join(f"\t{extra[name]:{_FORMATS[name]}}" if name in extra else "\t-" for name in batch.values)
            yield f"{answer}{shown}\t{escape(text)}{_worth(batch.decoder, member) if worth else ''}\n"


def _worth(decoder: Decoder, member: bool | None) -> str:
    if member is None:
        return ""
    rate, of = (decoder.false_positive_rate, "non-") if member else (1 - decoder.true_positive_rate, "")
    return f"\t({rate:.2%} of {of}members are answered {'yes' if member else 'no'} too)"
