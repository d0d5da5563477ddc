"""The time of checking a token does not tell how near a wrong one comes (S9).

Interleaved calls in random order, without the slowest tenth, which something interrupted; Welch's t of two kinds of wrong token.
Noise of the machine exceeds the limit once in 150 000 tries; a difference that belongs to the token is there in every try. So a
run fails by chance less than once in 10^15, and a comparison that stops at the first wrong digit fails it always: the last
test shows that.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable
from time import perf_counter_ns

import numpy as np
import pytest
from scipy.stats import ttest_ind

from veilset_server.principals import make_principal
from veilset_server.state.tokens import TokenBook, TokenRecord, make_token, make_token_id, token_hash

CALLS = 20_000
CROPPED = 0.1
LIMIT, TRIES = 4.5, 3


def welch(check: Callable[[str], object], left: list[str], right: list[str]) -> float:
    """Welch's t of the time that ``check`` takes for one of ``left`` and for one of ``right``."""
    choice = np.random.default_rng().random(CALLS) < 0.5
    shown = [(left if chosen else right)[number % len(left)] for number, chosen in enumerate(choice.tolist())]
    nanoseconds = np.zeros(CALLS, dtype=np.int64)
    gc.disable()
    try:
        for number, token in enumerate(shown):
            start = perf_counter_ns()
            check(token)
            nanoseconds[number] = perf_counter_ns() - start
    finally:
        gc.enable()
    kept = nanoseconds <= np.quantile(nanoseconds, 1 - CROPPED)
    return float(ttest_ind(nanoseconds[kept & choice], nanoseconds[kept & ~choice], equal_var=False).statistic)


def scores(check: Callable[[str], object], left: list[str], right: list[str]) -> list[float]:
    """One score, or up to three while they exceed the limit."""
    found = [welch(check, left, right)]
    while abs(found[-1]) > LIMIT and len(found) < TRIES:
        found.append(welch(check, left, right))
    return found


def nearly(token: str, right_digits: int) -> str:
    """A token of which so many hexadecimal digits of the secret are right, and the others are anything else."""
    head, secret = token[:-64], token[-64:]
    other = "".join(f"{(int(digit, 16) + 1 + secrets.randbelow(15)) % 16:x}" for digit in secret[right_digits:])
    return head + secret[:right_digits] + other


@pytest.mark.security
def test_the_time_does_not_tell_how_near_a_secret_is() -> None:
    """Of the right id; ids are no secret, they stand in lists and logs."""
    tokens = [make_token(make_token_id()) for _ in range(2000)]
    principal = make_principal("p", ["reader"], ["*"])
    book = TokenBook([TokenRecord(t.split("_")[1], principal, token_hash(t), 0, None) for t in tokens])
    far, near = [nearly(token, 0) for token in tokens], [nearly(token, 60) for token in tokens]
    found = scores(lambda token: book.find(token, 0), far, near)
    print(f"60 of 64 digits right, or none: Welch's t {', '.join(f'{score:.2f}' for score in found)}")
    assert abs(found[-1]) <= LIMIT


@pytest.mark.security
def test_a_comparison_that_stops_early_would_be_seen() -> None:
    """Else the test above could not fail."""
    token = make_token(make_token_id())

    def stops_early(shown: str) -> bool:
        return all(a == b for a, b in zip(shown, token, strict=True))

    found = scores(stops_early, [nearly(token, 0)], [nearly(token, 60)])
    print(f"stopping early: Welch's t {', '.join(f'{score:.1f}' for score in found)}")
    assert min(map(abs, found)) > LIMIT
