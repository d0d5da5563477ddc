"""Names of a release's keys in Redis. No hash tag: a cluster spreads the chunks; each operation touches one key.

Set names hold no colon and no brace, so no two sets share a key.
"""

from __future__ import annotations

PREFIX = "veilset"
MANIFEST = -1
PROBE = "veilset:probe"
"""A key that is never set; the check whether Redis accepts writes uses it."""


def latest(set_name: str) -> str:
    """The key of the pointer: the newest visible sequence, as decimal digits."""
    return f"{PREFIX}:{set_name}:latest"


def manifest(set_name: str, sequence: int) -> str:
    """The key of the signed header."""
    return f"{PREFIX}:{set_name}:{sequence}:manifest"


def chunk(set_name: str, sequence: int, index: int) -> str:
    """The key of chunk ``index`` of the packed vector, a plain string; index MANIFEST is the manifest."""
    return manifest(set_name, sequence) if index == MANIFEST else f"{PREFIX}:{set_name}:{sequence}:bits:{index}"


def channel(set_name: str) -> str:
    """The channel that announces a moved pointer; the message is the sequence. It is a hint only: the pointer decides."""
    return f"{PREFIX}:{set_name}:releases"
