"""Reading the frames of a spool back, and deciding where it ends after a crash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilset.errors import StateCorrupted
from veilset_server.adapters.spools.format import (
    FIRST_FRAME,
    FRAME_HEAD_BYTES,
    MARK_BYTES,
    MARK_OFFSET,
    Mark,
    pack_head,
    payload_is_whole,
    unpack_frame_head,
    unpack_mark,
)

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(slots=True)
class SpoolContent:
    """What a spool holds: length in bytes up to the end of its last frame, last sequence, digests, and their SHA-256."""

    length: int
    sequence: int
    elements: int
    sha256: _Hash


def read_mark(descriptor: int, name: str, set_id: int, upload_hash: bytes) -> Mark:
    """Check whose spool it is and read its mark. Raises StateCorrupted."""
    if os.pread(descriptor, MARK_OFFSET, 0) != pack_head(set_id, upload_hash):
        raise _damaged(name, "the head is not that of this upload's spool")
    mark = unpack_mark(os.pread(descriptor, MARK_BYTES, MARK_OFFSET))
    if mark is None or mark.length < FIRST_FRAME:
        raise _damaged(name, "the mark of what is acknowledged is broken")
    return mark


def scan(descriptor: int, name: str, mark: Mark) -> SpoolContent:
    """Everything that the spool holds: all below the mark, and whole frames above it. Raises StateCorrupted."""
    content = SpoolContent(FIRST_FRAME, 0, 0, hashlib.sha256())
    while True:
        if content.length == mark.length and content.sequence != mark.sequence:
            raise _damaged(name, "frames and mark disagree")
        payload = read_frame(descriptor, content.length, content.sequence + 1)
        if payload is None and content.length >= mark.length:
            return content
        if payload is None:
            raise _damaged(name, f"acknowledged batch {content.sequence + 1} is not whole")
        crossed = content.length < mark.length
        content.length += FRAME_HEAD_BYTES + len(payload)
        if crossed and content.length > mark.length:
            raise _damaged(name, "frames and mark disagree")
        content.sequence += 1
        content.elements += len(payload) // 16
        content.sha256.update(payload)


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
