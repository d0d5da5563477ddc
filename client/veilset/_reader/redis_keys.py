"""Names of a release's keys in Redis. No hash tag: a cluster spreads the chunks; each operation touches one key.

Set names hold no colon and no brace, so no two sets share a key.
"""

from __future__ import annotations

PREFIX = "veilset"
MANIFEST = -1
PROBE = "veilset:probe"
"""Never there; what asks whether Redis takes writes."""


def latest(set_name: str) -> str:
    """The pointer: the newest visible sequence, as decimal digits."""
    return f"{PREFIX}:{set_name}:latest"


def manifest(set_name: str, sequence: int) -> str:
    """The signed header."""
    return f"{PREFIX}:{set_name}:{sequence}:manifest"


def chunk(set_name: str, sequence: int, index: int) -> str:
    """Chunk ``index`` of the packed bits: a plain string, readable with GETBIT. Index MANIFEST gives the manifest."""
    return manifest(set_name, sequence) if index == MANIFEST else f"{PREFIX}:{set_name}:{sequence}:bits:{index}"


def channel(set_name: str) -> str:
    """Where a moved pointer is announced; the message is the sequence. A hint only: the pointer is the truth."""
    return f"{PREFIX}:{set_name}:releases"
