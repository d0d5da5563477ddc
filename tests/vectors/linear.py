"""The linear encoding by the document alone: rows of digests, reading a vector, and the drop threshold in whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from vectors.calibration import ONE, exponential

BAND = 128
_WORD = 1 << 64
_LONGEST_SECTION = 4_194_304
_DIMENSIONS = [(128, 128), (1000, 128), (1_048_576, 128), (4_194_304, 128), (8_388_608, 128), (20_971_520, 128)]
_DIMENSIONS += [(1 << 40, 128), (9, 3), (300, 64), (70, 65)]
_DIGESTS = [0, 1, 0x9E3779B97F4A7C15, 1 << 63, (1 << 63) - 1, 0x0123456789ABCDEF, _WORD - 1, _WORD - 0x9E3779B97F4A7C15]


def splitmix64(state: int) -> int:
    """The finaliser, as its authors publish it."""
    state %= _WORD
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % _WORD
    return state ^ (state >> 31)


def equation(columns: int, band: int, digest: int) -> list[int]:
    """The columns whose coefficient is 1, the first of the band among them always."""
    sections = (columns + _LONGEST_SECTION - 1) // _LONGEST_SECTION
    length = columns // sections
    section, rest = divmod(digest * sections, _WORD)
    first = section * length + rest * (length - band + 1) // _WORD
    words = [splitmix64(digest + i * 0x9E3779B97F4A7C15) for i in (1, 2)]
    return [first] + [first + i for i in range(1, band) if words[i // 64] >> i % 64 & 1]


def reads_zero(vector: bytes, planes: int, places: list[int]) -> bool:
    """Whether every plane has an even number of ones at these columns."""
    for plane in range(planes):
        words = (vector[8 * (place // 64 * planes + plane) :][:8] for place in places)
        ones = sum(int.from_bytes(word, "little") >> place % 64 & 1 for word, place in zip(words, places, strict=True))
        if ones % 2:
            return False
    return True


def solution(equations: list[list[int]], columns: int, drawn: int) -> int:
    """Bits that every equation is orthogonal to: free columns as drawn, the others as the equations say. Bit j: column j."""
    leading: dict[int, int] = {}
    for places in equations:
        line = sum(1 << place for place in places)
        while line:
            first = (line & -line).bit_length() - 1
            if first not in leading:
                leading[first] = line
                break
            line ^= leading[first]
    found = 0
    for column in reversed(range(columns)):
        if column in leading:
            found |= ((leading[column] & found).bit_count() & 1) << column
        else:
            found |= drawn & 1 << column
    return found


def interleaved(planes: list[int], columns: int) -> bytes:
    """The planes' words of 64 columns, little-endian, side by side."""
    words = (columns + 63) // 64
    return b"".join((plane >> 64 * i & _WORD - 1).to_bytes(8, "little") for i in range(words) for plane in planes)


def drop_threshold(relation: str, epsilon: str, users: int, planes: int) -> int:
    """ceil(2^64·d)."""
    q = 1 << planes
    growth = exponential(Fraction(epsilon) / users)
    if relation == "replace-one":
        return -(-_WORD * q * ONE // (growth + (q - 1) * ONE))
    return max(-(-_WORD * ONE // growth), -(-_WORD * (q * ONE - growth) // ((q - 1) * ONE)))


def rows() -> Iterator[dict[str, Any]]:
    """Digests of every sort under every shape."""
    for columns, band in _DIMENSIONS:
        for digest in _DIGESTS:
            places = equation(columns, band, digest)
            coefficients = sum(1 << place - places[0] for place in places)
            yield {
                "columns": columns,
                "band": band,
                "digest": f"{digest:016x}",
                "first": places[0],
                "coefficients": f"{coefficients:x}",
            }


def thresholds() -> Iterator[dict[str, Any]]:
    """Promises of every sort."""
    for relation in ("add-remove", "replace-one"):
        for epsilon, users, planes in (
            ("1", 1, 2),
            ("2", 1, 3),
            ("3", 1, 4),
            ("5", 1, 7),
            ("6", 1, 8),
            ("8", 1, 11),
            ("0.1", 3, 1),
            ("64", 1000, 32),
            ("64", 1, 32),
        ):
            yield {
                "adjacency": relation,
                "epsilon": float(epsilon),
                "elements_per_user": users,
                "planes": planes,
                "drop_threshold": drop_threshold(relation, epsilon, users, planes),
            }
