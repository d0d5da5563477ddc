"""What a view answers beyond membership: other thresholds, exclusion lists, decisions by cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness.releases import release_view
from harness.shapes import FilterParameters
from veilset._reader.view import BATCH
from veilset.core.params import Normalization
from veilset.errors import InvalidInput, PoorUtility

MEMBERS = [f"user{number}" for number in range(2000)]
OTHERS = [f"other{number}" for number in range(2000)]
SHAPE = FilterParameters(16_384, 1, seed=11)
VIEW = release_view(MEMBERS, SHAPE, 4.0)
WEAK = release_view(MEMBERS, SHAPE, 1.0)


def test_filter_keeps_what_is_not_taken_for_a_member() -> None:
    """In order, in the kind of collection that came: lists, numpy arrays; anything else as a list."""
    asked = [element for pair in zip(MEMBERS, OTHERS, strict=True) for element in pair]
    kept = [element for element, member in zip(asked, VIEW.contains_many(asked).tolist(), strict=True) if not member]
    assert 1000 < len(kept) < 3000
    assert VIEW.filter(asked) == kept
    assert VIEW.filter(tuple(asked)) == kept
    assert VIEW.filter(iter(asked)) == kept
    assert list(VIEW.filter_stream(asked)) == kept
    array = VIEW.filter(np.array(asked))
    assert (type(array), array.tolist()) == (np.ndarray, kept)
    assert VIEW.filter([element.encode() for element in asked]) == [element.encode() for element in kept]
    assert VIEW.filter([]) == []


def test_filter_takes_a_threshold_for_one_call() -> None:
    """That of a view opened with it; the view's own stays."""
    shape = FilterParameters(65_536, 8, seed=3)
    view = release_view(MEMBERS, shape, 24.0)
    own = view.filter(OTHERS)
    strict = view.deciding(max_false_positive_rate=0.001)
    assert strict.decoder.false_positive_rate <= 0.001 < view.decoder.false_positive_rate
    assert view.filter(OTHERS, max_false_positive_rate=0.001) == strict.filter(OTHERS)
    assert view.filter(OTHERS) == own
    assert strict.header is view.header
    assert strict.vector is view.vector


def test_filter_stream_reads_no_further_than_it_has_to() -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield f"candidate{taken}"

    assert next(VIEW.filter_stream(endless()))
    assert taken == BATCH


def test_a_limit_out_of_reach_says_what_is_possible() -> None:
    """FPR 0.001 at ε = 1, by every way of asking: the smallest there is, and how to find a better release."""
    for refused in (
        lambda: WEAK.deciding(max_false_positive_rate=0.001),
        lambda: WEAK.filter(OTHERS, max_false_positive_rate=0.001),
        lambda: WEAK.filter_stream(OTHERS, max_false_positive_rate=0.001),
    ):
        with pytest.raises(PoorUtility, match=r"cannot be reached with members/1: .*veilset plan") as caught:
            refused()
    smallest = float(caught.value.details["smallest_false_positive_rate"])
    assert smallest == pytest.approx(WEAK.decoder.law.facts["ones_fraction"])
    assert WEAK.deciding(max_false_positive_rate=smallest + 1e-6).decoder.true_positive_rate > 0


@pytest.mark.parametrize("normalization", Normalization)
@pytest.mark.parametrize("hashes", [1, 3])
def test_one_element_is_answered_as_a_batch_is(normalization: Normalization, hashes: int) -> None:
    """By the same answer, or the same error, whatever it is."""
    members = [f"User{number}@Example.com" for number in range(300)]
    view = release_view(members, FilterParameters(4096, hashes, seed=3), 6.0, normalization=normalization)
    asked: list[Any] = [
        *members[:100],
        *(f"other{number}@example.com" for number in range(100)),
        b"user1@example.com",
        "Ä@ä.example",
    ]
    assert [element in view for element in asked] == view.contains_many(asked).tolist()
    wrongs: list[Any] = ["", "x" * 5000, "\ud800", None, 7, b"\xff" if normalization is not Normalization.NONE else b""]
    for wrong in wrongs:
        with pytest.raises(InvalidInput) as one:
            assert wrong in view
        with pytest.raises(InvalidInput) as many:
            view.contains_many([wrong])
        assert str(one.value) == str(many.value)


def test_check_decides_by_posterior_and_costs() -> None:
    """The posterior is that of `posteriors`; the decision that of the smaller expected cost."""
    for element in (*MEMBERS[:20], *OTHERS[:20]):
        found = VIEW.check(element, 0.1, cost_false_positive=1.0, cost_false_negative=5.0)
        posterior = float(VIEW.posteriors([element], 0.1)[0])
        assert found.posterior == posterior
        assert found.member == (posterior * 5.0 > 1.0 - posterior)
        assert not found.foregone
    assert VIEW.check(MEMBERS[0], 0.0).member is False
    assert VIEW.check(OTHERS[0], 1.0).member is True


def test_check_says_when_nothing_was_to_be_learnt() -> None:
    """At ε = 1 and a prior of 1% no answer lifts the posterior above a half."""
    found = WEAK.check(MEMBERS[0], 0.01)
    assert (found.member, found.foregone) == (False, True)
    assert not WEAK.check(MEMBERS[0], 0.5).foregone


def test_check_refuses_what_is_no_prior_and_no_element() -> None:
    with pytest.raises(InvalidInput, match="prior"):
        VIEW.check(MEMBERS[0], 1.5)
    with pytest.raises(InvalidInput, match="element"):
        VIEW.check("", 0.5)
    with pytest.raises(InvalidInput, match="collection"):
        VIEW.filter("user1")
