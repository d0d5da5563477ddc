"""The compiled kernels, if the extra ``fast`` is installed and there is enough work to pay for loading them.

numba takes most of a second to load, which is too long for a short command, and the length of a stream is not known beforehand.
So callers report how much time the kernels would have saved so far, and once that adds up to the cost of loading they are loaded:
never more than twice what the better choice would have taken. The service goes by the public length of a vector instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOADING_SECONDS = 0.8

SAVED_PER_PERTURBED_BYTE = 2e-9
"""Seconds; here, since the module that decides what is flipped computes in integers only."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The modules of `veilset.core.kernels`."""

    elements: ModuleType
    bloom: ModuleType
    linear: ModuleType


class _State:
    missed_seconds = 0.0
    kernels: Kernels | None = None
    unavailable = False


def kernels(saved_seconds: float = 0.0) -> Kernels | None:
    """The kernels, or None where the plain code is to do the work.

    saved_seconds: about what they would save in the work at hand.
    """
    if _State.kernels is None and not _State.unavailable:
        _State.missed_seconds += saved_seconds
        if _State.missed_seconds >= LOADING_SECONDS:
            load()
    return _State.kernels


def load() -> Kernels | None:
    """Load them now, for work to come; None where numba is not installed or does not run here."""
    if _State.kernels is None and not _State.unavailable:
        try:
            if find_spec("numba") is None:
                raise ImportError("numba")
            _State.kernels = Kernels(*(import_module(f"veilset.core.kernels.{name}") for name in Kernels.__slots__))
        except Exception:  # noqa: BLE001 - an installation that is broken, in whatever way: the plain code does the same work
            _State.unavailable = True
    return _State.kernels


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array as kernels take what they only read: contiguous, aligned, not writable; they are compiled for that kind."""
    found = np.require(array, requirements=["C", "A"]).view()
    found.setflags(write=False)
    return found
