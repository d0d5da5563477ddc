"""How many bits of the vector one user's data can change: the distribution of W, over the random seed of the hash.

Balls and bins. The user's elements throw ``draws`` = u·k balls into m bins (replace-one: twice, independently). The
bins that could differ between two neighbouring data sets are the *candidates*: the distinct bins hit (add-remove), or
the symmetric difference of the two throws (replace-one). The rest of the set throws D = (min_size - u)·k more balls,
and a candidate that one of them hits reads 1 in both vectors: it is *covered* and does not count. W is the number of
candidates left uncovered.

The model is a random oracle whose seed is drawn independently of the data. Source: for replace-one with min_size = n
this is the W of Ke, Liang, Sha, Shi and Song, DPBloomfilter (arXiv:2502.00693); the counts are classical (Feller, An
Introduction to Probability Theory and Its Applications I, chapters II and IV).

`changed_bits_distribution` is W for a user of exactly u elements. The promise is about at most u, so what noise is
calibrated for is `dominating_distribution`.

Exactness. Candidates are counted in whole numbers, without error. Covering takes an alternating sum, which cancels: it
runs in `decimal` with a precision for which `_uncovered` proves an error below ROUNDED_UP. Every probability is then
rounded up by ROUNDED_UP, so that no tail P(W > w) is understated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from veilset.core.params import (
    MAX_BITS,
    MAX_ELEMENTS_PER_USER,
    MAX_HASHES,
    MAX_SIZE,
    MIN_BITS,
    Adjacency,
    check_choice,
    check_integer,
)
from veilset.core.privacy.exact import decimal_digits
from veilset.errors import must_be

Counts = Callable[[int, int], list[int]]
"""(bits, draws of one throw) → of all equally likely outcomes, how many have c candidates, c = 0, 1, …"""

MAX_DISTRIBUTED_BITS = 256
"""Largest W_max whose distribution is computed; the worst-case calibration needs none and has no such limit."""

ROUNDED_UP = Decimal("1e-50")
"""What is added to every probability that is not certainly 0; the true value is never above the sum."""


def maximum_changed_bits(hashes: int, adjacency: Adjacency, elements_per_user: int) -> int:
    """W_max, the most bits that one user can change under any hash: u·k for add-remove, 2·u·k for replace-one.

    hashes: k in [1, 32]. elements_per_user: u in [1, 1000]. Raises InvalidInput for a value out of range.
    """
    check_integer("hashes", hashes, 1, MAX_HASHES)
    check_integer("elements_per_user", elements_per_user, 1, MAX_ELEMENTS_PER_USER)
    throws = 2 if check_choice("adjacency", adjacency, Adjacency) is Adjacency.REPLACE_ONE else 1
    return throws * elements_per_user * hashes


def changed_bits_distribution(
    bits: int, hashes: int, adjacency: Adjacency, elements_per_user: int, min_size: int
) -> tuple[Decimal, ...]:
    """P(W = w) for w = 0 … W_max, over the seed of the hash. Cached.

    bits: m in [8, 2^40]. hashes: k in [1, 32]. elements_per_user: u, with W_max at most 256. min_size: how many
    distinct elements the set is promised to hold, in [1, 10^12]; up to u it takes no credit.
    Entries are overstated by less than 2e-50; above the largest w that can happen they are exactly 0.
    Raises InvalidInput for a value out of range.
    """
    counts = _replace_one_counts if adjacency == Adjacency.REPLACE_ONE else _add_remove_counts
    return _checked(counts, bits, hashes, adjacency, elements_per_user, min_size)


def dominating_distribution(
    bits: int, hashes: int, adjacency: Adjacency, elements_per_user: int, min_size: int
) -> tuple[Decimal, ...]:
    """A law of w whose tails P(W > w) are not below those of any user of 1 … u elements. Cached; arguments and errors as
    in `changed_bits_distribution`.

    Under add-remove, and for u = 1, it is that distribution: more balls hit no fewer bins. Under replace-one more balls
    may leave *fewer* bins in the symmetric difference (where m is small both throws end up everywhere), so for u > 1 no
    credit is taken for bins that both throws hit: the candidates are the sum of the two throws' distinct bins, at most m.
    That is never less than the symmetric difference, and it grows with the number of balls; so does what is left of it
    uncovered. It costs noise only where (u·k)²/m is not small.
    """
    if adjacency == Adjacency.REPLACE_ONE and elements_per_user > 1:
        return _checked(_two_throw_counts, bits, hashes, adjacency, elements_per_user, min_size)
    return changed_bits_distribution(bits, hashes, adjacency, elements_per_user, min_size)


def _checked(
    counts: Counts, bits: int, hashes: int, adjacency: Adjacency, elements_per_user: int, min_size: int
) -> tuple[Decimal, ...]:
    check_integer("bits", bits, MIN_BITS, MAX_BITS)
    check_integer("min_size", min_size, 1, MAX_SIZE)
    adjacency = check_choice("adjacency", adjacency, Adjacency)
    if maximum_changed_bits(hashes, adjacency, elements_per_user) > MAX_DISTRIBUTED_BITS:
        most = MAX_DISTRIBUTED_BITS // maximum_changed_bits(1, adjacency, 1)
        raise must_be(
            "elements_per_user",
            f"such that elements_per_user * hashes is at most {most} under {adjacency} "
            f"(hashes is {hashes}; the worst-case calibration has no such limit)",
            elements_per_user,
        )
    cover_draws = max(0, min_size - elements_per_user) * hashes
    return _distribution(counts, bits, elements_per_user * hashes, cover_draws)


@lru_cache(maxsize=1024)
def _distribution(candidate_counts: Counts, bits: int, draws: int, cover_draws: int) -> tuple[Decimal, ...]:
    counts = candidate_counts(bits, draws)
    largest = max(c for c, count in enumerate(counts) if count)
    outcomes = sum(counts)
    with decimal_digits(_precision(largest)):
        probabilities = [Decimal(count) / outcomes for count in counts[: largest + 1]]
        possible = [count > 0 for count in counts[: largest + 1]]
        if cover_draws:
            probabilities = _uncovered(probabilities, bits, cover_draws)
            # Covering hits at least one bin, so not all m stay uncovered; smaller w are not worth telling apart.
            possible = [w < bits for w in range(largest + 1)]
    with decimal_digits(60, ROUND_CEILING):  # an error below 10^-60 cannot leave an entry negative
        entries = [
            min(Decimal(1), probability + ROUNDED_UP) if can_happen else Decimal(0)
            for probability, can_happen in zip(probabilities, possible, strict=True)
        ]
    return tuple(entries) + (Decimal(0),) * (len(counts) - len(entries))


@lru_cache(maxsize=64)
def _stirling_numbers(draws: int) -> tuple[int, ...]:
    """S(draws, c) for c = 0 … draws, the Stirling numbers of the second kind, by their positive recursion."""
    row = [1]
    for _ in range(draws):
        row = [0, *(c * row[c] + row[c - 1] for c in range(1, len(row))), 1]
    return tuple(row)


def _falling_factorials(bits: int, most: int) -> list[int]:
    """m·(m-1)·…·(m-c+1) for c = 0 … most; 0 from c = m + 1 on."""
    falling = [1]
    for c in range(most):
        falling.append(falling[-1] * (bits - c))
    return falling


def _add_remove_counts(bits: int, draws: int) -> list[int]:
    """Of the m^draws outcomes of a throw, how many hit c distinct bins: S(draws, c)·m·(m-1)·…·(m-c+1)."""
    falling = _falling_factorials(bits, draws)
    return [ways * places for ways, places in zip(_stirling_numbers(draws), falling, strict=True)]


@lru_cache(maxsize=40)
def _two_throw_patterns(draws: int) -> tuple[tuple[int, ...], ...]:
    """Row c, entry z: in how many ways the balls of two throws share bins so that z bins hold balls of both throws and
    c bins balls of one throw only, before it is said which bins these are (that is m·(m-1)·…·(m-c-z+1) ways).

    Throws of a and of b distinct bins overlap in z, hypergeometrically; as a count without m that is
    S(draws, a)·S(draws, b)·C(a, z)·C(b, z)·z!, and c = a + b - 2z.
    """
    stirling = _stirling_numbers(draws)
    patterns = [[0] * (draws + 1) for _ in range(2 * draws + 1)]
    for a in range(1, draws + 1):
        for b in range(1, a + 1):
            pairs = stirling[a] * stirling[b] * (1 if a == b else 2)
            for z in range(b + 1):
                patterns[a + b - 2 * z][z] += pairs * math.comb(a, z) * math.perm(b, z)
    return tuple(tuple(row) for row in patterns)


def _replace_one_counts(bits: int, draws: int) -> list[int]:
    """Of the m^(2·draws) outcomes of two throws, how many have a symmetric difference of c bins."""
    falling = _falling_factorials(bits, 2 * draws)
    return [
        sum(ways * falling[c + z] for z, ways in enumerate(row) if ways)
        for c, row in enumerate(_two_throw_patterns(draws))
    ]


def _two_throw_counts(bits: int, draws: int) -> list[int]:
    """Of the m^(2·draws) outcomes of two throws, in how many their numbers of distinct bins add up to c; what is above m
    counts as m."""
    single = _add_remove_counts(bits, draws)
    counts = [0] * (2 * draws + 1)
    for a, one in enumerate(single):
        for b, other in enumerate(single):
            counts[min(a + b, bits)] += one * other
    return counts


def _precision(largest: int) -> int:
    """Digits with which at most ``largest`` candidates can be covered; the proof is in `_uncovered`."""
    return 80 + (largest + 1) // 2


def _uncovered(candidates: list[Decimal], bits: int, cover_draws: int) -> list[Decimal]:
    """P(w candidates stay uncovered) for w = 0 … C, from P(c candidates) for c = 0 … C, when D = ``cover_draws`` >= 1.

    Given c, the expected number of j-subsets that stay uncovered is C(c, j)·(1 - j/m)^D. Inclusion and exclusion turn
    the moments B_j = E[C(c, j)]·(1 - j/m)^D into probabilities, Σ_{j≥w} (-1)^{j-w} C(j, w) B_j.

    Precision. With P digits one operation has a relative error of at most 5·10^-P. (m - j)/m is one division, and its
    power D <= 3.2·10^13 carries that error D-fold: less than 10^(15-P). E[C(c, j)] is a positive sum of at most 257
    terms, so B_j is off by less than 10^(16-P) of itself. The absolute terms of all the alternating sums together are
    Σ_j B_j Σ_w C(j, w) <= Σ_j 2^j E[C(c, j)] = E[3^c] <= 3^C < 10^(C/2); adding up at most 257 of them costs 257
    operations more. So every result is off by less than 10^(17 - P + C/2), which `_precision` makes less than 10^-60.
    """
    largest = len(candidates) - 1
    moments = []
    for j in range(largest + 1):
        subsets = sum((math.comb(c, j) * candidates[c] for c in range(j, largest + 1)), Decimal(0))
        moments.append(subsets * (Decimal(bits - j) / bits) ** cover_draws)
    return [
        sum(((-1) ** (j - w) * math.comb(j, w) * moments[j] for j in range(w, largest + 1)), Decimal(0))
        for w in range(largest + 1)
    ]
