"""The audit audited: every planted fault must be found by every check that is said to find it.

Each such check misses its fault with a probability below 1e-6; none of them asks for a second try.
"""

from __future__ import annotations

import pytest

from audit.faults import FAULTS, Fault
from audit.suite import ALL_CHECKS, CHECKS

QUICK = {
    "epsilon0 doubled": "blocks-7",
    "last bit not noised": "positions",
    "noise reused between releases": "releases",
    "threshold rounded down at 8 bits": "rates",
    "threshold rounded down at 16 bits": "comparison",
    "1% of bits copy their neighbour": "within",
    "generator with a fixed seed for each process": "processes",
}
BY_NAME = {fault.name: fault for fault in FAULTS}
CATCHES = [(fault, check) for fault in FAULTS for check in fault.caught_by]


def assert_caught(fault: Fault, check: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen = ALL_CHECKS[check](fault.make())
    with capsys.disabled():
        print(f"\n{fault.name}: {seen.check} finds {'; '.join(seen.failures) or 'nothing'}")
    assert seen.failures


@pytest.mark.parametrize(("name", "check"), QUICK.items())
def test_fault_is_caught(name: str, check: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One fault for each kind of check."""
    assert_caught(BY_NAME[name], check, capsys)


@pytest.mark.audit
@pytest.mark.parametrize(("fault", "check"), CATCHES, ids=[f"{fault.name}-{check}" for fault, check in CATCHES])
def test_every_fault_is_caught(fault: Fault, check: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault by every check listed with it."""
    assert_caught(fault, check, capsys)


def test_every_kind_of_check_catches_something() -> None:
    """No check is there that could not fail."""
    kinds = {check.rpartition("-")[0] or check for fault in FAULTS for check in fault.caught_by}
    assert kinds == {name.partition("-")[0] for name in CHECKS} | {"timing"}
    assert all(check in BY_NAME[name].caught_by for name, check in QUICK.items())
