"""What the service sets for its process: descriptors, thread switching, memory, and no core dumps.

glibc gives each thread a heap of its own and, once a large block was freed, takes later ones of that size from those heaps.
A service whose threads each handle megabytes now and then would hold the peak of all of them, and its memory would grow for
hours. With few heaps, and blocks from 1 MiB on mapped separately, it holds what is in use (measured under the load of the
soak test: 53 MiB instead of 75).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
HEAPS = 2
MAPPED_BYTES = 1 << 20

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while others want it. With Python's own 5 ms a short call would wait that long for
each thread that hashes an upload, again and again."""


def return_freed_memory() -> bool:
    """Call before there are threads; whether it could be set. Other C libraries than glibc do not have it, nor need it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, HEAPS) and mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES))


def prepare_process() -> None:
    """As many descriptors as the system allows, and threads that take turns quickly."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.setswitchinterval(SWITCH_SECONDS)


_PR_SET_DUMPABLE = 4


def refuse_core_dumps() -> None:
    """For this process and its children: no core file. For this process: no memory to be read by others of its user.

    The limit alone is not enough, as a kernel that pipes cores to a program ignores it. A process that is not dumpable can
    be debugged by root only. Raises OSError where the kernel refuses.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
