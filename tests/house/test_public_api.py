"""The public door of the library: what is in it, and that it opens fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

import veilset

FROZEN = [
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


def test_the_public_names_are_frozen() -> None:
    """Whoever adds or takes one away says so here, and in the changelog."""
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
