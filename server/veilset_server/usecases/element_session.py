"""AddElements: batches of elements or digests into the upload's spool."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.hashing import digests, unpack_digests
from veilset.core.elements.normalization import normalize
from veilset.core.params import MAX_ELEMENT_BYTES, HashScheme
from veilset.errors import InvalidInput
from veilset_server.ports import UploadSpool
from veilset_server.records import StoredSet, Upload
from veilset_server.usecases.upload_ids import UploadContent
from veilset_server.usecases.upload_session import CHECKSUM_BYTES, UploadSession, mismatch

MAX_BATCH_ELEMENTS = 1 << 16


class ElementSession(UploadSession[UploadSpool]):
    """One stream's hold on an upload of elements."""

    content = UploadContent.ELEMENTS
    total = "count"

    def __init__(self, stored: StoredSet, upload: Upload, spool: UploadSpool | None) -> None:
        super().__init__(stored, upload, spool)
        self._saw_digests = False

    @property
    def position(self) -> tuple[int, int]:
        """Highest batch held (0 once finished) and the number of elements in all of them."""
        return (self._spool.sequence, self._spool.elements) if self._spool else (0, self._count)

    def add_elements(self, sequence: int, elements: list[bytes]) -> tuple[int, int]:
        """Hash and hold a batch of raw elements; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        description = self.stored.description
        if description.filter.scheme is not HashScheme.MMH3:
            raise InvalidInput(
                "elements", f"digests hashed at the producer, since scheme {description.filter.scheme} is keyed"
            )
        _check_batch_length("elements", len(elements))
        for element in elements:
            if not 1 <= len(element) <= MAX_ELEMENT_BYTES:
                raise InvalidInput("elements", f"1 to {MAX_ELEMENT_BYTES} bytes each", len(element))
        normalized = normalize(elements, description.normalization)
        return self._append(sequence, digests(normalized, description.filter.scheme, description.filter.seed))

    def add_digests(self, sequence: int, packed: bytes) -> tuple[int, int]:
        """Hold a batch of packed digests; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        hashed = unpack_digests(packed)
        _check_batch_length("digests", len(hashed))
        self._saw_digests = True
        return self._append(sequence, hashed)

    def _append(self, sequence: int, hashed: NDArray[np.uint64]) -> tuple[int, int]:
        with self._lock:
            spool = self._require_spool()
            if sequence > spool.sequence:  # lower ones are replays of what is held
                spool.append(sequence, hashed)
            elif sequence < 1:
                raise InvalidInput("sequence", "at least 1", sequence)
            return spool.sequence, spool.elements

    def _compare(self, spool: UploadSpool, total: int, checksum: bytes) -> None:
        if not checksum and self._saw_digests:  # in this stream: what earlier ones sent is acknowledged
            raise InvalidInput("checksum", f"{CHECKSUM_BYTES} bytes long where digests were sent")
        if total != spool.elements:
            raise mismatch("count", f"finish says {total} elements, {spool.elements} were received")
        if checksum and checksum != spool.checksum():
            raise mismatch("checksum", "finish disagrees with the digests received")


def _check_batch_length(field: str, length: int) -> None:
    if not 1 <= length <= MAX_BATCH_ELEMENTS:
        raise InvalidInput(field, f"1 to {MAX_BATCH_ELEMENTS} in a batch", length)
