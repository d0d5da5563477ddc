"""``veilset inspect``, ``verify`` and ``count``: what a release says of itself."""

from __future__ import annotations

import math
from dataclasses import asdict

import click

from veilset.cli import options
from veilset.cli.output import emit, lines
from veilset.cli.releases import describe_header
from veilset.cli.source import Source, source, warn_if_useless
from veilset.core.calibration import calibrate
from veilset.core.signing import key_id
from veilset.errors import InvalidInput, ReleaseRejected


@click.command("inspect", short_help="Show what a release says of itself.")
@source
@options.as_json
def inspect(source: Source, as_json: bool) -> None:
    """Show the header of a release of SET, the error rates to expect, and its privacy statement in words."""
    view = source.open()
    rates = {
        "threshold": view.decoder.threshold,
        "true_positive_rate": view.decoder.true_positive_rate,
        "false_positive_rate": view.decoder.false_positive_rate,
    }
    shown = describe_header(view.header) | rates
    plain = {name: value for name, value in shown.items() if name not in ("statement", "count")}
    if view.header.count is not None:
        plain |= {f"count_{name}": value for name, value in asdict(view.header.count).items()}
    warn_if_useless(view)
    emit(shown, as_json, f"{lines(plain)}\n\n{view.statement}")


@click.command("verify", short_help="Check a release, its noise included.")
@source
@options.as_json
def verify(source: Source, as_json: bool) -> None:
    """Check signature, lengths and hashes of a release, and that its noise is what its promise asks for.

    The calibration is computed again from the promise in the header. Needs --public-key: a signature by an unknown key
    shows nothing.
    """
    if not source.public_keys:
        raise InvalidInput("public-key", "given: the key that the service printed when it started")
    header = source.open().header
    needed = calibrate(header.filter, header.privacy)
    if header.flip_threshold < needed.threshold:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: less noise than its promise asks for", check="flip_threshold"
        )
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
    if math.isinf(found.high):
        text = (
            f"at least {found.low:,.0f} elements at {confidence:.0%}, from its {found.source}: the vector is overfull"
        )
    else:
        text = (
            f"{found.estimate:,.0f} elements, {found.low:,.0f} to {found.high:,.0f} at {confidence:.0%}, "
            f"from its {found.source}"
        )
    emit(asdict(found) | {"high": None if math.isinf(found.high) else found.high}, as_json, text)
