"""One stream's hold on an upload of either kind. A later stream with the same id takes the upload over."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from veilset.core.params import check_integer
from veilset.errors import InvalidInput, OutOfSequence, UploadMismatch
from veilset_server.records import StoredSet, Upload
from veilset_server.usecases.upload_ids import UploadContent, content_of

MAX_UPLOAD_ID = 128
MAX_TOTAL = 1 << 62
CHECKSUM_BYTES = 16


class OpenSpool(Protocol):
    """What a session needs of any spool."""

    def sync(self) -> None:
        """Return once everything held is on disk."""

    def close(self) -> None:
        """Let go of the file."""


Spool = TypeVar("Spool", bound=OpenSpool)


class UploadSession(ABC, Generic[Spool]):
    """The common part: who holds the spool, and the finish. spool: None if the upload was accepted earlier.

    total: the name of the field that tells how much was sent.
    """

    content: UploadContent
    total: str

    def __init__(self, stored: StoredSet, upload: Upload, spool: Spool | None) -> None:
        if content_of(upload.upload_id) is not self.content:  # once accepted, it could not be merged
            raise InvalidInput("upload_id", f"one of an upload of {self.content}")
        self.stored = stored
        self.upload_id = upload.upload_id  # as the ledger knows it
        self._count = upload.count
        self._spool = spool
        self.finished = spool is None
        """Whether the upload was accepted earlier; there is nothing to send."""
        self._lock = threading.Lock()

    @property
    def total_held(self) -> int:
        """What a finished upload brought."""
        return self._count

    def check_finish(self, total: int, checksum: bytes) -> int:
        """Compare the finish message with what is held; sync the spool; return the total.

        Raises UploadMismatch (what was received is not what was sent) and InvalidInput.
        """
        check_integer(self.total, total, 0, MAX_TOTAL)
        if checksum and len(checksum) != CHECKSUM_BYTES:
            raise InvalidInput("checksum", f"{CHECKSUM_BYTES} bytes long", len(checksum))
        with self._lock:
            spool = self._require_spool()
            self._compare(spool, total, checksum)
            spool.sync()
            return total

    @abstractmethod
    def _compare(self, spool: Spool, total: int, checksum: bytes) -> None:
        """Raise UploadMismatch or InvalidInput unless the spool holds what finish says."""

    def _require_spool(self) -> Spool:
        if self._spool is None:
            raise OutOfSequence("upload: taken over by another stream, or finished", field="upload_id")
        return self._spool

    def hand_over(self) -> Spool | None:
        """The open spool, for whoever merges it and closes it then; the session is as good as closed."""
        with self._lock:
            spool, self._spool = self._spool, None
            return spool

    def close(self) -> None:
        """Let go of the spool; what is held stays for a resume."""
        with self._lock:
            if self._spool is not None:
                self._spool.close()
                self._spool = None


def mismatch(field: str, what: str) -> UploadMismatch:
    """A finish that disagrees with what was received."""
    return UploadMismatch(f"{field}: {what}", field=field)
