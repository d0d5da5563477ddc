"""Buying a noisy count with a release, and what a release costs with and without one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from veilset.core.params import Adjacency, PrivacyParameters, check_delta, check_epsilon
from veilset.core.privacy.budget import charge_of
from veilset.core.privacy.counts import CountNoise, calibrate_count, integer_noise
from veilset.core.release.header import NoisyCount
from veilset.errors import InvalidInput
from veilset_server.records import Charge, SetDescription


@dataclass(frozen=True, slots=True)
class CountPurchase:
    """What the caller wants to spend on a count."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon("count.epsilon", self.epsilon)
        check_delta("count.delta", self.delta)


def count_noise(description: SetDescription, purchase: CountPurchase) -> CountNoise:
    """The noise for the number of distinct digests.

    One user moves that number by at most elements_per_user, whatever the hash; so the count needs no assumption. Raises
    InvalidInput under replace-one, where the size of the set is public and a noisy count of it would be a pretence.
    """
    privacy = description.privacy
    if privacy.adjacency is not Adjacency.ADD_REMOVE:
        raise InvalidInput("count", f"absent under {privacy.adjacency}, where the size is public")
    sensitivity = privacy.elements_per_user
    noise = calibrate_count(purchase.epsilon, purchase.delta, sensitivity)
    if noise.delta <= purchase.delta:
        return noise
    # Charged is the decimal that a float stands for; here it has to be at least what the 64-bit grid costs.
    return replace(noise, delta=math.nextafter(noise.delta, 1.0))


def noisy_count(digests: int, noise: CountNoise, drawn: int) -> NoisyCount:
    """``digests`` with noise. drawn: a uniform 64-bit integer."""
    return NoisyCount(
        value=digests + integer_noise(noise, drawn),
        mechanism=str(noise.mechanism),
        scale=noise.scale,
        sensitivity=noise.sensitivity,
        epsilon=noise.epsilon,
        delta=noise.delta,
    )


def price(privacy: PrivacyParameters, noise: CountNoise | None = None) -> Charge:
    """What a release costs, its count included."""
    return Charge(*charge_of(privacy, noise))
