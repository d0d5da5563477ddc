"""The public door of the library: what is in it, and that it opens fast."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any, get_args, get_type_hints

import pytest

import veilset

FROZEN = [
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


def test_the_public_names_are_frozen() -> None:
    """One that is added or removed has to be named here, and in the changelog."""
    assert veilset.__all__ == FROZEN
    assert dir(veilset) == sorted(FROZEN)


@pytest.mark.parametrize("name", FROZEN)
def test_every_public_name_is_there(name: str) -> None:
    """Each has a docstring, but the version."""
    found = getattr(veilset, name)
    assert name == "__version__" or found.__doc__


def test_other_names_are_not() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        veilset.nonsense  # noqa: B018 - asking is the point


@pytest.mark.parametrize("module", ["aio", "errors"])
def test_modules_are_reached_after_the_import(module: str) -> None:
    """In a process that has imported nothing else: `except veilset.errors.StaleRelease` has to work there."""
    subprocess.run([sys.executable, "-c", f"import veilset; veilset.{module}.__doc__[0]"], check=True)


def test_importing_costs_next_to_nothing() -> None:
    """None of the libraries beneath is loaded before it is used."""
    script = "import sys, veilset; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"numpy", "grpc", "redis", "google", "cryptography", "mmh3"}
    assert not {name.partition(".")[0] for name in done.stdout.splitlines()} & heavy


ONLY_FOR_TYPES = {"Spec": veilset.Spec}  # imported by the service's module for its annotations only


def _own_classes(annotation: Any) -> set[str]:
    """Names of the classes of this package in a type, however deep."""
    inside = {name for part in get_args(annotation) for name in _own_classes(part)}
    own = inspect.isclass(annotation) and annotation.__module__.partition(".")[0] == "veilset"
    return inside | ({annotation.__name__} if own else set())


def _returned(holder: Any) -> set[str]:
    """What the public methods and properties of a class return, or a function itself."""
    if not inspect.isclass(holder):
        return _own_classes(get_type_hints(holder).get("return"))
    found: set[str] = set()
    for name, member in inspect.getmembers(holder):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isroutine(function) and hasattr(function, "__annotations__"):
            found |= _own_classes(get_type_hints(function, localns=ONLY_FOR_TYPES).get("return"))
    return found


@pytest.mark.parametrize(
    "name", ["Follower", "RemoteView", "Service", "Spec", "View", "connect", "follow", "open", "remote"]
)
def test_what_public_calls_return_is_exported(name: str) -> None:
    """A user never has to import a type from a room inside."""
    returned = _returned(getattr(veilset, name))
    assert returned or name == "RemoteView"
    assert returned <= set(veilset.__all__)
