"""Tiny linear releases: their law by exact enumeration, and how often production gives which reading, by the hundred thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset.core.encodings.linear.encode import encode
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.linear.rows import row, scalar_reader
from veilset_server.state.entropy import AesKeyStream

Law = dict[Any, Fraction]


def coefficients(parameters: LinearParameters, digest: int) -> int:
    """The row as one number: bit j belongs to column j."""
    column, band = row(parameters, digest)
    return band << column


def solutions(parameters: LinearParameters, kept: Iterable[int]) -> list[tuple[int, ...]]:
    """All V (one number a plane) that are orthogonal to the rows of the kept digests; by trying every one."""
    system = [coefficients(parameters, digest) for digest in kept]
    one = [v for v in range(1 << parameters.columns) if not any((v & line).bit_count() % 2 for line in system)]
    return list(product(one, repeat=parameters.planes))


def subsets(digests: list[int], drop: Fraction) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every set of kept digests with its probability."""
    for count in range(len(digests) + 1):
        for kept in combinations(digests, count):
            yield kept, (1 - drop) ** count * drop ** (len(digests) - count)


def release_law(parameters: LinearParameters, digests: list[int], drop: Fraction) -> Law:
    """P(V | set), exactly. A digest that is listed twice has two coins."""
    law: Law = {}
    for kept, chance in subsets(digests, drop):
        possible = solutions(parameters, kept)
        for v in possible:
            law[v] = law.get(v, Fraction(0)) + chance / len(possible)
    return law


def largest_ratio(one: Law, other: Law) -> Fraction | None:
    """The largest ratio of the probabilities of any outcome, either way; None if it is infinite."""
    if set(one) != set(other):
        return None
    return max(max(one[v] / other[v], other[v] / one[v]) for v in one)


def in_turn(*drawn: bytes) -> Callable[[int], bytes]:
    """A stream that gives these bytes, one after the other, whatever is asked for."""
    rest = list(drawn)
    return lambda _: rest.pop(0)


def released(parameters: LinearParameters, digests: list[int]) -> bytes:
    """A fresh release by the code and the entropy of production."""
    return b"".join(encode(parameters, [np.array(digests, np.uint64)] if digests else [], AesKeyStream()))


def yes_counts(
    parameters: LinearParameters,
    sides: tuple[list[int], list[int]],
    target: int,
    trials: int,
    releases: int = 1,
    before: Callable[[], object] = lambda: None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many of ``releases`` releases of one set say yes to the target: counts of 0 … releases, for either set.

    before: called before each trial.
    """
    one = scalar_reader(parameters)
    counts = np.zeros((2, releases + 1), dtype=np.int64)
    for _ in range(trials):
        for side, digests in enumerate(sides):
            before()
            yes = sum(one(memoryview(released(parameters, digests)), target) for _ in range(releases))
            counts[side, yes] += 1
    return counts[0], counts[1]
