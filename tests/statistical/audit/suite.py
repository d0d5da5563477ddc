"""The checks by name: those that every test run can afford, and the long ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from audit.boundary import comparison
from audit.independence import between_processes, between_releases, within_release
from audit.lower_bounds import block_bound, call_bound
from audit.rates import flip_rates, position_rates
from audit.release import Mechanism
from audit.timing import timing
from audit.verdict import Verdict

Check = Callable[[Mechanism], Verdict]

CHECKS: Mapping[str, Check] = {
    "comparison": comparison,
    "rates": flip_rates,
    "positions": position_rates,
    "within": within_release,
    "releases": between_releases,
    "processes": between_processes,
    "calls-1": partial(call_bound, changed_bits=1, calls=50_000, floor=0.89),
    "blocks-1": partial(block_bound, changed_bits=1, trials=4_000_000, floor=0.98),
    "blocks-7": partial(block_bound, changed_bits=7, trials=8_000_000, floor=0.90),
}
"""At ε = 1, the number in a name is that of changed bits."""

LONG_CHECKS: Mapping[str, Check] = {
    "calls-1": partial(call_bound, changed_bits=1, calls=250_000, floor=0.95),
    "calls-4": partial(call_bound, changed_bits=4, calls=250_000, floor=0.83),
    "blocks-1": partial(block_bound, changed_bits=1, trials=40_000_000, floor=0.99),
    "blocks-7": partial(block_bound, changed_bits=7, trials=40_000_000, floor=0.95),
    "blocks-10": partial(block_bound, changed_bits=10, trials=16_000_000, floor=0.80),
    "blocks-20": partial(block_bound, changed_bits=20, trials=16_000_000, floor=0.45),
    "rates at 0.5": partial(flip_rates, epsilon=0.5),
    "rates at 2": partial(flip_rates, epsilon=2.0),
    "rates at 4": partial(flip_rates, epsilon=4.0),
    "blocks-1 at 0.5": partial(block_bound, changed_bits=1, trials=4_000_000, floor=0.48, epsilon=0.5),
    "blocks-1 at 2": partial(block_bound, changed_bits=1, trials=4_000_000, floor=1.96, epsilon=2.0),
    "blocks-1 at 4": partial(block_bound, changed_bits=1, trials=4_000_000, floor=3.9, epsilon=4.0),
    "positions at 4": partial(position_rates, epsilon=4.0),
    "within at 2": partial(within_release, epsilon=2.0),
    "releases at 2": partial(between_releases, epsilon=2.0),
    "timing": timing,
}

ALL_CHECKS: Mapping[str, Check] = {**LONG_CHECKS, **CHECKS}
