"""One stream's hold on an upload, or on a part of one. A later stream of the same upload and part takes it over."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.hashing import digests, unpack_digests
from veilset.core.elements.normalization import normalize
from veilset.core.params import MAX_ELEMENT_BYTES, MAX_PART, HashScheme, check_integer
from veilset.errors import InvalidInput, OutOfSequence, UploadMismatch, must_be
from veilset_server.records import StoredSet, Upload, UploadPart
from veilset_server.state.spool import Spool

MAX_BATCH_ELEMENTS = 1 << 16
_SLICE_ELEMENTS = 1 << 12
"""That are Python's own objects at a time, since one of few bytes takes many times as many."""

MAX_TOTAL = 1 << 62
CHECKSUM_BYTES = 16


class UploadSession:
    """The stream's side of an upload. spool: None if the upload was finished, or the part sealed, earlier."""

    def __init__(self, stored: StoredSet, upload: Upload, spool: Spool | None) -> None:
        self.stored = stored
        self.upload = upload
        self._spool = spool
        self.finished = spool is None
        """Whether there is nothing to send, as all of it was accepted earlier."""
        self._saw_digests = False
        self._lock = threading.Lock()

    @property
    def position(self) -> tuple[int, int]:
        """Highest batch held (0 once finished) and the number of elements in all of them."""
        return (self._spool.sequence, self._spool.elements) if self._spool else (0, self.upload.count)

    def add_elements(self, sequence: int, elements: Sequence[bytes]) -> tuple[int, int]:
        """Hash and hold a batch of raw elements; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        return self._append(sequence, hash_elements(self.stored, elements))

    def add_digests(self, sequence: int, packed: bytes) -> tuple[int, int]:
        """Hold a batch of packed digests; returns the position. Raises InvalidInput, OutOfSequence, StorageFull."""
        hashed = read_digests(packed)
        self._saw_digests = True
        return self._append(sequence, hashed)

    def _append(self, sequence: int, hashed: NDArray[np.uint64]) -> tuple[int, int]:
        with self._lock:
            spool = self._require_spool()
            if sequence > spool.sequence:  # lower ones are replays of what is held
                spool.append(sequence, hashed)
            elif sequence < 1:
                raise must_be("sequence", "at least 1", sequence)
            return spool.sequence, spool.elements

    def check_finish(self, count: int, checksum: bytes, parts: Sequence[UploadPart]) -> bytes:
        """Compare the finish message with what is held; sync the spool; return its checksum.

        Raises UploadMismatch (what was received is not what was sent) and InvalidInput.
        """
        check_integer("count", count, 0, MAX_TOTAL)
        if checksum and len(checksum) != CHECKSUM_BYTES:
            raise must_be("checksum", f"{CHECKSUM_BYTES} bytes long", len(checksum))
        with self._lock:
            spool = self._require_spool()
            if parts:
                _check_parts(self.upload, spool, count, checksum, parts)
            else:
                self._compare(spool, count, checksum)
                spool.sync()
            return spool.checksum()

    def _compare(self, spool: Spool, count: int, checksum: bytes) -> None:
        if not checksum and self._saw_digests:  # in this stream: what earlier ones sent is acknowledged
            raise must_be("checksum", f"{CHECKSUM_BYTES} bytes long where digests were sent")
        if count != spool.elements:
            raise _mismatch("count", f"finish says {count} elements, {spool.elements} were received")
        if checksum and checksum != spool.checksum():
            raise _mismatch("checksum", "finish disagrees with the digests received")

    def _require_spool(self) -> Spool:
        if self._spool is None:
            raise OutOfSequence("upload: taken over by another stream, or finished", field="upload_id")
        return self._spool

    def close(self) -> None:
        """Close the spool; what is held stays for a resume."""
        with self._lock:
            if self._spool is not None:
                self._spool.close()
                self._spool = None


def hash_elements(stored: StoredSet, elements: Sequence[bytes]) -> NDArray[np.uint64]:
    """The digests of a batch of raw elements. Raises InvalidInput."""
    description = stored.description
    if description.hashing.scheme is not HashScheme.MMH3:
        raise must_be("elements", f"digests hashed at the producer, since scheme {description.hashing.scheme} is keyed")
    _check_batch_length("elements", len(elements))
    hashed = np.empty(len(elements), np.uint64)
    for start in range(0, len(elements), _SLICE_ELEMENTS):
        part = elements[start : start + _SLICE_ELEMENTS]
        for element in part:
            if not 1 <= len(element) <= MAX_ELEMENT_BYTES:
                raise must_be("elements", f"1 to {MAX_ELEMENT_BYTES} bytes each", len(element))
        normalized = normalize(part, description.normalization)
        hashed[start : start + len(part)] = digests(normalized, description.hashing.scheme, description.hashing.seed)
    return hashed


def read_digests(packed: bytes) -> NDArray[np.uint64]:
    """The digests of a packed batch. Raises InvalidInput."""
    hashed = unpack_digests(packed)
    _check_batch_length("digests", len(hashed))
    return hashed


def _check_batch_length(field: str, length: int) -> None:
    if not 1 <= length <= MAX_BATCH_ELEMENTS:
        raise must_be(field, f"1 to {MAX_BATCH_ELEMENTS} in a batch", length)


def _check_parts(upload: Upload, spool: Spool, count: int, checksum: bytes, parts: Sequence[UploadPart]) -> None:
    """What a list of parts says by itself; the ledger compares it with what was sealed."""
    if upload.part:
        raise InvalidInput("parts", "parts belong to the finish of the whole upload, not of a part")
    if checksum:
        raise InvalidInput("checksum", "checksum does not belong with parts, since each part has its own; leave it out")
    if len(parts) > MAX_PART or len({part.part for part in parts}) != len(parts):
        raise must_be("parts", f"up to {MAX_PART} different parts")
    if spool.elements:
        raise InvalidInput("parts", "parts cannot be listed by a stream that brought elements itself")
    total = sum(part.count for part in parts)
    if count != total:
        raise _mismatch("count", f"finish says {count} elements, its parts have {total}")


def _mismatch(field: str, what: str) -> UploadMismatch:
    return UploadMismatch(f"{field}: {what}", field=field)
