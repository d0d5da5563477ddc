"""One upload from the producer's side: hash, send, count, and resume after a cut from the last acknowledgement.

Batches that are not acknowledged yet are kept, at most `WINDOW` of them, so any iterable can be uploaded, not only one
that can be read twice. A producer that died resumes by giving the same upload id and the same elements again: what the
service holds is skipped (but hashed, so that the checksum covers all of it).
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import grpc

from veilset.core import wire
from veilset.core.hashing import digests, pack_digests
from veilset.core.normalization import Element, normalize
from veilset.core.params import DIGEST_BYTES, FilterParameters, Normalization
from veilset.errors import Unavailable, VeilsetError
from veilset.rich_errors import from_rpc_error
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc

BATCH = 1 << 16
WINDOW = 16
SILENCE_SECONDS = 120.0

_RETRIES = 6
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class UploadResult:
    """A finished upload. elements: how many were sent, duplicates included."""

    upload_id: str
    elements: int
    resumed: int


@dataclass(slots=True)
class _Batch:
    sequence: int
    packed: bytes


class Upload:
    """One upload of ``elements`` into a set; `run` sends it to the end.

    on_progress is called with the number of elements acknowledged so far. key: the secret of a keyed scheme.
    """

    def __init__(
        self,
        stub: membership_pb2_grpc.MembershipServiceStub,
        target: str,
        set_name: str,
        upload_id: str,
        elements: Iterable[Element],
        key: bytes | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._stub = stub
        self._target = target
        self._open = pb.OpenUpload(set_name=set_name, upload_id=upload_id)
        self._elements = iter(elements)
        self._key = key
        self._on_progress = on_progress
        self._filter: FilterParameters | None = None
        self._normalization = Normalization.NONE
        self._checksum = hashlib.sha256()
        self._count = 0
        self._next_sequence = 1
        self._to_skip = 0
        self._resumed = 0
        self._unacknowledged: deque[_Batch] = deque()
        self._changed = threading.Condition()
        self._producing = threading.Lock()
        self._failure: BaseException | None = None

    def run(self) -> UploadResult:
        """Send everything; returns once the service holds it durably.

        Raises what the service raised, InvalidInput for what is no element (nothing is publishable then), Unavailable
        when the service stays away: the same upload id resumes later.
        """
        failures = 0
        while True:
            before = self._next_sequence - len(self._unacknowledged)
            try:
                elements = self._attempt()
                return UploadResult(self._open.upload_id, elements, self._resumed)
            except Unavailable:
                advanced = self._next_sequence - len(self._unacknowledged) > before
                failures = 1 if advanced else failures + 1
                if failures > _RETRIES or self._filter is None:  # it never answered: say so at once
                    raise
                time.sleep(min(_FIRST_PAUSE * 2**failures, _LONGEST_PAUSE))

    def _attempt(self) -> int:
        """One stream; returns the element count that the service confirmed."""
        opened = threading.Event()
        closed = threading.Event()
        call = self._stub.AddElements(self._requests(opened, closed), wait_for_ready=False)
        try:
            for response in call:
                kind = response.WhichOneof("message")
                if kind == "opened":
                    if response.opened.finished:
                        return self._already_finished(response.opened)
                    self._start_from(response.opened)
                    opened.set()
                elif kind == "acknowledged":
                    self._acknowledge(response.acknowledged.sequence)
                    if self._on_progress is not None:
                        self._on_progress(response.acknowledged.elements)
                elif kind == "finished":
                    return int(response.finished.elements)
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

    def _already_finished(self, opened: pb.UploadOpened) -> int:
        """An earlier run got its finish through; what it sent is part of the set."""
        self._resumed = int(opened.elements)
        return int(opened.elements)

    def _start_from(self, opened: pb.UploadOpened) -> None:
        if self._filter is None:  # the first stream of this process
            self._filter = wire.filter_from_proto(opened.filter)
            self._normalization = wire.from_number("normalization", wire.NORMALIZATION, opened.normalization)
            self._next_sequence = opened.sequence + 1
            self._to_skip = self._resumed = opened.elements
        elif opened.sequence < self._next_sequence - len(self._unacknowledged) - 1:
            raise VeilsetError("service: lost an upload that it had acknowledged; start over with a new upload id")
        self._acknowledge(opened.sequence)

    def _acknowledge(self, sequence: int) -> None:
        with self._changed:
            while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
                self._unacknowledged.popleft()
            self._changed.notify_all()

    def _requests(self, opened: threading.Event, closed: threading.Event) -> Iterator[pb.AddElementsRequest]:
        """Runs in gRPC's own thread, which would swallow what is raised here: so it is kept for `_attempt`."""
        yield pb.AddElementsRequest(open=self._open)
        opened.wait()
        try:
            with self._producing:  # a cut stream's thread may still be making a batch
                again = list(self._unacknowledged)
            yield from map(_batch_request, again)
            while (batch := self._next_batch(closed)) is not None:
                yield _batch_request(batch)
            if not closed.is_set():
                finish = pb.FinishUpload(count=self._count, sha256=self._checksum.digest())
                yield pb.AddElementsRequest(finish=finish)
        except Exception as error:  # noqa: BLE001 - of the caller's iterator, whatever it is
            self._failure = error

    def _next_batch(self, closed: threading.Event) -> _Batch | None:
        """The next batch to send, kept until acknowledged; None at the end of the elements or of the stream."""
        with self._producing:
            with self._changed:
                self._changed.wait_for(lambda: closed.is_set() or len(self._unacknowledged) < WINDOW)
            while not closed.is_set():
                packed = self._hash_next()
                if not packed:
                    return None
                skipped = min(self._to_skip, len(packed) // DIGEST_BYTES)
                self._to_skip -= skipped
                if skipped * DIGEST_BYTES < len(packed):
                    batch = _Batch(self._next_sequence, packed[skipped * DIGEST_BYTES :])
                    with self._changed:
                        self._next_sequence += 1
                        self._unacknowledged.append(batch)
                    return batch
            return None

    def _hash_next(self) -> bytes:
        assert self._filter is not None
        elements = normalize(list(islice(self._elements, BATCH)), self._normalization)
        packed = pack_digests(digests(elements, self._filter.scheme, self._filter.seed, self._key))
        self._checksum.update(packed)
        self._count += len(elements)
        return packed


def _batch_request(batch: _Batch) -> pb.AddElementsRequest:
    return pb.AddElementsRequest(batch=pb.Batch(sequence=batch.sequence, digests=batch.packed))
