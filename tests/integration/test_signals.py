"""Signals of a running service, also those that come when its main thread cannot be interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys

from harness.patience import SECONDS

PROGRAM = """
import signal, sys, threading
from veilset_server.process import Signals

elsewhere = {signal.SIGHUP, signal.SIGTERM}
with Signals() as signals:
    signals.begin_serving()
    signals.reloads.append(lambda: print("read again", file=sys.stderr))
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # takes the signals
    signal.pthread_sigmask(signal.SIG_BLOCK, elsewhere)  # so nothing wakes the main thread from a blocking call
    print("waiting", file=sys.stderr)
    signals.until_stopped()
print("stopped", file=sys.stderr)
"""


def test_signals_need_not_interrupt_the_main_thread() -> None:
    """SIGHUP reads again each time and SIGTERM stops, though another thread receives them."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as program:
        try:
            assert program.stderr is not None
            assert program.stderr.readline() == b"waiting\n"
            for _ in range(3):
                program.send_signal(signal.SIGHUP)
                assert program.stderr.readline() == b"read again\n"
            program.send_signal(signal.SIGTERM)
            _, rest = program.communicate(timeout=SECONDS)
            assert rest == b"stopped\n"
        finally:
            program.kill()
    assert program.returncode == 0
