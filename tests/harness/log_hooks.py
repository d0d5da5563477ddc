"""`configure_logs` is for a process of the service's own; within pytest's it has to be taken back."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logs_left_alone() -> Iterator[None]:
    """Whatever the block sets up, afterwards all is as before."""
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning, logging.raiseExceptions
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        sys.excepthook, sys.unraisablehook, threading.excepthook, warnings.showwarning, logging.raiseExceptions = hooks
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
