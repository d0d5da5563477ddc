"""How kernels are compiled: once for a machine, kept on disk beside the module or in numba's folder for the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile at the first call for its types; without a folder to keep the result in, anew in every process."""
    try:
        compiled = numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # numba found no folder that it may write to
        compiled = numba.njit(function, nogil=True)
    return cast(Function, compiled)


def inline(function: Function) -> Function:
    """A part of kernels that is compiled into them."""
    return cast(Function, numba.njit(function))
