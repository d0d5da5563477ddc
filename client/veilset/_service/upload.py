"""Uploads in a stream: hash, send, count what is acknowledged, and resume after an interruption.

A producer that crashed resumes with the same upload id and the same elements: what the service holds already is hashed, for the
checksum, and not sent again. If the upload was finished, the service compares. Up to `WINDOW` messages that are not acknowledged
yet are kept, so the elements are read once only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypedDict

import grpc
import numpy as np
import xxhash

from veilset._display import Displayed
from veilset._input.columns import Batch
from veilset._input.digests import Digests, InvalidElements, digest_batch
from veilset._service.endpoint import Endpoint
from veilset._service.errors import ENDPOINT, from_rpc_error
from veilset._system import jitter
from veilset.core.elements.hashing import check_key, pack_digests
from veilset.core.params import DIGEST_BYTES, HashParameters, Normalization
from veilset.core.release import wire
from veilset.errors import FailedPrecondition, Unavailable, VeilsetError, must_be
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc

MESSAGE_ELEMENTS = 1 << 16
"""Half a MiB of digests: large enough that the cost of a message does not matter, small enough for the processor's cache."""

WINDOW = 16
RETRY_SECONDS = 30.0
MAX_RETRY_SECONDS = 1e6

_FIRST_PAUSE = 0.25
_log = logging.getLogger("veilset")
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True, repr=False)
class UploadResult(Displayed):
    """A finished upload. elements: how many it has, duplicates included. resumed: how many of them an earlier stream sent.
    invalid: how many were skipped because they are no elements."""

    upload_id: str
    elements: int
    resumed: int
    invalid: int = 0


class UploadOptions(TypedDict, total=False):
    """Options of an upload; `Service.add` describes them."""

    upload_id: str | None
    key: bytes | None
    on_progress: Callable[[int], None] | None
    retry_seconds: float | None
    skip_invalid: bool


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of an upload that the service holds, for `Service.finish_upload`. elements: duplicates included. checksum:
    XXH3-128 of the digests in the order sent."""

    part: int
    elements: int
    checksum: bytes


class Patience:
    """Decides how long to keep trying without progress while the service is away.

    retry_seconds: default RETRY_SECONDS, enough for a restart; a wrong name, certificate or protocol ends the attempts at once,
    unless the service has answered before. The wait is logged once. Raises InvalidInput.
    """

    def __init__(self, retry_seconds: float | None) -> None:
        if retry_seconds is not None and not 0 <= retry_seconds <= MAX_RETRY_SECONDS:
            raise must_be("retry_seconds", f"a number in [0, {MAX_RETRY_SECONDS:g}]", retry_seconds)
        self._limit = RETRY_SECONDS if retry_seconds is None else retry_seconds
        self._pause = _FIRST_PAUSE
        self._away_since: float | None = None

    def wait(self, error: Unavailable, *, answered: bool, progressed: bool = False) -> None:
        """Pause before the next attempt; raise ``error`` if there is to be none."""
        now = time.monotonic()
        slow = error.details.get("kind") == "IDLE"  # the service is there, and waits for the caller's iterable
        first = self._away_since is None
        if self._away_since is None or slow or progressed:
            self._pause, self._away_since = _FIRST_PAUSE, now
        rest = self._away_since + self._limit - now
        if rest <= 0 or (error.details.get("kind") == ENDPOINT and not answered):
            raise error
        if first and not answered:
            _log.warning("veilset: %s; trying again for %g s", error.message, self._limit)
        time.sleep(min(self._pause * jitter(0.5, 1.0), rest))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Upload:
    """One upload, or one part of one, in a stream; `run` sends it to the end.

    opening: set, upload id, operation and part. batches: the elements, as `element_batches` gives them. key: the secret of a
    keyed scheme. on_progress is called with the number of elements acknowledged so far. What is no element under the set's
    normalization is left out with ``skip_invalid``; else all of it is found, and InvalidInput raised in the end. parts: the parts
    that finish commits, where there are no elements. Batches may be digests, then made with what ``made_with`` says.
    """

    def __init__(
        self,
        stub: membership_pb2_grpc.MembershipServiceStub,
        target: Endpoint,
        opening: pb.OpenUpload,
        batches: Iterable[Batch | Digests],
        key: bytes | None = None,
        on_progress: Callable[[int], None] | None = None,
        *,
        skip_invalid: bool = False,
        parts: Sequence[UploadPart] = (),
        made_with: tuple[HashParameters, Normalization] | None = None,
    ) -> None:
        self._stub = stub
        self._target = target
        self._open = opening
        self._batches = batches
        self._key = key
        self._on_progress = on_progress
        self._parts = parts
        self._made_with = made_with
        self._hashing: HashParameters | None = None
        self._normalization = Normalization.NONE
        self._checksum = xxhash.xxh3_128()
        self._position = self._count = 0  # of elements given, of digests made
        self._invalid = InvalidElements(skip=skip_invalid)
        self._resumed = 0
        self._to_skip = 0  # elements that the service holds
        self._held = 0  # highest batch
        self._finished = False
        self._made: Iterator[pb.AddElementsRequest | None] | None = None
        self._unacknowledged: deque[pb.AddElementsRequest] = deque()
        self._changed = threading.Condition()
        self._producing = threading.Lock()
        self._failure: BaseException | None = None

    def run(self, retry_seconds: float | None = None) -> UploadResult:
        """Send everything; returns once the service holds it durably.

        retry_seconds: as of `Patience`. Raises what the service raised, what the caller's iterable raised, and Unavailable when
        the service stays away: the same upload id resumes later.
        """
        patience = Patience(retry_seconds)
        while True:
            before = self._held
            try:
                return self._attempt()
            except Unavailable as error:
                patience.wait(error, answered=self._made is not None, progressed=self._held > before)

    def sealed(self) -> UploadPart:
        """The part that was sent, for the finish of the whole upload."""
        return UploadPart(self._open.part, self._count, self._checksum.digest())

    # The stream

    def _attempt(self) -> UploadResult:
        opened = threading.Event()
        closed = threading.Event()
        call = self._stub.AddElements(self._requests(opened, closed), wait_for_ready=False)
        try:
            for response in call:
                match response.WhichOneof("message"):
                    case "opened":
                        self._start_from(response.opened)
                        opened.set()
                    case "acknowledged":
                        self._acknowledge(response.acknowledged.sequence)
                        if self._on_progress is not None:
                            self._on_progress(response.acknowledged.elements)
                    case "finished":
                        with suppress(grpc.RpcError):
                            next(call, None)  # the stream's end, so that the service sees no call that was broken off
                        return UploadResult(
                            self._open.upload_id, int(response.finished.elements), self._resumed, self._invalid.count
                        )
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

    def _start_from(self, opened: pb.UploadOpened) -> None:
        if self._made is None:  # the first stream of this process
            self._hashing = wire.hashing_from_proto(opened.hashing)
            self._key = check_key(self._hashing, self._key, f"the set {self._open.set_name}")
            self._normalization = wire.from_number("normalization", wire.NORMALIZATION, opened.normalization)
            if self._made_with not in (None, (self._hashing, self._normalization)):
                raise FailedPrecondition(
                    "hashing: the set was deleted and created anew meanwhile; start the upload over", field="hashing"
                )
            self._resumed = self._to_skip = opened.elements
            self._made = self._messages(opened.sequence + 1)
        elif opened.sequence < self._held and not opened.finished:
            raise VeilsetError("service: it lost an upload that it had acknowledged; start over with a new upload id")
        if opened.finished:  # earlier, or by this process, whose last answer was lost
            with self._changed:
                self._finished = True
                self._unacknowledged.clear()
        else:
            self._acknowledge(opened.sequence)

    def _acknowledge(self, sequence: int) -> None:
        with self._changed:
            self._held = max(self._held, sequence)
            while self._unacknowledged and self._unacknowledged[0].batch.sequence <= sequence:
                self._unacknowledged.popleft()
            self._changed.notify_all()

    def _requests(self, opened: threading.Event, closed: threading.Event) -> Iterator[pb.AddElementsRequest]:
        """Runs in gRPC's own thread, which drops exceptions: so `_attempt` finds them in ``_failure``."""
        yield pb.AddElementsRequest(open=self._open)
        opened.wait()
        try:
            with self._producing:  # a cut stream's thread may still be making a message
                again = list(self._unacknowledged)
            yield from again
            while (made := self._next_message(closed)) is not None:
                yield made
            if not closed.is_set():
                yield pb.AddElementsRequest(finish=self._finish())
        except Exception as error:  # noqa: BLE001 - of the caller's iterator, whatever it is
            self._failure = error

    def _next_message(self, closed: threading.Event) -> pb.AddElementsRequest | None:
        """The next message to send, kept until acknowledged; None after the last one, and at the end of the stream."""
        with self._producing:
            with self._changed:
                self._changed.wait_for(lambda: closed.is_set() or len(self._unacknowledged) < WINDOW)
            while not closed.is_set() and self._made is not None:
                if self._failure is not None:  # the iterator looks exhausted then, which must not be taken for its end
                    raise self._failure
                try:
                    made = next(self._made)
                except StopIteration:
                    return None
                except Exception as error:
                    self._failure = error
                    raise
                if made is not None:
                    with self._changed:
                        self._unacknowledged.append(made)
                    return made
            return None

    def _messages(self, sequence: int) -> Iterator[pb.AddElementsRequest | None]:
        """Batches from ``sequence`` on; None for pieces that the service holds already."""
        for packed in self._digests():
            skipped = min(self._to_skip, len(packed) // DIGEST_BYTES)
            self._to_skip -= skipped
            if self._finished or skipped * DIGEST_BYTES == len(packed):
                yield None
                continue
            request = pb.AddElementsRequest()
            request.batch.sequence = sequence
            request.batch.digests = packed[skipped * DIGEST_BYTES :]  # as an argument it would be copied again
            yield request
            sequence += 1

    def _digests(self) -> Iterator[bytes]:
        """Packed digests of the elements, each piece as large as a message."""
        full = MESSAGE_ELEMENTS * DIGEST_BYTES
        pieces: list[bytes] = []
        held = 0
        for batch in self._batches:
            pieces.append(self._hash(batch))
            if self._invalid.refused:
                yield b""
                pieces, held = [], 0
                continue
            held += len(pieces[-1])
            if held >= full:  # sent before the next batch is read, which may take long
                joined = b"".join(pieces)
                yield joined[:full]
                pieces, held = [joined[full:]], held - full
        self._invalid.refuse()
        if held:
            yield b"".join(pieces)

    def _hash(self, batch: Batch | Digests) -> bytes:
        assert self._hashing is not None
        if isinstance(batch, np.ndarray):
            hashed = batch
        else:
            hashed = digest_batch(batch, self._position, self._hashing, self._normalization, self._key, self._invalid)
        packed = pack_digests(hashed)
        self._checksum.update(packed)
        self._position += len(batch)
        self._count += len(hashed)
        return packed

    def _finish(self) -> pb.FinishUpload:
        if not self._parts:
            return pb.FinishUpload(count=self._count, checksum=self._checksum.digest())
        listed = [pb.UploadPart(part=part.part, count=part.elements, checksum=part.checksum) for part in self._parts]
        return pb.FinishUpload(count=sum(part.elements for part in self._parts), parts=listed)
