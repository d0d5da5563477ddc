"""Counts and times calls."""

from __future__ import annotations

from veilset_server.metrics.instruments import Instruments
from veilset_server.rpc.call import UPLOAD, Call

UNTIMED = frozenset({"PublishRelease", "DeleteSet", UPLOAD})
"""The first two take, or wait for, the time of a publish, which grows with what the set holds; an upload's grows with what is
sent, also where it is one call. All other unary calls wait for a name at most, whose lock is not held while a publish is waited
for."""


class CallMeter:
    """A `serving.CallObserver`. The label ``method`` is one of the services' own names, or "other"."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    def started(self, call: Call) -> None:
        """One more."""
        self._instruments.calls_started.labels(call.label).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).inc()

    def opened(self, call: Call) -> None:
        """Nothing to count."""

    def ended(self, call: Call) -> None:
        """One less. How long a stream was open tells how much came through it, so only unary calls are timed,
        and of them those that bring no elements and wait for no set."""
        self._instruments.calls_handled.labels(call.label, call.code.name).inc()
        if call.streaming:
            self._instruments.open_streams.labels(call.label).dec()
        elif call.label not in UNTIMED:
            self._instruments.call_seconds.labels(call.label).observe(call.seconds())
