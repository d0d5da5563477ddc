"""How long a test waits for what has to come."""

from __future__ import annotations

from veilset._service.endpoint import Endpoint
from veilset._service.health import is_serving

SECONDS = 120.0
"""Far longer than anything here takes, and less than pytest lets a test take: a busy machine is no fault."""


def serves(endpoint: Endpoint) -> bool:
    """`is_serving` with patience."""
    return is_serving(endpoint, SECONDS)
