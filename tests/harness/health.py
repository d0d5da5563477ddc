"""Health checks of tests."""

from __future__ import annotations

from harness.patience import SECONDS
from veilset._service.channel import is_serving
from veilset._service.endpoint import Endpoint


def serves(endpoint: Endpoint) -> bool:
    """`is_serving` with patience."""
    return is_serving(endpoint, SECONDS)
