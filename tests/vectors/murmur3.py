"""MurmurHash3_x64_128, from its definition, for any length; integers of Python, cut to 64 bits."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _mix1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


def murmur3_x64_128(data: bytes, seed: int) -> bytes:
    """h1 and h2 as two little-endian 64-bit integers: 16 bytes."""
    h1 = h2 = seed
    whole = len(data) // 16 * 16
    for start in range(0, whole, 16):
        h1 ^= _mix1(int.from_bytes(data[start : start + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix2(int.from_bytes(data[start + 8 : start + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    h1 ^= _mix1(int.from_bytes(rest[:8], "little"))  # of nothing: 0
    h2 ^= _mix2(int.from_bytes(rest[8:], "little"))
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")
