"""One upload's stream from the producer's side: send, count what is acknowledged, and go on after a cut.

Pieces that are not acknowledged yet are kept, at most `WINDOW` of them, so that what is sent need not be readable twice.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc

from veilset._service.endpoint import Endpoint
from veilset._service.rich_errors import from_rpc_error
from veilset.errors import InvalidInput, Unavailable, VeilsetError
from veilset.jitter import jitter

WINDOW = 16
RETRY_SECONDS = 60.0
MAX_RETRY_SECONDS = 1e6

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0
_END = object()


class Answer(Protocol):
    """A response: ``message`` is one of opened, acknowledged, finished."""

    def WhichOneof(self, oneof_group: Any, /) -> Any:  # noqa: N802 - protobuf's name
        """Which of them."""


Request = TypeVar("Request")
Response = TypeVar("Response", bound=Answer)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Piece(Generic[Request]):
    """A message to send, and the number by which it is acknowledged; numbers rise."""

    number: int
    request: Request


class ResumableStream(ABC, Generic[Request, Response, Result]):
    """One upload; `run` sends it to the end."""

    def __init__(
        self, method: grpc.StreamStreamMultiCallable[Request, Response], target: Endpoint, opening: Request
    ) -> None:
        self._method = method
        self._target = target
        self._opening = opening
        self._known = False
        self._held = 0
        self._made: Iterator[Piece[Request] | None] | None = None
        self._unacknowledged: deque[Piece[Request]] = deque()
        self._changed = threading.Condition()
        self._producing = threading.Lock()
        self._failure: BaseException | None = None

    # What the two kinds of upload bring

    @abstractmethod
    def _begin(self, opened: Response) -> None:
        """Learn from the first answer of this process what to send and from where on."""

    @abstractmethod
    def _number(self, response: Response) -> int:
        """Up to which number an opened or an acknowledgement says that the service holds the upload."""

    @abstractmethod
    def _earlier_result(self, opened: Response) -> Result | None:
        """The result, if an earlier run had got its finish through."""

    @abstractmethod
    def _pieces(self) -> Iterator[Piece[Request] | None]:
        """What to send, without what was held at the beginning; None now and then while that is passed over."""

    @abstractmethod
    def _finish(self) -> Request:
        """The last message; asked for behind the last piece."""

    @abstractmethod
    def _result(self, finished: Response) -> Result:
        """The result."""

    def _progress(self, acknowledged: Response) -> None:
        """Tell whoever wants to know."""

    # The stream

    def run(self, retry_seconds: float | None = None) -> Result:
        """Send everything; returns once the service holds it durably.

        retry_seconds: how long to go on trying without progress where the service is away. Default: RETRY_SECONDS once it has
        answered, as it will be back from a restart, and no time at all before, as the target may be wrong. Raises what the
        service raised, what the caller's iterable raised, and Unavailable when the service stays away: the same upload id
        resumes later.
        """
        if retry_seconds is not None and not 0 <= retry_seconds <= MAX_RETRY_SECONDS:
            raise InvalidInput("retry_seconds", f"a number in [0, {MAX_RETRY_SECONDS:g}]", retry_seconds)
        pause, away_since = _FIRST_PAUSE, None
        while True:
            before = self._held
            try:
                return self._attempt()
            except Unavailable as error:
                now = time.monotonic()
                slow = error.details.get("kind") == "IDLE"  # the service is there, and waits for the caller's iterable
                if away_since is None or slow or self._held > before:
                    pause, away_since = _FIRST_PAUSE, now
                limit = (RETRY_SECONDS if self._known else 0.0) if retry_seconds is None else retry_seconds
                rest = away_since + limit - now
                if rest <= 0:
                    raise
                time.sleep(min(pause * jitter(0.5, 1.0), rest))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _attempt(self) -> Result:
        opened = threading.Event()
        closed = threading.Event()
        call = self._method(self._requests(opened, closed), wait_for_ready=False)
        try:
            for response in call:
                kind = response.WhichOneof("message")
                if kind == "opened":
                    earlier = self._earlier_result(response)
                    if earlier is not None:
                        return earlier
                    self._start_from(response)
                    opened.set()
                elif kind == "acknowledged":
                    self._acknowledge(self._number(response))
                    self._progress(response)
                elif kind == "finished":
                    with suppress(grpc.RpcError):
                        next(call, None)  # the stream's end, so that the service sees no call that was broken off
                    return self._result(response)
        except grpc.RpcError as error:
            if self._failure is not None:
                raise self._failure from None
            raise from_rpc_error(error, self._target) from None
        finally:
            with self._changed:
                closed.set()
                opened.set()
                self._changed.notify_all()
            call.cancel()
        if self._failure is not None:
            raise self._failure
        raise Unavailable("service: the stream ended before the upload was finished", target=self._target)

    def _start_from(self, opened: Response) -> None:
        number = self._number(opened)
        if not self._known:  # the first stream of this process
            self._begin(opened)
            self._made = self._pieces()
            self._known = True
        elif number < self._held:
            raise VeilsetError("service: lost an upload that it had acknowledged; start over with a new upload id")
        self._acknowledge(number)

    def _acknowledge(self, number: int) -> None:
        with self._changed:
            self._held = max(self._held, number)
            while self._unacknowledged and self._unacknowledged[0].number <= number:
                self._unacknowledged.popleft()
            self._changed.notify_all()

    def _requests(self, opened: threading.Event, closed: threading.Event) -> Iterator[Request]:
        """Runs in gRPC's own thread, which would swallow what is raised here: so it is kept for `_attempt`."""
        yield self._opening
        opened.wait()
        try:
            with self._producing:  # a cut stream's thread may still be making a piece
                again = list(self._unacknowledged)
            for piece in again:
                yield piece.request
            while (made := self._next_piece(closed)) is not None:
                yield made.request
            if not closed.is_set():
                yield self._finish()
        except Exception as error:  # noqa: BLE001 - of the caller's iterator, whatever it is
            self._failure = error

    def _next_piece(self, closed: threading.Event) -> Piece[Request] | None:
        """The next piece to send, kept until acknowledged; None behind the last one, and at the end of the stream."""
        with self._producing:
            with self._changed:
                self._changed.wait_for(lambda: closed.is_set() or len(self._unacknowledged) < WINDOW)
            while not closed.is_set() and self._made is not None:
                piece = self._make(self._made)
                if piece is _END:
                    return None
                if isinstance(piece, Piece):
                    with self._changed:
                        self._unacknowledged.append(piece)
                    return piece
            return None

    def _make(self, made: Iterator[Piece[Request] | None]) -> Piece[Request] | object:
        """An iterator that failed once looks exhausted; a later stream must not take that for the end."""
        if self._failure is not None:
            raise self._failure
        try:
            return next(made, _END)
        except Exception as error:
            self._failure = error
            raise
