"""Mechanisms with a planted fault each, and the checks that must catch it.

The signals are far beyond the limits: each listed check misses its fault with probability below 1e-6.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from audit.release import Bits, Mechanism, ones
from veilset.core.encodings.bloom.calibration import COIN_SIDES, flip_threshold
from veilset.core.encodings.bloom.response import RandomBytes, last_byte_mask, perturb


@dataclass(frozen=True, slots=True)
class Fault:
    """make: a fresh faulty mechanism, with its own state if it keeps any. caught_by: names of `audit.suite.ALL_CHECKS`."""

    name: str
    make: Callable[[], Mechanism]
    caught_by: tuple[str, ...]


def with_threshold(wrong: Callable[[int], int]) -> Callable[[], Mechanism]:
    """The real mechanism under another threshold."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        return perturb(vector, bits, min(max(1, wrong(threshold)), COIN_SIDES // 2), random_bytes)

    return lambda: mechanism


def with_noise(wrong: Callable[[Bits, Bits], Bits]) -> Callable[[], Mechanism]:
    """The real mechanism's noise, altered: (noise, content) → noise."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        noise = wrong(perturb(vector, bits, threshold, random_bytes) ^ vector, vector)
        noise[-1] &= last_byte_mask(bits)
        return vector ^ noise

    return lambda: mechanism


def with_source(wrong: Callable[[Bits, RandomBytes], RandomBytes]) -> Callable[[], Mechanism]:
    """The real mechanism on another source of bytes: (content, source) → source."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        return perturb(vector, bits, threshold, wrong(vector, random_bytes))

    return lambda: mechanism


def scaled_epsilon0(factor: float) -> Callable[[int], int]:
    """The threshold of a multiple of the per-bit epsilon."""
    return lambda threshold: flip_threshold(factor * math.log((COIN_SIDES - threshold) / threshold))


def rounded_down(kept_bits: int) -> Callable[[int], int]:
    """The threshold cut after its first bits."""
    return lambda threshold: threshold >> (64 - kept_bits) << (64 - kept_bits)


def next_integer(threshold: int) -> int:
    """u <= T in place of u < T, where the first byte stays as it is."""
    return threshold if (threshold + 1) % (1 << 56) == 0 else threshold + 1


def next_byte(threshold: int) -> int:
    """u <= T on the first eight bits."""
    return rounded_down(8)(threshold) + (1 << 56)


def last_bytes_clean(noise: Bits, vector: Bits) -> Bits:
    """No noise on the last byte."""
    noise[-1] = 0
    return noise


def pairs_shared(noise: Bits, vector: Bits) -> Bits:
    """Every bit of odd index has the noise of the one before."""
    even = noise & np.uint8(0xAA)
    return even | (even >> np.uint8(1))


def some_copied(noise: Bits, vector: Bits) -> Bits:
    """One bit in a hundred has the noise of the one before."""
    flips = np.unpackbits(noise)
    copied = np.flatnonzero(np.random.default_rng().random(len(flips) - 1) < 0.01) + 1
    flips[copied] = flips[copied - 1]
    return np.packbits(flips)


def ones_flipped_less(noise: Bits, vector: Bits) -> Bits:
    """One in a hundred flips of ones does not happen."""
    spared = np.packbits(np.random.default_rng().random(8 * len(vector)) < 0.01)
    return noise & ~(vector & spared)


def last_bit_clean() -> Mechanism:
    """No noise on the last bit."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        noisy = perturb(vector, bits, threshold, random_bytes)
        last = np.uint8(0x80 >> ((bits - 1) % 8))
        noisy[-1] = (noisy[-1] & ~last) | (vector[-1] & last)
        return noisy

    return mechanism


def padding_noisy() -> Mechanism:
    """Noise on the padding of the last byte."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        return perturb(vector, 8 * len(vector), threshold, random_bytes)

    return mechanism


def noise_reused() -> Mechanism:
    """The noise of the first release of a length serves for all later ones."""
    kept: dict[int, Bits] = {}

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        if bits not in kept:
            kept[bits] = perturb(vector, bits, threshold, random_bytes) ^ vector
        return vector ^ kept[bits]

    return mechanism


def rate_drifting() -> Mechanism:
    """The flip rate is 5% too high and 5% too low in turn, so that it is right on average."""
    calls = 0

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        nonlocal calls
        calls += 1
        drift = threshold // 20
        return perturb(vector, bits, threshold + (drift if calls % 2 else -drift), random_bytes)

    return mechanism


def rate_by_fill() -> Mechanism:
    """The flip rate leans by up to 2% on how full the vector is."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        lean = 0.04 * (ones(vector) / bits - 0.5)
        return perturb(vector, bits, int(threshold * (1 + lean)), random_bytes)

    return mechanism


def time_by_content() -> Mechanism:
    """The same bits, but the ones of the content are visited on the way."""

    def mechanism(vector: Bits, bits: int, threshold: int, random_bytes: RandomBytes) -> Bits:
        np.bincount(np.flatnonzero(np.unpackbits(vector)), minlength=1)
        return perturb(vector, bits, threshold, random_bytes)

    return mechanism


def generator_of_the_process() -> Mechanism:
    """One non-cryptographic generator with a fixed seed serves all releases of a process."""
    generator = np.random.default_rng(2024)
    return with_source(lambda vector, source: generator.bytes)()


def content_stream(vector: Bits, source: RandomBytes) -> RandomBytes:
    """Bytes that follow from the content."""
    state = hashlib.sha256(vector.tobytes())

    def random_bytes(length: int) -> bytes:
        state.update(b"next")
        return hashlib.shake_128(state.digest()).digest(length)

    return random_bytes


def repeating_stream(vector: Bits, source: RandomBytes) -> RandomBytes:
    """Every request beyond 512 bytes, the planes of 4096 vector bits, repeats its beginning."""

    def random_bytes(length: int) -> bytes:
        start = bytes(source(min(length, 512)))
        return (start * (length // 512 + 1))[:length]

    return random_bytes


FAULTS = (
    Fault("epsilon0 doubled", with_threshold(scaled_epsilon0(2)), ("rates", "blocks-1", "blocks-7", "calls-1")),
    Fault("epsilon0 halved", with_threshold(scaled_epsilon0(0.5)), ("rates", "blocks-1", "blocks-7", "calls-1")),
    Fault("noise on zeros only", with_noise(lambda n, v: n & ~v), ("rates", "positions", "blocks-1", "calls-1")),
    Fault("noise on ones only", with_noise(lambda n, v: n & v), ("rates", "positions", "blocks-1", "calls-1")),
    Fault("noise reused between releases", noise_reused, ("positions", "releases", "calls-1")),
    Fault("noise derived from content", with_source(content_stream), ("positions", "releases", "calls-1")),
    Fault("threshold rounded down at 8 bits", with_threshold(rounded_down(8)), ("rates", "comparison")),
    Fault("threshold rounded down at 12 bits", with_threshold(rounded_down(12)), ("comparison",)),
    Fault("threshold rounded down at 16 bits", with_threshold(rounded_down(16)), ("comparison",)),
    Fault("off by one in the first byte", with_threshold(next_byte), ("rates",)),
    Fault("off by one in the last bit", with_threshold(next_integer), ("comparison",)),
    Fault("keystream repeats every 4096 bits", with_source(repeating_stream), ("within",)),
    Fault("pairs of bits share noise", with_noise(pairs_shared), ("within", "blocks-7")),
    Fault("1% of bits copy their neighbour", with_noise(some_copied), ("within",)),
    Fault("rate drifts by 5%", rate_drifting, ("releases", "within")),
    Fault("rate depends on the fill", rate_by_fill, ("rates",)),
    Fault("ones flipped 1% less", with_noise(ones_flipped_less), ("rates",)),
    Fault("last bit not noised", last_bit_clean, ("positions", "calls-1")),
    Fault("last byte not noised", with_noise(last_bytes_clean), ("positions", "calls-1")),
    Fault("padding noised", padding_noisy, ("positions",)),
    Fault("time depends on the content", time_by_content, ("timing",)),
    Fault(
        "generator with a fixed seed for each release",
        with_source(lambda vector, source: np.random.default_rng(2024).bytes),
        ("positions", "releases", "processes", "calls-1"),
    ),
    Fault("generator with a fixed seed for each process", generator_of_the_process, ("processes",)),
)
