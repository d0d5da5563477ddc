"""The table of faults tried and survived, at the end of every run that tried any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

_PROPERTY = "fault"

Trying = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def trying(request: pytest.FixtureRequest) -> Trying:
    """``with trying("SIGKILL while publishing"):`` counts one try, and that it was survived if the block ends well."""

    @contextmanager
    def one_try(fault: str) -> Iterator[None]:
        request.node.user_properties.append((_PROPERTY, (fault, False)))
        yield
        request.node.user_properties.append((_PROPERTY, (fault, True)))

    return one_try


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports come from the workers too, if there are any; so the counts travel with them."""
    tried: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    figures: list[str] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            if any(name == _PROPERTY for name, _ in report.user_properties) and report.passed:
                figures += filter(None, report.capstdout.splitlines())  # what it measured; -s does not come by workers
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    fault, over = value
                    (survived if over else tried)[fault] += 1
    if not tried:
        return
    if figures:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
    terminalreporter.section("faults tried and survived")
    for fault in sorted(tried):
        terminalreporter.write_line(f"{fault:<72} {tried[fault]:>5} {survived[fault]:>5}")
    terminalreporter.write_line(f"{'all':<72} {tried.total():>5} {survived.total():>5}")
