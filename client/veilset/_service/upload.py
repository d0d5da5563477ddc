"""One upload of elements from the producer's side: hash, send, count.

A producer that died resumes by giving the same upload id and the same elements again: what the service holds is passed over
(but hashed, so that the checksum covers all of it). Once the upload is finished, what is given is only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import xxhash

from veilset._input.columns import PIECE, Batch, element_batches
from veilset._input.element_digests import InvalidElements, digest_batch
from veilset._service.endpoint import Endpoint
from veilset._service.resumable import Piece, ResumableStream
from veilset.core.elements.hashing import pack_digests
from veilset.core.elements.keys import check_key
from veilset.core.elements.normalization import Element
from veilset.core.params import DIGEST_BYTES, HashParameters, Normalization
from veilset.core.release import wire
from veilset.errors import AlreadyExists
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import membership_pb2_grpc

MESSAGE_ELEMENTS = 1 << 16
"""Half a MiB of digests: enough that a message's own cost does not count, and little enough to stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class UploadResult:
    """A finished upload. elements: how many were sent, duplicates included. invalid: how many were skipped as no elements."""

    upload_id: str
    elements: int
    resumed: int
    invalid: int = 0


class Upload(ResumableStream[pb.AddElementsRequest, pb.AddElementsResponse, UploadResult]):
    """One upload of ``elements`` into a set; `run` sends it to the end.

    on_progress is called with the number of elements acknowledged so far. key: the secret of a keyed scheme. What is no element
    under the set's normalization is left out with ``skip_invalid``; else all of it is found, and InvalidInput raised in the end.
    """

    def __init__(
        self,
        stub: membership_pb2_grpc.MembershipServiceStub,
        target: Endpoint,
        set_name: str,
        upload_id: str,
        elements: Iterable[Element],
        key: bytes | None = None,
        on_progress: Callable[[int], None] | None = None,
        *,
        skip_invalid: bool = False,
    ) -> None:
        self._open = pb.OpenUpload(set_name=set_name, upload_id=upload_id)
        super().__init__(stub.AddElements, target, pb.AddElementsRequest(open=self._open))
        self._elements = element_batches(elements, PIECE)
        self._key = key
        self._on_progress = on_progress
        self._hashing: HashParameters | None = None
        self._normalization = Normalization.NONE
        self._checksum = xxhash.xxh3_128()
        self._position = self._count = 0  # of elements given, of digests made
        self._invalid = InvalidElements(skip=skip_invalid)
        self._first_sequence = 1
        self._resumed = 0

    def _begin(self, opened: pb.AddElementsResponse) -> None:
        self._hashing = wire.hashing_from_proto(opened.opened.hashing)
        self._key = check_key(self._hashing, self._key, f"the set {self._open.set_name}")
        self._normalization = wire.from_number("normalization", wire.NORMALIZATION, opened.opened.normalization)
        self._first_sequence = opened.opened.sequence + 1
        self._resumed = opened.opened.elements

    def _number(self, response: pb.AddElementsResponse) -> int:
        opened = response.WhichOneof("message") == "opened"
        return int(response.opened.sequence if opened else response.acknowledged.sequence)

    def _earlier_result(self, opened: pb.AddElementsResponse) -> UploadResult | None:
        if not opened.opened.finished:
            return None
        elements = int(opened.opened.elements)
        with self._producing:  # a cut stream's thread may still be hashing
            given = self._count + sum(map(len, self._elements))
        if given != elements:
            raise AlreadyExists(
                f"upload_id: an upload of that id was finished with {elements} elements, not {given}; nothing was added, "
                "give them an id of their own",
                field="upload_id",
            )
        return UploadResult(self._open.upload_id, elements, elements)

    def _pieces(self) -> Iterator[Piece[pb.AddElementsRequest] | None]:
        sequence, to_skip = self._first_sequence, self._resumed
        for packed in self._digests():
            skipped = min(to_skip, len(packed) // DIGEST_BYTES)
            to_skip -= skipped
            if skipped * DIGEST_BYTES == len(packed):
                yield None
                continue
            request = pb.AddElementsRequest()
            request.batch.sequence = sequence
            request.batch.digests = packed[
                skipped * DIGEST_BYTES :
            ]  # in place: as an argument it would be copied again
            yield Piece(sequence, request)
            sequence += 1

    def _digests(self) -> Iterator[bytes]:
        """Packed digests of the elements, as many at a time as go into a message."""
        full = MESSAGE_ELEMENTS * DIGEST_BYTES
        pieces: list[bytes] = []
        held = 0
        for batch in self._elements:
            pieces.append(self._hash(batch))
            if self._invalid.refused:
                yield b""
                pieces, held = [], 0
                continue
            held += len(pieces[-1])
            if held >= full:  # sent before the next one is asked for, which may be long in coming
                joined = b"".join(pieces)
                yield joined[:full]
                pieces, held = [joined[full:]], held - full
        self._invalid.refuse()
        if held:
            yield b"".join(pieces)

    def _hash(self, batch: Batch) -> bytes:
        assert self._hashing is not None
        hashed = digest_batch(batch, self._position, self._hashing, self._normalization, self._key, self._invalid)
        packed = pack_digests(hashed)
        self._checksum.update(packed)
        self._position += len(batch)
        self._count += len(hashed)
        return packed

    def _finish(self) -> pb.AddElementsRequest:
        return pb.AddElementsRequest(finish=pb.FinishUpload(count=self._count, checksum=self._checksum.digest()))

    def _result(self, finished: pb.AddElementsResponse) -> UploadResult:
        return UploadResult(self._open.upload_id, int(finished.finished.elements), self._resumed, self._invalid.count)

    def _progress(self, acknowledged: pb.AddElementsResponse) -> None:
        if self._on_progress is not None:
            self._on_progress(acknowledged.acknowledged.elements)
