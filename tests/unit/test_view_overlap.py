"""Overlap and comparison through views: lists as callers hold them, and releases that do not fit together."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

import veilset
from harness.releases import release_bytes, release_view
from harness.shapes import FilterParameters
from veilset.core.encodings.bloom.overlap import ListReading, estimate_overlap
from veilset.core.estimates.releases import check_comparable
from veilset.core.params import HashScheme, Normalization
from veilset.errors import InvalidInput, NotComparable, from_reason

MEMBERS = [f"user{number}" for number in range(3000)]
OWN = [f"user{number}" for number in range(2500, 4500)]
SHAPE = FilterParameters(16_384, 2, seed=11)
VIEW = release_view(MEMBERS, SHAPE, 6.0)
# What an interval at this confidence misses is below the false-alarm rate of 1e-6 that these tests may have together.
SURE = 1 - 1e-8


def test_an_own_list() -> None:
    """Repetitions count once, whatever the collection."""
    found = VIEW.overlap(OWN)
    assert (found.own_size, found.confidence) == (2000, 0.95)
    wide = VIEW.overlap(OWN, SURE)
    assert 0 < wide.low <= 500 <= wide.high < 1000
    assert wide.low < found.low < found.estimate < found.high < wide.high
    for same in (OWN + OWN[:700], OWN[::-1], iter(OWN), np.array(OWN), [element.encode() for element in OWN]):
        assert VIEW.overlap(same) == found


def test_the_reading_is_of_all_positions() -> None:
    """The same counts by `contains_many` of a release with one hash."""
    shape = FilterParameters(4096, 1, seed=5)
    view = release_view(MEMBERS[:500], shape, 3.0)
    ones = int((view.scores(OWN) > 0).sum())
    reading = ListReading(len(OWN), ones, int(np.bitwise_count(view.vector).sum()))
    assert view.overlap(OWN) == estimate_overlap(
        shape.bits, shape.hashes, view.header.encoding.facts()["flip_probability"], reading
    )


def test_a_long_list_goes_through_files(monkeypatch: pytest.MonkeyPatch) -> None:
    found = VIEW.overlap(OWN)
    monkeypatch.setattr("veilset._input.digests.DistinctDigests.__init__.__defaults__", (100,))
    assert VIEW.overlap(OWN + OWN) == found


def test_lists_are_normalised_as_the_release_says() -> None:
    view = release_view(MEMBERS, SHAPE, 6.0, normalization=Normalization.TRIM_CASEFOLD)
    assert view.overlap([f" {element.upper()} " for element in OWN]) == view.overlap(OWN)


def test_what_is_no_list_or_confidence_is_refused() -> None:
    for elements, confidence, words in (
        ("user1", 0.95, "collection"),
        ([""], 0.95, "element"),
        ([], 1.0, "confidence"),
    ):
        with pytest.raises(InvalidInput, match=words):
            VIEW.overlap(elements, confidence)
    assert VIEW.overlap([]).interval == (0.0, 0.0)


def test_two_releases() -> None:
    """Under noise of different strength; the sides can be swapped."""
    other = release_view(OWN, SHAPE, 5.0, name="partner")
    found = VIEW.compare(other, SURE)
    truths = {"left": 3000, "right": 2000, "union": 4500, "intersection": 500, "jaccard": 500 / 4500}
    for name, truth in truths.items():
        estimate = getattr(found, name)
        assert estimate.low <= truth <= estimate.high, name
        assert estimate.high - estimate.low < 1.5 * truth + 500
    swapped = asdict(other.compare(VIEW, SURE))
    assert swapped["left"] == pytest.approx(asdict(found.right))
    assert swapped["intersection"] == pytest.approx(asdict(found.intersection))


def test_two_releases_of_one_set_are_the_same_set() -> None:
    found = VIEW.compare(release_view(MEMBERS, SHAPE, 6.0, sequence=2), SURE)
    assert found.jaccard.high == 1.0
    assert found.intersection.low <= 3000 <= found.intersection.high


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"seed": 12}, "members/1 has 11, partner/1 has 12"),
        ({"bits": 16_392}, "members/1 has 16384, partner/1 has 16392"),
        ({"hashes": 3}, "members/1 has 2, partner/1 has 3"),
        ({"scheme": HashScheme.BLAKE2B}, "members/1 has mmh3-1, partner/1 has blake2b-1"),
    ],
)
def test_releases_that_do_not_fit_are_refused(change: dict[str, Any], values: str) -> None:
    """The error names the field and what each side has."""
    key = bytes(range(32)) if "scheme" in change else None
    other = release_view(OWN, replace(SHAPE, **change), 6.0, name="partner", key=key)
    (field,) = change
    with pytest.raises(NotComparable, match=rf"^The two sides differ in {field}: {values}") as caught:
        VIEW.compare(other)
    assert caught.value.field == field
    assert list(caught.value.differences) == [field]


def test_every_difference_is_named() -> None:
    other = release_view(OWN, replace(SHAPE, seed=1, hashes=1), 6.0, normalization=Normalization.NFC)
    with pytest.raises(NotComparable, match="normalization: members/1 has none, members/1 has nfc-1") as caught:
        VIEW.compare(other)
    assert caught.value.differences["seed"] == (11, 1)
    assert list(caught.value.differences) == ["hashes", "seed", "normalization"]
    again = from_reason(caught.value.reason, caught.value.message, caught.value.details)
    assert isinstance(again, NotComparable)


def test_a_release_is_not_compared_with_itself() -> None:
    """Its noise would pass for common elements; republished under another number, too."""
    with pytest.raises(InvalidInput, match="the same noisy vector"):
        VIEW.compare(VIEW)
    with pytest.raises(InvalidInput, match="the same noisy vector"):
        check_comparable(VIEW.header, replace(VIEW.header, sequence=2))


def test_two_secrets_are_not_compared() -> None:
    """Where both readers hold a key, the keys have to agree."""
    shape = replace(SHAPE, scheme=HashScheme.BLAKE2B)
    keys = [bytes([number]) * 32 for number in (1, 2)]
    left, right = (release_view(MEMBERS, shape, 6.0, key=key) for key in keys)
    with pytest.raises(InvalidInput, match="key differs between the two releases"):
        left.compare(right)
    same = release_bytes(OWN, shape, 6.0, key=keys[0])
    for key in (keys[0], None):
        found = left.compare(veilset.open(same, key=key), SURE).intersection
        assert found.low <= 500 <= found.high
