"""``veilset inspect``, ``verify`` and ``count``: what a release shows."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from veilset._reader.view import View
from veilset._report.facts import describe_release
from veilset._report.page import release_page
from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.cli.source import Source, source, warn_if_useless
from veilset.core.estimates.intervals import confidence_text, finite_or_none
from veilset.core.estimates.results import SizeEstimate
from veilset.core.release.signing import key_id
from veilset.errors import InvalidInput, ReleaseRejected


@click.command("inspect", short_help="Show what a release says of itself.")
@source
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML page instead, with the ROC curve and what an answer does to a prior.",
)
@options.as_json
def inspect(source: Source, page: Path | None, as_json: bool) -> None:
    """Show all that is known of a release of SET: its header, its privacy statement in words, the error rates of
    every test, what an answer does to a prior probability, its size, and who signed it."""
    view = source.open()
    pinned = bool(source.public_keys)
    shown = describe_release(view, pinned=pinned)
    warn_if_useless(view)
    if page is not None:
        page.write_text(release_page(view, pinned=pinned, has_key=source.key is not None), encoding="utf-8")
    emit(shown, as_json, f"wrote {page}" if page is not None else _as_text(view, shown))


def _as_text(view: View, shown: dict[str, Any]) -> str:
    """All that the JSON has, in tables."""
    signed = shown["signature"]
    keys = ", ".join(key["key_id"] for key in signed["keys"])
    plain = {
        name: "none" if value is None else value for name, value in shown.items() if not isinstance(value, dict | list)
    }
    plain |= {f"count_{name}": value for name, value in (shown["count"] or {}).items()}
    plain |= {
        "size": "not shown by this encoding" if shown["size"] is None else size_text(view.size()),
        "signature": f"{keys} ({'trusted' if signed['trusted'] else 'not pinned'})",
    }
    tables = [_table("yes from", shown["roc"]), _table("prior", shown["posteriors"])]
    return "\n\n".join([lines(plain), *tables, str(view.statement)])


def _table(corner: str, rows: list[dict[str, Any]]) -> str:
    """Rows of numbers; the first column is named ``corner``."""
    head = [corner, *(name.replace("_", " ") for name in list(rows[0])[1:])]
    body = [[value if isinstance(value, str) else f"{value:.6g}" for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in [head, *body]
    )


@click.command("verify", short_help="Check a release, its noise included.")
@source
@options.as_json
def verify(source: Source, as_json: bool) -> None:
    """Check signature, lengths and hashes of a release, and that its noise is what its promise asks for.

    The calibration is computed again from the promise in the header. Needs --public-key: a signature by an unknown key
    shows nothing.
    """
    if not source.public_keys:
        raise InvalidInput("public-key", "public-key is needed: give the key that the service printed when it started")
    header = source.open().header
    try:
        header.encoding.check(header.privacy)
    except InvalidInput as error:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: it has less noise than its promise needs ({error.message})",
            check=error.field,
        ) from None
    keys = [key_id(bytes.fromhex(public_key)) for public_key in source.public_keys]
    shown = {"set": header.set_name, "sequence": header.sequence, "verified": True, "pinned_keys": keys}
    emit(shown, as_json, f"{header.set_name}/{header.sequence}: whole, signed by a pinned key, noise as promised")


@click.command("count", short_help="Estimate how many elements a set holds.")
@source
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the interval.")
@options.as_json
def count(source: Source, confidence: float, as_json: bool) -> None:
    """Estimate the number of distinct elements of SET, with an interval.

    From the count that was bought with the release (publish --count-epsilon), else from its noisy bits, which costs
    nothing and is wider.
    """
    found = source.open().size(confidence)
    emit(asdict(found) | {"high": finite_or_none(found.high)}, as_json, size_text(found))


def size_text(found: SizeEstimate) -> str:
    """A size estimate in words."""
    sure = f"{confidence_text(found.confidence)}, from its {found.source}"
    if math.isinf(found.high):
        return f"at least {found.low:,.0f} elements at {sure}: the vector is saturated"
    return f"{found.estimate:,.0f} elements, {found.low:,.0f} to {found.high:,.0f} at {sure}"
