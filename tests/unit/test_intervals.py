"""The binomial interval against scipy's quantiles."""

import pytest
from scipy import stats

from veilset.core.estimates.intervals import binomial_interval
from veilset.errors import InvalidInput


@pytest.mark.parametrize("trials", [1, 10, 5636, 50_723])
@pytest.mark.parametrize("probability", [1e-6, 0.0067, 0.3, 0.9933])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_interval_is_the_exact_central_one(trials: int, probability: float, confidence: float) -> None:
    low, high = binomial_interval(trials, probability, confidence)
    tail = (1 - confidence) / 2
    exact = stats.binom(trials, probability)
    assert exact.cdf(low - 1) <= tail * (1 + 1e-9)
    assert exact.sf(high) <= tail * (1 + 1e-9)
    assert exact.cdf(low) >= tail * (1 - 1e-9)
    assert high == 0 or exact.sf(high - 1) >= tail * (1 - 1e-9)


def test_certain_counts_have_no_width() -> None:
    assert binomial_interval(10, 0.0, 0.999) == (0, 0)
    assert binomial_interval(10, 1.0, 0.999) == (10, 10)


@pytest.mark.parametrize("arguments", [(0, 0.5, 0.9), (10, float("nan"), 0.9), (10, 1.1, 0.9), (10, 0.5, 1.0)])
def test_bad_arguments_are_named(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(InvalidInput):
        binomial_interval(*arguments)
