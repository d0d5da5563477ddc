"""Pauses of uneven length, so that a crowd that lost a service or Redis at one moment does not come back in step."""

from __future__ import annotations

import secrets


def jitter(least: float, most: float) -> float:
    """A factor between ``least`` and ``most``, in a thousand steps."""
    return least + (most - least) * secrets.randbelow(1001) / 1000
