"""Pages of lists: sizes, tokens, and releases whose manifests have to fit into one message."""

from __future__ import annotations

from veilset.core.params import check_integer
from veilset.errors import must_be
from veilset_server.records import StoredRelease
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

MAX_PAGE = 1000
DEFAULT_PAGE = 100
MAX_SEQUENCE = 1 << 62
MOST_BYTES = 3 << 20
"""Of manifests in one answer, unless the first one alone has more: gRPC clients take 4 MiB if nothing else is said."""

_AT_A_TIME = 8


def page_size(asked: int) -> int:
    """0 is the default. Raises InvalidInput."""
    return check_integer("page_size", asked or DEFAULT_PAGE, 1, MAX_PAGE)


def sequence_token(token: str) -> int:
    """The sequence below which the page starts; 0 from the newest. Raises InvalidInput."""
    if token and not (token.isascii() and token.isdigit() and len(token) <= len(str(MAX_SEQUENCE))):
        raise must_be("page_token", "the next_page_token of the page before, or empty")
    return min(int(token or 0), MAX_SEQUENCE)


def release_page(
    ledger: SqliteLedger, set_name: str, below: int, size: int, most_bytes: int = MOST_BYTES
) -> tuple[list[StoredRelease], str]:
    """Up to ``size`` releases, newest first, and the token of the next page, empty behind the last.

    A manifest has 34 bytes for each MiB of its vector, so fewer fit where vectors are long.
    """
    found: list[StoredRelease] = []
    total = 0
    while more := ledger.list_releases(set_name, below, _AT_A_TIME):
        for release in more:
            total += len(release.manifest)
            if len(found) == size or (found and total > most_bytes):
                return found, str(found[-1].sequence)
            found.append(release)
        below = found[-1].sequence
    return found, ""
