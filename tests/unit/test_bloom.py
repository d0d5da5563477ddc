"""The Bloom filter against sets of Python integers, one element at a time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilset.core import compiled
from veilset.core.elements.hashing import digests, positions
from veilset.core.encodings.bloom import filter as bloom
from veilset.core.encodings.bloom.filter import contains, insert
from veilset.core.params import FilterParameters

elements = st.lists(st.integers(0, 60).map(lambda i: b"element %d" % i), max_size=80)
shapes = st.builds(FilterParameters, bits=st.integers(8, 400), hashes=st.integers(1, 8), seed=st.integers(0, 9))
chunk_sizes = st.sampled_from([1, 2, 3, 7, 1000])


def empty(shape: FilterParameters) -> NDArray[np.uint8]:
    return np.zeros(shape.vector_bytes, dtype=np.uint8)


def built(shape: FilterParameters, chosen: list[bytes], chunk: int = bloom.CHUNK) -> tuple[NDArray[np.uint8], int]:
    """The vector after one insert of all, and what the insert returned."""
    vector = empty(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bloom, "CHUNK", chunk)
        new = insert(vector, shape, digests(chosen, shape.scheme, shape.seed))
    return vector, new


def plain(shape: FilterParameters, chosen: list[bytes], ones: set[int]) -> int:
    """Add the elements' positions to ``ones``, one element at a time; returns how many brought a new one."""
    new = 0
    for row in positions(digests(chosen, shape.scheme, shape.seed), shape.bits, shape.hashes).tolist():
        new += not ones.issuperset(row)
        ones.update(row)
    return new


@settings(max_examples=300)
@given(shapes, elements, chunk_sizes)
def test_insert_is_as_if_taken_one_by_one(shape: FilterParameters, chosen: list[bytes], chunk: int) -> None:
    """Bits, and the count of elements that set a new bit, which never exceeds that of distinct elements."""
    vector, new = built(shape, chosen, chunk)
    ones: set[int] = set()
    assert new == plain(shape, chosen, ones)
    assert new <= len(set(chosen))
    assert set(np.flatnonzero(np.unpackbits(vector)).tolist()) == ones


@settings(max_examples=200)
@given(shapes, elements, elements, chunk_sizes)
def test_new_elements_are_a_lower_bound_over_many_inserts(
    shape: FilterParameters, first: list[bytes], second: list[bytes], chunk: int
) -> None:
    """Also when elements come back later, and when a crash left some bits of them set."""
    vector = empty(shape)
    ones: set[int] = set()
    total = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bloom, "CHUNK", chunk)
        for batch in (first, second, first):
            new = insert(vector, shape, digests(batch, shape.scheme, shape.seed))
            assert new == plain(shape, batch, ones)
            total += new
    assert total <= len({*first, *second})
    torn = built(shape, first)[0] & np.uint8(0b10110010)
    assert insert(torn, shape, digests([*first, *second], shape.scheme, shape.seed)) <= len({*first, *second})


@settings(max_examples=500)
@given(shapes, elements, st.randoms(use_true_random=False), chunk_sizes)
def test_order_repetition_and_batches_leave_no_trace(
    shape: FilterParameters, chosen: list[bytes], shuffler: Random, chunk: int
) -> None:
    """Permuted, repeated and split at will, the same elements give the same bits."""
    wanted, _ = built(shape, chosen)
    changed = chosen + shuffler.choices(chosen, k=len(chosen)) if chosen else []
    shuffler.shuffle(changed)
    vector = empty(shape)
    while changed:
        size = shuffler.randint(1, len(changed))
        batch, changed = changed[:size], changed[size:]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bloom, "CHUNK", chunk)
            insert(vector, shape, digests(batch, shape.scheme, shape.seed))
    assert np.array_equal(vector, wanted)


@given(shapes, elements, elements)
def test_answers_are_those_of_the_positions(shape: FilterParameters, members: list[bytes], others: list[bytes]) -> None:
    """Members are always found; others exactly if all their positions are covered."""
    vector, _ = built(shape, members)
    hashed = digests([*members, *others], shape.scheme, shape.seed)
    answers = contains(vector, shape, hashed)
    assert answers[: len(members)].all()
    ones = set(np.flatnonzero(np.unpackbits(vector)).tolist())
    covered = [ones.issuperset(row) for row in positions(hashed, shape.bits, shape.hashes).tolist()]
    assert answers.tolist() == covered


def test_all_of_a_large_batch_counts() -> None:
    """Across the real chunk size, in a sparse filter: every element is new the first time and none the second."""
    shape = FilterParameters(1 << 28, 4)
    hashed = digests([b"%d" % i for i in range(2 * bloom.CHUNK + 5)])
    vector = empty(shape)
    assert insert(vector, shape, hashed) == len(hashed)
    assert insert(vector, shape, hashed) == 0
    assert contains(vector, shape, hashed).all()


@pytest.mark.parametrize("copies", [False, True], ids=["many elements", "one element many times"])
def test_an_insert_works_alike_on_any_vector(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much is sorted for members as for strangers, or a producer could time who is in the set."""
    shape = FilterParameters(1 << 16, 3)
    hashed = digests([b"%d" % (0 if copies else i) for i in range(500)])
    lengths: list[int] = []
    sort = np.sort

    def seen(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        lengths.append(values.size)
        return sort(values)

    monkeypatch.setattr(np, "sort", seen)
    monkeypatch.setattr(compiled, "kernels", lambda: None)
    for vector in (empty(shape), built(shape, [b"%d" % i for i in range(500)])[0], ~empty(shape)):
        lengths.clear()
        insert(vector, shape, hashed)
        assert lengths == [1500]
