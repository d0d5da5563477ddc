"""Reading a release: fetch it, check it whole, and make it ready to answer from memory."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from veilset._reader.fetching import fetch_generation, make_demands
from veilset._reader.set_releases import Found, SetReleases
from veilset._reader.sources import is_url, open_file
from veilset._reader.view import View, make_view
from veilset._service.spec import Spec
from veilset.core.encodings.decoder import Rule
from veilset.errors import InvalidInput

__all__ = ["View", "open_view"]


def open_view(
    target: str | bytes | Path,
    set_name: str | None = None,
    *,
    sequence: int = 0,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    max_age_seconds: float | None = None,
    cache_dir: str | Path | None = None,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
    spec: Spec | None = None,
) -> View:
    """Fetch a release, check it whole, and make it ready to answer.

    target: a Redis URL (then set_name is needed), a path, or the bytes of a release file. sequence: 0 for the newest.
    public_keys: raw or hexadecimal Ed25519 keys that the reader trusts; with none the signature shows only that the
    release is whole. min_sequence: refuse older releases, such as one seen before. max_age_seconds: refuse a release made
    longer ago, by this machine's clock. cache_dir: a folder for the sets of one service, in which releases are kept as
    files that processes of this machine map together, and the highest sequence seen is remembered: an older release is
    refused from then on, and while Redis is away or empty the newest one kept answers (`View.offline` says so).
    rule, max_false_positive_rate, min_true_positive_rate: how to choose the threshold, see
    `core.encodings.decoder.make_decoder`. key: the secret of a keyed scheme. spec: what was agreed on; a release
    that means something else by its bits is refused. Raises InvalidInput, NotComparable (with a spec), WrongKey, NotFound,
    Unavailable, ReleaseRejected, StaleRelease, PoorUtility, StateCorrupted and StorageFull (with a cache_dir).
    """
    demands = make_demands(set_name, public_keys, min_sequence, max_age_seconds, spec)
    decision = {
        "rule": rule,
        "max_false_positive_rate": max_false_positive_rate,
        "min_true_positive_rate": min_true_positive_rate,
    }
    if is_url(target):
        if set_name is None:
            raise InvalidInput("set_name", "set_name is needed with a Redis URL")
        found = SetReleases(set_name, demands, cache_dir).find(str(target), sequence)
    else:
        if cache_dir is not None:
            raise InvalidInput(
                "cache_dir", "cache_dir applies to releases from Redis only, and a file is opened; leave it out"
            )
        with closing(open_file(target)) as source:
            found = Found(fetch_generation(source, sequence or source.latest(), demands))
    return view_of(found, key, decision)


def view_of(found: Found, key: bytes | None, decision: dict[str, Any]) -> View:
    """A view of what was found; ``decision``: rule and limits of `core.encodings.decoder.make_decoder`."""
    view = make_view(found.parts, key, **decision)
    view.offline = found.offline
    return view
