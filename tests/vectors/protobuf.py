"""As much of protobuf's encoding as the format needs, by hand: varints, fixed 64-bit floats, and byte strings."""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2
Value = int | float | bytes


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def field(number: int, value: Value | str | bool) -> bytes:
    """One field; nothing for 0, 0.0, "" and false, which proto3 leaves out."""
    if not value:
        return b""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | FIXED64) + struct.pack("<d", value)
    return varint(number << 3 | VARINT) + varint(int(value))


def parse(message: bytes) -> dict[int, list[Value]]:
    """Field number → its values in order. Raises ValueError for what is cut off or of another wire type."""
    found: dict[int, list[Value]] = {}
    place = 0
    while place < len(message):
        tag, place = _read_varint(message, place)
        number, kind = tag >> 3, tag & 7
        value: Value
        if kind == VARINT:
            value, place = _read_varint(message, place)
        elif kind == FIXED64:
            (value,) = struct.unpack("<d", message[place : place + 8].ljust(8, b"?"))
            place += 8
        elif kind == BYTES:
            length, place = _read_varint(message, place)
            value = message[place : place + length]
            place += length
        else:
            raise ValueError("a wire type that the format does not use")
        if place > len(message):
            raise ValueError("cut off")
        found.setdefault(number, []).append(value)
    return found


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ValueError("cut off, or a number of more than 64 bits")
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
