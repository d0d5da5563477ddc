"""The age of a release: by the wall clock, never below 0, never less than what passed since it was opened."""

from __future__ import annotations

import pytest

from veilset._reader.fetching import ReleaseAge, check_max_age, refuse_stale, tell_if_ahead
from veilset.errors import InvalidInput, StaleRelease

CREATED = 1_000_000.0


class Clocks:
    """A wall clock and a monotonic one, set by hand."""

    def __init__(self, wall: float) -> None:
        self.wall = wall
        self.monotonic = 50.0

    def age(self) -> ReleaseAge:
        """Of a release made at ``CREATED``, opened now."""
        return ReleaseAge(int(CREATED * 1e6), lambda: self.wall, lambda: self.monotonic)

    def pass_seconds(self, seconds: float) -> None:
        """Both clocks go on."""
        self.wall += seconds
        self.monotonic += seconds


def test_the_age_is_the_time_since_it_was_made() -> None:
    clocks = Clocks(CREATED + 10)
    age = clocks.age()
    assert age.seconds == 10
    clocks.pass_seconds(5)
    assert age.seconds == 15


def test_a_clock_behind_the_services_gives_zero_and_counts_from_there() -> None:
    clocks = Clocks(CREATED - 3600)
    age = clocks.age()
    assert age.seconds == 0
    clocks.pass_seconds(30)
    assert age.seconds == 30


def test_setting_the_clock_back_makes_nothing_younger() -> None:
    clocks = Clocks(CREATED + 100)
    age = clocks.age()
    clocks.pass_seconds(20)
    clocks.wall -= 1e6
    assert age.seconds == 120


def test_setting_the_clock_forward_is_believed() -> None:
    clocks = Clocks(CREATED)
    age = clocks.age()
    clocks.wall += 500
    assert age.seconds == 500


def test_a_release_that_is_too_old_is_named() -> None:
    refuse_stale("members/3", 60.0, 60.0)
    refuse_stale("members/3", 1e9, None)
    with pytest.raises(StaleRelease, match=r"release members/3 is 61 s old; at most 60 s") as caught:
        refuse_stale("members/3", 61.0, 60.0)
    assert caught.value.details == {"release": "members/3", "age_seconds": "61", "max_age_seconds": "60"}
    with pytest.raises(StaleRelease):
        refuse_stale("members/3", float("nan"), 60.0)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_what_is_no_age_is_refused(limit: float) -> None:
    with pytest.raises(InvalidInput, match="max_age_seconds"):
        check_max_age(limit)


@pytest.mark.parametrize(("ahead", "limit", "told"), [(3600.0, 60.0, True), (2.0, 60.0, False), (3600.0, None, False)])
def test_a_release_of_the_future_is_logged(
    ahead: float, limit: float | None, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where its age is to be limited, and the clocks differ by more than a network leaves."""
    tell_if_ahead("members/3", int(CREATED * 1e6), limit, lambda: CREATED - ahead)
    assert (f"members/3 was made {ahead:.0f} s in the future" in caplog.text) is told
