"""Reading the frames of a spool back, and deciding where it ends after a crash."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator

from veilset.errors import StateCorrupted
from veilset_server.state.spools.format import (
    FIRST_FRAME,
    FRAME_HEAD_BYTES,
    MARK_BYTES,
    MARK_OFFSET,
    Mark,
    payload_is_whole,
    unpack_frame_head,
    unpack_mark,
)


class SpoolContent(ABC):
    """What a spool holds: length in bytes up to the end of its last frame, last sequence, and what a kind of spool adds."""

    def __init__(self) -> None:
        self.length = FIRST_FRAME
        self.sequence = 0

    def take(self, payload: bytes | memoryview) -> None:
        """Count the next frame."""
        self._take(payload)
        self.length += FRAME_HEAD_BYTES + len(payload)
        self.sequence += 1

    @abstractmethod
    def _take(self, payload: bytes | memoryview) -> None:
        """What the frame's payload adds."""


def read_mark(descriptor: int, name: str, head: bytes) -> Mark:
    """Check by its head whose spool it is, and of which kind, and read its mark. Raises StateCorrupted."""
    if os.pread(descriptor, MARK_OFFSET, 0) != head:
        raise _damaged(name, "the head is not that of this upload's spool")
    mark = unpack_mark(os.pread(descriptor, MARK_BYTES, MARK_OFFSET))
    if mark is None or mark.length < FIRST_FRAME:
        raise _damaged(name, "the mark of what is acknowledged is broken")
    return mark


def scan(descriptor: int, name: str, mark: Mark, content: SpoolContent) -> None:
    """Tell ``content``, still empty, all that the spool holds: all below the mark, and whole frames above it.

    Raises StateCorrupted.
    """
    while True:
        if content.length == mark.length and content.sequence != mark.sequence:
            raise _damaged(name, "frames and mark disagree")
        payload = read_frame(descriptor, content.length, content.sequence + 1)
        if payload is None and content.length >= mark.length:
            return
        if payload is None:
            raise _damaged(name, f"acknowledged batch {content.sequence + 1} is not whole")
        crossed = content.length < mark.length
        content.take(payload)
        if crossed and content.length > mark.length:
            raise _damaged(name, "frames and mark disagree")


def frames(descriptor: int, name: str, length: int) -> Iterator[bytes]:
    """The payloads of all frames up to ``length``. Raises StateCorrupted."""
    offset, sequence = FIRST_FRAME, 1
    while offset < length:
        payload = read_frame(descriptor, offset, sequence)
        if payload is None:
            raise _damaged(name, f"acknowledged batch {sequence} is not whole")
        yield payload
        offset += FRAME_HEAD_BYTES + len(payload)
        sequence += 1


def read_frame(descriptor: int, offset: int, sequence: int) -> bytes | None:
    """The payload of the frame at ``offset``, or None if there is no whole frame of that sequence."""
    head = unpack_frame_head(os.pread(descriptor, FRAME_HEAD_BYTES, offset))
    if head is None or head.sequence != sequence:
        return None
    payload = os.pread(descriptor, head.payload_bytes, offset + FRAME_HEAD_BYTES)
    return payload if payload_is_whole(head, payload) else None


def _damaged(name: str, what: str) -> StateCorrupted:
    return StateCorrupted(f"{name}: damaged ({what}); start over under a new upload id", file=name)
