"""``veilset overlap``: an own list against a release, or two releases with each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import click

from veilset._display import progress
from veilset._input.digests import InvalidElements, only_valid
from veilset._input.files import FileForm, read_files
from veilset._input.text import Tally
from veilset._reader.view import View
from veilset.cli import input_options, options
from veilset.cli.output import emit
from veilset.cli.source import Source, kept, source
from veilset.core.elements.packed import PackedElements, PackedStream
from veilset.core.estimates.intervals import Estimate, confidence_text, finite_or_none
from veilset.errors import InvalidInput, ReleaseRejected


@click.command("overlap", short_help="Estimate what a list or two sets have in common.")
@source
@kept
@click.argument("files", nargs=-1, metavar="[FILE]...")
@input_options.file_form
@input_options.skip_invalid
@click.option(
    "--with", "other_set", metavar="OTHER_SET", help="Compare with a release of this set, in place of a list."
)
@click.option("--with-release", type=click.Path(dir_okay=False), help="Read it from a saved release (veilset fetch).")
@click.option("--with-redis", metavar="URL", help="Read it from there; default: where SET comes from.")
@click.option("--with-sequence", type=int, default=0, help="Which of its releases; default: the newest.")
@click.option("--with-public-key", multiple=True, metavar="HEX", help="Key to trust for it; default: as for SET.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of each interval.")
@options.as_json
def overlap(
    source: Source,
    files: tuple[str, ...],
    form: FileForm,
    skip_invalid: bool,
    other_set: str | None,
    confidence: float,
    as_json: bool,
    **other: Any,
) -> None:
    """Estimate how many elements of FILEs are in SET, or, with --with, what SET and OTHER_SET have in common.

    Costs no budget. A list stays on this machine; elements that it repeats count once. Two releases need the same
    encoding, dimensions, scheme, seed and normalization. Each interval holds the true number with the probability
    --confidence, even if nothing is in common. A saturated vector, with almost no zeros left, shows no upper
    end of a size ("high": null), and nothing of what is in common.
    """
    if other_set is None and any(other.values()):
        raise InvalidInput(
            "with", "with is needed: name the other set, since its release, Redis, sequence or public key is given"
        )
    if bool(files) == (other_set is not None):
        raise InvalidInput("files", "files and --with OTHER_SET exclude each other; give exactly one of them")
    if other_set is not None and (form != FileForm() or skip_invalid):
        raise InvalidInput("files", "files are needed with options for files, such as --format or --column")
    if other_set is None:
        tally, invalid = Tally(), InvalidElements(skip=skip_invalid)
        elements, view = read_files(files, form, tally), source.open()
        if skip_invalid:
            elements = only_valid(elements, view.header.normalization, invalid)
        _show_list(view, elements, confidence, as_json)
        input_options.report(tally, invalid.count)
    else:
        partner = _partner(source, other_set, **other)
        left = source.open()
        try:
            right = partner.open()
        except ReleaseRejected as error:
            if error.details.get("check") == "signature" and partner.public_keys and not other["with_public_key"]:
                error.message += f" (OTHER_SET {other_set}: --with-public-key names the key of another service)"
            raise
        _show_pair(left, right, confidence, as_json)


def _partner(
    own: Source,
    set_name: str,
    *,
    with_release: str | None,
    with_redis: str | None,
    with_sequence: int,
    with_public_key: tuple[str, ...],
) -> Source:
    """Where the other release is. Raises InvalidInput."""
    target = with_release or with_redis or own.target
    if with_release and with_redis:
        raise InvalidInput("with-redis", "with-redis and --with-release exclude each other; give one of them")
    if with_release is None and "://" not in target:
        raise InvalidInput("with-redis", "with-redis is needed, or --with-release FILE, since SET comes from a file")
    return replace(
        own,
        set_name=set_name,
        target=target,
        sequence=with_sequence,
        public_keys=with_public_key or own.public_keys,
    )


def _show_list(view: View, elements: PackedStream, confidence: float, as_json: bool) -> None:
    with progress(f"reading {view.header.set_name}") as show:
        found = view.overlap(_counted(elements, show), confidence)
    shown = {"set": view.header.set_name, "sequence": view.header.sequence} | asdict(found)
    text = f"{found.estimate:,.0f} of {found.own_size:,} elements in {_name(view)}, {_interval(found, ',.0f')}"
    emit(shown, as_json, text)


def _counted(elements: PackedStream, show: Callable[[int], None]) -> PackedStream:
    def blocks() -> Iterator[PackedElements]:
        number = 0
        for block in elements.blocks():
            yield block
            number += len(block)
            show(number)

    return PackedStream(blocks)


def _show_pair(left: View, right: View, confidence: float, as_json: bool) -> None:
    found = left.compare(right, confidence)
    sides = {
        name: {"set": view.header.set_name, "sequence": view.header.sequence}
        for name, view in (("left", left), ("right", right))
    }
    shown = {
        name: sides.get(name, {}) | value | {"high": finite_or_none(value["high"])}
        for name, value in asdict(found).items()
    }
    rows = {
        _name(left): found.left,
        _name(right): found.right,
        "together": found.union,
        "in common": found.intersection,
    }
    width = max(map(len, rows))
    text = [f"{name:<{width}}  {_elements(value)}" for name, value in rows.items()]
    text.append(f"{'Jaccard':<{width}}  {found.jaccard.estimate:.4f}, {_interval(found.jaccard, '.4f')}")
    emit(shown, as_json, "\n".join(text))


def _name(view: View) -> str:
    return f"{view.header.set_name}/{view.header.sequence}"


def _elements(found: Estimate) -> str:
    if math.isinf(found.high):
        return f"at least {found.low:,.0f} elements at {confidence_text(found.confidence)}: saturated"
    return f"{found.estimate:,.0f} elements, {_interval(found, ',.0f')}"


def _interval(found: Estimate, number: str) -> str:
    return f"{found.low:{number}} to {found.high:{number}} at {confidence_text(found.confidence)}"
