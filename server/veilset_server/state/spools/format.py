"""The bytes of an upload spool: a head that says whose it is, a mark that says how far it is acknowledged, then frames.

    head   magic (8) · set id (u64) · SHA-256 of the upload id (32) · CRC-32 of these
    mark   length of the file in bytes (u64) · last sequence (u64) · CRC-32 of these
    frame  sequence (u64) · units n (u32) · CRC-32 of the payload · CRC-32 of these · payload of 8·n bytes

The magic tells what a payload is: n digests (`upload_spool`), or a chunk of a partial vector (`vector_spool`).

All integers are little-endian. A batch is acknowledged only when its frame is written and behind that the mark moved past
it. So a frame below the mark that is not whole is damage, and is refused; what lies above the mark and is not whole is what a
killed process was just writing, was never acknowledged, and is cut off. Without the mark a spool cut short at any place
would look like one whose last write was torn.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

DIGEST_MAGIC = b"vsspool1"
VECTOR_MAGIC = b"vsvects1"
UNIT_BYTES = 8
_HEAD = struct.Struct("<8sQ32s")
_MARK = struct.Struct("<QQ")
_FRAME = struct.Struct("<QII")
_CRC = struct.Struct("<I")

MARK_OFFSET = _HEAD.size + _CRC.size
FIRST_FRAME = MARK_OFFSET + _MARK.size + _CRC.size
MARK_BYTES = _MARK.size + _CRC.size
FRAME_HEAD_BYTES = _FRAME.size + _CRC.size
MAX_UNITS = 1 << 24
"""In one frame."""


class Mark(NamedTuple):
    """How far the spool is acknowledged: file length in bytes, and the sequence of the last frame below it."""

    length: int
    sequence: int


class FrameHead(NamedTuple):
    """What precedes a frame's payload."""

    sequence: int
    units: int
    payload_crc: int

    @property
    def payload_bytes(self) -> int:
        """Length of the payload."""
        return self.units * UNIT_BYTES


def pack_head(magic: bytes, set_id: int, upload_hash: bytes) -> bytes:
    """The head of the spool of one upload."""
    return _sealed(_HEAD.pack(magic, set_id, upload_hash))


def pack_mark(mark: Mark) -> bytes:
    """The mark."""
    return _sealed(_MARK.pack(*mark))


def unpack_mark(data: bytes) -> Mark | None:
    """The mark, or None if these bytes are not a whole one."""
    plain = _unsealed(data, MARK_BYTES)
    return None if plain is None else Mark(*_MARK.unpack(plain))


def pack_frame_head(sequence: int, units: int, payload: memoryview) -> bytes:
    """The head of a frame with this payload."""
    return _sealed(_FRAME.pack(sequence, units, zlib.crc32(payload)))


def unpack_frame_head(data: bytes) -> FrameHead | None:
    """A frame's head, or None if these bytes are not a whole one."""
    plain = _unsealed(data, FRAME_HEAD_BYTES)
    if plain is None:
        return None
    head = FrameHead(*_FRAME.unpack(plain))
    return head if head.units <= MAX_UNITS else None


def payload_is_whole(head: FrameHead, payload: bytes) -> bool:
    """Whether these bytes are the payload that the head was written for."""
    return len(payload) == head.payload_bytes and zlib.crc32(payload) == head.payload_crc


def _sealed(plain: bytes) -> bytes:
    return plain + _CRC.pack(zlib.crc32(plain))


def _unsealed(data: bytes, length: int) -> bytes | None:
    if len(data) != length:
        return None
    plain, crc = data[: -_CRC.size], data[-_CRC.size :]
    return plain if _CRC.pack(zlib.crc32(plain)) == crc else None
