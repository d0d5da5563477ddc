"""The bracketing search: tested answers only, exact to the last digits, in few calls."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.privacy.exact import greatest_allowed

SHAPES: dict[str, Callable[[float], float]] = {
    "line": lambda ratio: ratio - 1,
    "steep": lambda ratio: math.expm1(min(600.0, 50 * (ratio - 1))),
    "flat": lambda ratio: (ratio - 1) ** 3,
    "saturating": lambda ratio: math.tanh(20 * (ratio - 1)),
    "step": lambda ratio: 1.0 if ratio > 1 else -1.0,
    "kink": lambda ratio: 1e6 * (ratio - 1) if ratio > 1 else 1e-6 * (ratio - 1),
    "infinite": lambda ratio: math.inf if ratio > 1.5 else ratio - 1,
}


@given(
    st.sampled_from(sorted(SHAPES)),
    st.floats(1e-12, 63.9),
    st.floats(1e-9, 1),
)
def test_finds_the_root_from_below(name: str, root: float, part: float) -> None:
    """The answer has passed its test and lies within a relative 3e-15 of the root."""
    calls: list[float] = []

    def excess(x: float) -> float:
        calls.append(x)
        return SHAPES[name](x / root)

    low = root * part
    found = greatest_allowed(excess, low, 64.0)
    assert SHAPES[name](found / root) <= 0 or found == low
    assert root * (1 - 3e-15) <= found or name == "flat"  # a cubic underflows to 0 only within 1e-108 of its root
    assert found <= root * (1 + 3e-16)
    assert len(calls) <= 200


@pytest.mark.parametrize("name", ["line", "steep", "saturating"])
def test_smooth_costs_need_few_calls(name: str) -> None:
    """Interpolation beats the 52 calls of a plain bisection."""
    calls: list[float] = []

    def excess(x: float) -> float:
        calls.append(x)
        return SHAPES[name](x / 0.7)

    greatest_allowed(excess, 0.5, 64.0)
    assert len(calls) <= 25


def test_ends() -> None:
    """Everything allowed gives the high end; nothing above low gives low; an empty interval gives low."""
    assert greatest_allowed(lambda x: -1.0, 0.5, 64.0) == 64.0
    assert greatest_allowed(lambda x: 1.0 if x > 0.5 else 0.0, 0.5, 64.0) == 0.5
    assert greatest_allowed(lambda x: 1.0, 64.0, 64.0) == 64.0


def test_a_far_start_is_soon_left() -> None:
    """The first steps grow, so 300 orders of magnitude below the root cost a few dozen calls."""
    calls: list[float] = []

    def excess(x: float) -> float:
        calls.append(x)
        return x - 0.7

    assert greatest_allowed(excess, 1e-300, 64.0) == pytest.approx(0.7, rel=3e-15)
    assert len(calls) <= 80
