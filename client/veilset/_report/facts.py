"""All that is known of a release, as a record for JSON: what text, JSON and page of ``veilset inspect`` show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from veilset._reader.view import View
from veilset._system import iso_time
from veilset.core.encodings.decoder import operating_points, posterior_rows
from veilset.core.estimates.intervals import finite_or_none
from veilset.core.privacy.budget import NANO
from veilset.core.privacy.limits import advantage_limit
from veilset.core.privacy.statement import make_statement
from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import key_id, valid_signers
from veilset.errors import Unsupported

PRIORS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


def describe_header(header: ReleaseHeader) -> dict[str, object]:
    """The fields of a release header, flat; name → value."""
    return {
        "set": header.set_name,
        "sequence": header.sequence,
        "generation": header.generation,
        "increment": len(header.earlier),
        "planned_increments": header.planned_increments,
        "removals_epsilon": header.removals_epsilon,
        "created_at": iso_time(header.created_at_us),
        "encoding": header.encoding.encoding,
        **header.encoding.fields(),
        **header.encoding.facts(),
        "scheme": str(header.hashing.scheme),
        "seed": header.hashing.seed,
        "shared_seed": header.shared_seed,
        "key_check": header.hashing.key_check or None,
        "normalization": header.normalization.versioned,
        **asdict(header.privacy),
        "capacity": header.capacity,
        "total_epsilon": header.total_nano_epsilon / NANO,
        "total_delta": header.total_delta,
        "limit_epsilon": header.limit_nano_epsilon / NANO,
        "limit_delta": header.limit_delta,
        "count": asdict(header.count) if header.count else None,
        "statement": asdict(make_statement(header)),
    }


def describe_release(view: View, *, pinned: bool) -> dict[str, Any]:
    """`describe_header` and what the vector adds: rates, curves, size, signatures. pinned: whether the view was opened with
    public keys to trust, one of which has then signed."""
    decoder, privacy = view.decoder, view.header.privacy
    limit = advantage_limit(privacy.epsilon, privacy.delta)
    return describe_header(view.header) | {
        "bytes": view.header.vector_bytes,
        **decoder.law.facts,
        "saturated": decoder.saturated,
        "true_positive_rate": decoder.true_positive_rate,
        "false_positive_rate": decoder.false_positive_rate,
        "advantage": decoder.advantage,
        "advantage_limit": limit,
        "efficiency": decoder.advantage / limit,
        "roc": [asdict(point) for point in operating_points(decoder)],
        "posteriors": [asdict(row) for row in posterior_rows(decoder, PRIORS)],
        "size": _size(view),
        "parts": [
            describe_part(part.header)
            | {
                "saturated": own.saturated,
                "true_positive_rate": own.true_positive_rate,
                "false_positive_rate": own.false_positive_rate,
            }
            for part, own in zip(view.parts, decoder.vectors, strict=False)
        ],
        "signature": {
            "trusted": pinned,
            "keys": [{"key_id": key_id(key), "public_key": key.hex()} for key in valid_signers(view.manifest)],
        },
    }


def describe_part(header: ReleaseHeader) -> dict[str, Any]:
    """One release of a generation."""
    return {
        "sequence": header.sequence,
        "created_at": iso_time(header.created_at_us),
        "capacity": header.capacity,
        "bytes": header.vector_bytes,
    }


def _size(view: View) -> dict[str, Any] | None:
    """None where the encoding does not show it."""
    try:
        found = asdict(view.size())
    except Unsupported:
        return None
    return found | {"high": finite_or_none(found["high"])}
