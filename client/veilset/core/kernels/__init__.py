"""Compiled twins of the core's inner loops, by numba. Import them through `veilset.core.compiled` only, which decides when.

Each gives bit for bit what its plain twin gives (tests/unit/test_kernels.py), so the choice changes the time only. They are pure
like the rest of the core: arrays in, arrays out; they release the interpreter's lock. They are compiled once on each machine and
cached beside the module or in numba's folder of the user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile a function at its first call, for its types; in every process anew if there is no folder for the result."""
    try:
        compiled = numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # numba found no folder that it may write to
        compiled = numba.njit(function, nogil=True)
    return cast(Function, compiled)


def inline(function: Function) -> Function:
    """A helper function that is compiled into the kernels that call it."""
    return cast(Function, numba.njit(function))
