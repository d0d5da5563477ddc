"""Lower bounds on epsilon from what two neighbouring inputs gave, and how far below epsilon they can fall by chance.

If the mechanism is ε-differentially private then P'(E) <= e^ε·P(E) for every event E, in both directions. Here E says how
many of the d bits in which the inputs differ came out as ones: {t >= τ} or {t < τ}, for τ = 1 … d. Clopper-Pearson bounds
on both probabilities, with the allowed error shared among all events and directions, make the largest ln(P'_low/P_high)
a lower bound on ε that errs with at most that probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

Counts = NDArray[np.int64]


def lower_proportion(count: int, trials: int, error: float) -> float:
    """Clopper-Pearson: the proportion is below this with probability at most ``error``."""
    return 0.0 if count == 0 else float(beta.ppf(error, count, trials - count + 1))


def upper_proportion(count: int, trials: int, error: float) -> float:
    """Clopper-Pearson: the proportion is above this with probability at most ``error``."""
    return 1.0 if count == trials else float(beta.isf(error, count + 1, trials - count))


def epsilon_lower_bound(present: Counts, absent: Counts, error: float) -> float:
    """A bound that is above ε with probability at most ``error``; -inf if nothing can be said.

    present, absent: shape (d + 1,), how many trials gave t = 0 … d ones at the d differing bits, where they are all ones
    and where they are all zeros in the input.
    """
    share = _share(error, len(present) - 1)
    return max(_log_ratio(*event, share) for event in _events(present, absent))


def chance_below(floor: float, trials: int, changed_bits: int, flip_probability: float, error: float) -> float:
    """Upper bound on the probability that a correct mechanism's `epsilon_lower_bound` is below ``floor`` (at least 0).

    trials: on each side. It is the chance for the one event {t >= τ} that does best.
    """
    share = _share(error, changed_bits)
    likely, unlikely = binom(changed_bits, 1 - flip_probability), binom(changed_bits, flip_probability)
    return min(
        _chance_of_event_below(floor, trials, float(likely.sf(least - 1)), float(unlikely.sf(least - 1)), share)
        for least in range(1, changed_bits + 1)
    )


def chance_below_floor(floor: float, trials: int, yes: tuple[float, float], error: float) -> float:
    """`chance_below` for one answer, yes with the first probability under one input and with the second under the other."""
    present, absent = yes
    share = _share(error, 1)
    return min(
        _chance_of_event_below(floor, trials, likely, unlikely, share)
        for likely, unlikely in ((present, absent), (1.0 - absent, 1.0 - present))
    )


def _chance_of_event_below(floor: float, trials: int, likely: float, unlikely: float, share: float) -> float:
    """Summed over the likely side's counts; counts so rare that together they weigh 1e-12 are taken to fall below."""
    rare = 1e-12
    counts = np.arange(max(1, binom.ppf(rare / 2, trials, likely)), binom.isf(rare / 2, trials, likely) + 1)
    low = beta.ppf(share, counts, trials - counts + 1)
    # upper_proportion(c) <= h as long as P(Bin(trials, h) <= c) <= share, which holds for all c below this quantile.
    enough = binom.ppf(share, trials, low * math.exp(-floor)) - 1
    below = binom.pmf(counts, trials, likely) * binom.sf(enough, trials, unlikely)
    return float(below.sum() + binom.pmf(0, trials, likely)) + rare


def _share(error: float, changed_bits: int) -> float:
    return error / (8 * changed_bits)  # 2·d events, two directions, two proportions


def _events(present: Counts, absent: Counts) -> Iterator[tuple[int, int, int, int]]:
    """Count and trials of each event under one input, then count and trials under the other."""
    n_present, n_absent = int(present.sum()), int(absent.sum())
    for least in range(1, len(present)):
        many_present, many_absent = int(present[least:].sum()), int(absent[least:].sum())
        few_present, few_absent = n_present - many_present, n_absent - many_absent
        yield many_present, n_present, many_absent, n_absent
        yield many_absent, n_absent, many_present, n_present
        yield few_present, n_present, few_absent, n_absent
        yield few_absent, n_absent, few_present, n_present


def _log_ratio(count: int, trials: int, other_count: int, other_trials: int, error: float) -> float:
    low = lower_proportion(count, trials, error)
    return math.log(low / upper_proportion(other_count, other_trials, error)) if low > 0 else -math.inf
