"""No core dumps: a process that dies must not leave its memory, elements and digests and all, in a file."""

from __future__ import annotations

import ctypes
import os
import resource

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
