"""veilset: private membership sets.

Producers and owners `connect` to the service; readers `open` a release from Redis, a file or bytes and ask it locally.
Names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veilset.core.params import Adjacency, Calibration, HashScheme, Normalization, PrivacyParameters
    from veilset.errors import VeilsetError
    from veilset.reader import open_view as open  # noqa: A004 - `veilset.open` reads as what it is
    from veilset.service import Service, connect
    from veilset.view import View

__all__ = [
    "Adjacency",
    "Calibration",
    "HashScheme",
    "Normalization",
    "PrivacyParameters",
    "Service",
    "VeilsetError",
    "View",
    "__version__",
    "connect",
    "open",
]

_HOMES = {
    "Adjacency": "veilset.core.params",
    "Calibration": "veilset.core.params",
    "HashScheme": "veilset.core.params",
    "Normalization": "veilset.core.params",
    "PrivacyParameters": "veilset.core.params",
    "Service": "veilset.service",
    "VeilsetError": "veilset.errors",
    "View": "veilset.view",
    "connect": "veilset.service",
    "open": "veilset.reader",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("veilset")
    if name not in _HOMES:
        raise AttributeError(f"module 'veilset' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), "open_view" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
