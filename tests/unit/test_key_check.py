"""A wrong secret is an error that names it, wherever it is brought; never a quiet "no" or an overlap of zero."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilset
from harness.releases import release_bytes, release_view
from harness.shapes import FilterParameters
from veilset.core.elements.hashing import AmbientKey, check_key, digests, key_check, pack_digests
from veilset.core.params import HashParameters, HashScheme
from veilset.errors import InvalidInput, NotComparable, WrongKey, from_reason

KEYS = [bytes([number]) * 32 for number in (1, 2)]
SHAPE = FilterParameters(1 << 14, 2, HashScheme.BLAKE2B, 11, key_check(KEYS[0]))
MEMBERS = [f"member-{number}" for number in range(500)]
BYTES = release_bytes(MEMBERS, SHAPE, 6.0, key=KEYS[0])


def test_the_check_value_is_what_the_format_says() -> None:
    """BLAKE2b of nothing, keyed, personalised: docs/format.md."""
    expected = hashlib.blake2b(b"", digest_size=8, key=KEYS[0], person=b"veilset-check-1\0").hexdigest()
    assert key_check(KEYS[0]) == expected


@given(st.binary(min_size=16, max_size=64))
def test_the_check_value_is_no_digest(key: bytes) -> None:
    """Not even that of nothing under seed 0: its personalisation sets it apart."""
    digest = pack_digests(digests([b""], HashScheme.BLAKE2B, 0, key))
    assert digest == hashlib.blake2b(b"", digest_size=8, key=key, person=b"veilset-1").digest()
    assert key_check(key) != digest.hex()


@pytest.mark.parametrize("key", [b"", b"x" * 15, b"x" * 65, "x" * 32])
def test_what_is_no_secret_has_no_check_value(key: bytes) -> None:
    """The field is named; nothing of the secret is."""
    with pytest.raises(InvalidInput, match=r"^key must be 16 to 64 secret bytes$"):
        key_check(key)


def test_a_view_is_not_opened_with_a_wrong_secret() -> None:
    """The right one opens it, and so does none: parameters and comparisons need none."""
    assert veilset.open(BYTES, key=KEYS[0]).contains_many(MEMBERS).mean() > 0.5
    with pytest.raises(
        WrongKey, match=rf"^key is not the secret that members/1 was made with: .*{SHAPE.key_check}"
    ) as caught:
        veilset.open(BYTES, key=KEYS[1])
    assert caught.value.field == "key"
    assert key_check(KEYS[1]) in str(caught.value)
    assert all(key.hex() not in str(caught.value) for key in KEYS)
    again = from_reason(caught.value.reason, caught.value.message, caught.value.details)
    assert (type(again), again.details["field"]) == (WrongKey, "key")


def test_asking_a_keyed_release_without_a_secret_is_refused() -> None:
    """Not answered with "no"."""
    view = veilset.open(BYTES)
    for ask in (lambda: "member-1" in view, lambda: view.overlap(MEMBERS), lambda: view.scores(MEMBERS)):
        with pytest.raises(InvalidInput, match=r"^key is needed"):
            ask()


def test_releases_of_two_secrets_are_not_compared() -> None:
    """Told by their headers alone, with each side's value."""
    other = replace(SHAPE, key_check=key_check(KEYS[1]))
    partner = veilset.open(release_bytes(MEMBERS, other, 6.0, name="partner", key=KEYS[1]))
    with pytest.raises(NotComparable) as caught:
        veilset.open(BYTES).compare(partner)
    assert caught.value.differences == {"key_check": (SHAPE.key_check, other.key_check)}
    assert f"members/1 has {SHAPE.key_check}, partner/1 has {other.key_check}" in str(caught.value)
    unknown = veilset.open(release_bytes(MEMBERS, replace(SHAPE, key_check=""), 6.0, name="older", key=KEYS[0]))
    with pytest.raises(NotComparable, match=f"members/1 has {SHAPE.key_check}, older/1 has none"):
        veilset.open(BYTES).compare(unknown)


def test_without_a_check_value_any_secret_is_taken() -> None:
    """Sets from before there were check values; and an unkeyed scheme asks for none."""
    check_key(replace(SHAPE, key_check="").hashing, KEYS[1], "an old set")
    assert check_key(HashParameters(), AmbientKey(KEYS[1]), "an unkeyed set") is None
    with pytest.raises(InvalidInput, match="does not belong to an unkeyed set"):
        check_key(HashParameters(), KEYS[1], "an unkeyed set")
    with pytest.raises(InvalidInput, match="secret bytes"):
        check_key(SHAPE.hashing, b"short", "a set")


@pytest.mark.parametrize("value", ["0011", "00112233445566778", "00112233445566GG", "AABBCCDDEEFF0011", " " * 16])
def test_a_malformed_check_value_is_refused(value: str) -> None:
    """By name."""
    with pytest.raises(InvalidInput, match=r"^key_check must be 16 lower-case"):
        HashParameters(HashScheme.BLAKE2B, 0, value)
    with pytest.raises(InvalidInput, match=r"^key_check does not belong"):
        HashParameters(HashScheme.MMH3, 0, value)


def test_the_check_value_is_signed() -> None:
    """It is part of the header, which comes back whole."""
    assert release_view(MEMBERS, SHAPE, 6.0, key=KEYS[0]).header.hashing == SHAPE.hashing
