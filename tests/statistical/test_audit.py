"""The audit: is the noise that the service adds the noise that the promise needs?

The mechanism is the function that every release goes through, on the entropy of production. Each check states the
probability that a correct mechanism fails it; the sums are tested below. Every run draws afresh and prints its figures.
A failure is a failure: running again until it passes would undo what the check can find.
"""

from __future__ import annotations

from functools import cache

import pytest

from audit.suite import CHECKS, LONG_CHECKS
from audit.verdict import Verdict
from veilset.core.encodings.bloom.response import perturb

FALSE_ALARM = 1e-6


@cache
def verdict(name: str) -> Verdict:
    return CHECKS[name](perturb)


@cache
def long_verdict(name: str) -> Verdict:
    return LONG_CHECKS[name](perturb)


def assert_passed(seen: Verdict, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{seen}")
    assert not seen.failures


@pytest.mark.parametrize("name", CHECKS)
def test_the_mechanism_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Under the ceiling, over the floor, and not a score out of bounds."""
    assert_passed(verdict(name), capsys)


@pytest.mark.audit
@pytest.mark.parametrize("name", LONG_CHECKS)
def test_the_mechanism_passes_the_long_audit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with more trials, more changed bits and other values of epsilon."""
    assert_passed(long_verdict(name), capsys)


def test_false_alarms_are_rare() -> None:
    """All checks of this part together fail a correct mechanism less than once in a million runs."""
    assert sum(verdict(name).false_alarm for name in CHECKS) < FALSE_ALARM


@pytest.mark.audit
def test_false_alarms_of_the_long_audit_are_rare() -> None:
    """The same for the long part."""
    assert sum(long_verdict(name).false_alarm for name in LONG_CHECKS) < FALSE_ALARM
