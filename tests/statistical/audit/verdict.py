"""What a check saw: every figure, what was wrong, and how often a correct mechanism would be found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import norm


@dataclass(frozen=True, slots=True)
class Verdict:
    """figures: all that was measured, for people. failures: the figures out of bounds; empty for a pass.

    false_alarm: upper bound on the probability that a correct mechanism fails.
    """

    check: str
    figures: tuple[str, ...]
    failures: tuple[str, ...]
    false_alarm: float

    def __str__(self) -> str:
        lines = [f"audit {self.check} (false alarm {self.false_alarm:.1e})", *self.figures]
        return "\n  ".join([*lines, *(f"FAILED {failure}" for failure in self.failures)])


class Findings:
    """Collects the figures of one check. All limits are checked by containment, so that NaN fails."""

    def __init__(self, check: str) -> None:
        self._check = check
        self._figures: list[str] = []
        self._failures: list[str] = []
        self._false_alarm = 0.0

    def score(self, what: str, z: float, limit: float, tests: int = 1) -> None:
        """A normal score, the largest of ``tests``, that must lie within ±limit."""
        self._false_alarm += 2 * tests * float(norm.sf(limit))
        self._record(f"{what}: z = {z:.2f}, limit {limit:g}", abs(z) <= limit)

    def repeated_score(self, what: str, scores: Sequence[float], limit: float, tries: int) -> None:
        """A normal score that may miss ±limit, but not in each of so many tries."""
        self._false_alarm += (2 * float(norm.sf(limit))) ** tries
        listed = ", ".join(f"{z:.2f}" for z in scores)
        self._record(f"{what}: z = {listed}, limit {limit:g} once in {tries}", any(abs(z) <= limit for z in scores))

    def lower_bound(self, what: str, bound: float, floor: float, epsilon: float, false_alarm: float) -> None:
        """A lower bound on epsilon: above ``epsilon`` is a breach, below ``floor`` too much noise or a blind audit."""
        self._false_alarm += false_alarm
        self._record(f"{what}: epsilon >= {bound:.4f}, to lie in [{floor:g}, {epsilon:g}]", floor <= bound <= epsilon)

    def exact(self, what: str, violations: int, cases: int) -> None:
        """Something that may never happen."""
        self._record(f"{what}: {violations} violations in {cases}", violations == 0)

    def verdict(self) -> Verdict:
        """All that was found."""
        return Verdict(self._check, tuple(self._figures), tuple(self._failures), self._false_alarm)

    def _record(self, figure: str, passed: bool) -> None:
        self._figures.append(figure)
        if not passed:
            self._failures.append(figure)
