"""Principals: names, roles, and which set names a pattern covers."""

from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.errors import InvalidInput
from veilset_server.principals import EVERYBODY, Role, check_patterns, make_principal, pattern_covers


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("customers", ["customers"], ["customers-a", "a-customers", "", "customer"]),
        ("customers-*", ["customers-", "customers-eu", "customers-*"], ["customers", "xcustomers-eu", "Customers-eu"]),
        ("*-eu", ["-eu", "customers-eu"], ["customers-eu-1", "eu"]),
        ("a*b*c", ["abc", "aabbcc", "a-b-c"], ["ab", "acb", "abcd", "xabc"]),
        ("a**b", ["ab", "axb"], ["a", "b"]),
        ("aba*aba", ["abaaba", "aba-aba"], ["aba", "ababa"]),
        ("a.c", ["a.c"], ["abc"]),
        ("*", ["anything", ""], []),
    ],
)
def test_a_pattern_covers_whole_names(pattern: str, covered: list[str], not_covered: list[str]) -> None:
    """The star stands for any characters, nothing else is special, and both ends are anchored."""
    assert [name for name in covered if not pattern_covers(pattern, name)] == []
    assert [name for name in not_covered if pattern_covers(pattern, name)] == []


@given(
    st.text("ab*", max_size=10).map(lambda text: text or "*"),
    st.text("ab", max_size=12),
)
def test_patterns_mean_what_a_shell_means(pattern: str, name: str) -> None:
    """The standard library's matcher is the oracle."""
    assert pattern_covers(pattern, name) == fnmatch.fnmatchcase(name, pattern)


def test_no_pattern_and_no_name_take_long() -> None:
    """A matcher that tries every split would need more steps than the universe has seconds; this one is linear."""
    started = time.process_time()
    for _ in range(1000):
        assert not pattern_covers("a*" * 31 + "b", "a" * 63)
        assert not pattern_covers("a*", "a" * 100_000)
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize(
    ("field", "name", "roles", "sets"),
    [
        ("name", "", ["reader"], ["*"]),
        ("name", "a/b", ["reader"], ["*"]),
        ("name", "-a", ["reader"], ["*"]),
        ("name", "a" * 64, ["reader"], ["*"]),
        ("name", "a\n", ["reader"], ["*"]),
        ("role", "a", [], ["*"]),
        ("role", "a", ["owner"], ["*"]),
        ("sets", "a", ["reader"], []),
        ("sets", "a", ["reader"], [""]),
        ("sets", "a", ["reader"], ["A*"]),
        ("sets", "a", ["reader"], ["a?"]),
        ("sets", "a", ["reader"], ["a" * 64]),
        ("sets", "a", ["reader"], [f"a{number}" for number in range(101)]),
    ],
)
def test_what_is_no_principal(field: str, name: str, roles: list[str], sets: list[str]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidInput) as refusal:
        make_principal(name, roles, sets)
    assert refusal.value.field == field


def test_patterns_are_kept_once_and_in_order() -> None:
    """As they were given."""
    assert check_patterns(["b*", "a", "b*"]) == ("b*", "a")


def test_everybody_may_do_everything() -> None:
    """That is what no authentication means."""
    assert EVERYBODY.roles == frozenset(Role)
    assert EVERYBODY.covers_all
    assert EVERYBODY.covers("anything")
