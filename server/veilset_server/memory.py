"""What a service asks of its process: descriptors, quick turns of its threads, and memory that goes back to the system.

glibc gives each thread a heap of its own and, once a large block was freed, takes later ones of that size from those heaps. A
service whose threads each handle megabytes now and then then holds as much as all of them ever held at once, and its memory
creeps up for hours. With few heaps, and blocks from 1 MiB on mapped each by itself, it stays with what is in use (measured
under the soak's load: 75 MiB against 53).
"""

from __future__ import annotations

import ctypes
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
