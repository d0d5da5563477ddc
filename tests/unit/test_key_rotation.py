"""The life of signing keys: who signs when, what is kept, and what no change may leave behind."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.release.signing import MAX_SIGNATURES
from veilset.errors import FailedPrecondition, InvalidInput, NotFound
from veilset_server.state.keys import MAX_OVERLAP_SECONDS, SigningKey, new_key, retire, rotate

SECOND = 1_000_000
DAY = 86_400 * SECOND


def states(keys: list[SigningKey], now_us: int) -> list[str]:
    """Of each key, the newest first."""
    return [key.state(now_us) for key in keys]


def test_both_sign_during_the_overlap_and_then_only_the_new_one() -> None:
    """To the microsecond; the old public key is kept."""
    old, new = new_key(0), new_key(DAY)
    assert states([old], 10**17) == ["signing"]
    keys = rotate([old], new, DAY, 86_400)
    assert [key.public for key in keys] == [new.public, old.public]
    assert states(keys, DAY) == states(keys, 2 * DAY - 1) == ["signing", "retiring"]
    assert states(keys, 2 * DAY) == ["signing", "retired"]
    assert keys[1].private is not None, "it may still be needed"


def test_without_overlap_the_old_one_is_gone_at_once() -> None:
    """As after a leak."""
    keys = rotate([new_key(0)], new_key(DAY), DAY, 0)
    assert states(keys, DAY) == ["signing", "retired"]
    assert [key.private is None for key in keys] == [False, True]


def test_a_rotation_destroys_what_is_over_and_never_lengthens_a_life() -> None:
    """An earlier end stays; an end that is past takes the private key with it."""
    keys = rotate([new_key(0)], new_key(1), 1, 10)
    keys = rotate(keys, new_key(2), 5 * SECOND, 100)
    assert [key.retires_us for key in keys] == [None, 105 * SECOND, 10 * SECOND + 1]
    keys = rotate(keys, new_key(3), 50 * SECOND, 100)
    assert [key.private is None for key in keys] == [False, False, False, True]
    assert [key.retires_us for key in keys] == [None, 150 * SECOND, 105 * SECOND, 10 * SECOND + 1]


def test_a_key_is_retired_before_its_time() -> None:
    """And stays retired under the time it ended first; the newest and the unknown are refused."""
    keys = rotate([new_key(0)], new_key(1), 1, 10)
    ended = retire(keys, keys[1].key_id, 5 * SECOND)
    assert (ended[1].private, ended[1].retires_us) == (None, 5 * SECOND)
    assert retire(ended, keys[1].key_id, 9 * SECOND) == ended
    with pytest.raises(FailedPrecondition, match="newest"):
        retire(keys, keys[0].key_id, 5 * SECOND)
    with pytest.raises(NotFound, match="no key"):
        retire(keys, "0" * 16, 5 * SECOND)


@pytest.mark.parametrize("overlap", [-1, MAX_OVERLAP_SECONDS + 1, float("nan"), float("inf")])
def test_an_overlap_out_of_range_is_refused(overlap: float) -> None:
    """By its name."""
    with pytest.raises(InvalidInput) as refused:
        rotate([new_key(0)], new_key(1), 1, overlap)
    assert refused.value.field == "overlap"


def test_no_more_sign_than_a_release_can_carry() -> None:
    """Else readers would refuse it; once one has ended there is room again."""
    keys = [new_key(0)]
    for number in range(MAX_SIGNATURES - 1):
        keys = rotate(keys, new_key(number), number, 1000)
    with pytest.raises(FailedPrecondition, match="retire one"):
        rotate(keys, new_key(99), 99, 1000)
    keys = rotate(retire(keys, keys[-1].key_id, 99), new_key(99), 99, 1000)
    assert sum(key.signs(99) for key in keys) == MAX_SIGNATURES


STEPS = st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0, 1, 20, 100]), st.booleans()), max_size=7)


@given(STEPS)
def test_whatever_is_done_the_newest_signs_and_no_key_is_forgotten(steps: list[tuple[int, int, bool]]) -> None:
    """Times only go on; public keys stay, private keys never come back, and no retired key signs again."""
    now, keys = 0, [new_key(0)]
    history = [keys]
    for seconds, overlap, also_retire in steps:
        now += seconds * SECOND
        keys = rotate(keys, new_key(now), now, overlap)
        if also_retire and len(keys) > 1:
            keys = retire(keys, keys[-1].key_id, now)
        assert keys[0].state(now) == "signing"
        history.append(keys)
    for earlier, later in pairwise(history):
        found = {key.public: key for key in later}
        for key in earlier:
            assert found[key.public].private in (key.private, None)
            ends = [end for end in (key.retires_us, found[key.public].retires_us) if end is not None]
            assert ends == sorted(ends, reverse=True), "no life is lengthened"
