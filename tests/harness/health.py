"""Health checks of tests."""

from __future__ import annotations

from harness.patience import SECONDS
from veilset._service.endpoint import Endpoint
from veilset._service.health import is_serving


def serves(endpoint: Endpoint) -> bool:
    """`is_serving` with patience."""
    return is_serving(endpoint, SECONDS)
