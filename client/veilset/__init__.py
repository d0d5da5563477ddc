"""veilset: private membership sets.

Producers and owners `connect` to the service; readers `open` a release from Redis, a file or bytes, or `follow` a set, and
ask on their own machine.
Names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veilset import aio, errors
    from veilset._reader.follower import Follower, follow
    from veilset._reader.reader import open_view as open  # noqa: A004 - `veilset.open` reads as what it is
    from veilset._reader.remote_view import RemoteView, remote
    from veilset._reader.view import View
    from veilset._service.service import Service, connect
    from veilset._service.spec import Spec
    from veilset.core.params import Adjacency, Calibration, HashScheme, Normalization, PrivacyParameters
    from veilset.errors import VeilsetError

__version__: str

__all__ = [
    "Adjacency",
    "Calibration",
    "Follower",
    "HashScheme",
    "Normalization",
    "PrivacyParameters",
    "RemoteView",
    "Service",
    "Spec",
    "VeilsetError",
    "View",
    "__version__",
    "aio",
    "connect",
    "errors",
    "follow",
    "open",
    "remote",
]

_HOMES = {
    "Adjacency": "veilset.core.params",
    "Calibration": "veilset.core.params",
    "Follower": "veilset._reader.follower",
    "HashScheme": "veilset.core.params",
    "Normalization": "veilset.core.params",
    "PrivacyParameters": "veilset.core.params",
    "RemoteView": "veilset._reader.remote_view",
    "Service": "veilset._service.service",
    "Spec": "veilset._service.spec",
    "VeilsetError": "veilset.errors",
    "View": "veilset._reader.view",
    "connect": "veilset._service.service",
    "follow": "veilset._reader.follower",
    "open": "veilset._reader.reader",
    "remote": "veilset._reader.remote_view",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes longer than all the rest here

        return version("veilset")
    if name in ("aio", "errors"):
        return import_module(f"veilset.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'veilset' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), "open_view" if name == "open" else name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
