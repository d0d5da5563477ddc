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
    from veilset._display import progress
    from veilset._reader.follower import Follower, follow
    from veilset._reader.reader import open_view as open  # noqa: A004 - `veilset.open` reads as what it is
    from veilset._reader.remote_view import RemoteView, remote
    from veilset._reader.view import View
    from veilset._service.records import Budget, BudgetChange, Reconciled, Release, SetInfo
    from veilset._service.service import Service, connect
    from veilset._service.spec import Spec
    from veilset._service.upload import UploadPart, UploadResult
    from veilset.core.encodings.decoder import Decoder, Rule
    from veilset.core.encodings.planning import Plan
    from veilset.core.estimates.results import Check, Comparison, Overlap, SizeEstimate
    from veilset.core.params import Adjacency, Calibration, HashParameters, HashScheme, Normalization, PrivacyParameters
    from veilset.core.privacy.statement import Statement
    from veilset.core.release.header import ReleaseHeader
    from veilset.errors import VeilsetError

__version__: str

__all__ = [
    "Adjacency",
    "Budget",
    "BudgetChange",
    "Calibration",
    "Check",
    "Comparison",
    "Decoder",
    "Follower",
    "HashParameters",
    "HashScheme",
    "Normalization",
    "Overlap",
    "Plan",
    "PrivacyParameters",
    "Reconciled",
    "Release",
    "ReleaseHeader",
    "RemoteView",
    "Rule",
    "Service",
    "SetInfo",
    "SizeEstimate",
    "Spec",
    "Statement",
    "UploadPart",
    "UploadResult",
    "VeilsetError",
    "View",
    "__version__",
    "aio",
    "connect",
    "errors",
    "follow",
    "open",
    "progress",
    "remote",
]

_ROOMS = {
    "veilset._display": "progress",
    "veilset._reader.follower": "Follower follow",
    "veilset._reader.reader": "open",
    "veilset._reader.remote_view": "RemoteView remote",
    "veilset._reader.view": "View",
    "veilset._service.records": "Budget BudgetChange Reconciled Release SetInfo",
    "veilset._service.service": "Service connect",
    "veilset._service.spec": "Spec",
    "veilset._service.upload": "UploadPart UploadResult",
    "veilset.core.encodings.decoder": "Decoder Rule",
    "veilset.core.encodings.planning": "Plan",
    "veilset.core.estimates.results": "Check Comparison Overlap SizeEstimate",
    "veilset.core.params": "Adjacency Calibration HashParameters HashScheme Normalization PrivacyParameters",
    "veilset.core.privacy.statement": "Statement",
    "veilset.core.release.header": "ReleaseHeader",
    "veilset.errors": "VeilsetError",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}


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
