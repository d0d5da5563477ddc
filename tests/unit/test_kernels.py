"""The compiled kernels give bit for bit what the plain code gives, and are loaded only where they pay."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.shapes import FilterParameters
from veilset._input.digests import digest_batch
from veilset.core import compiled
from veilset.core.compiled import read_only
from veilset.core.elements.hashing import digests, pack_digests
from veilset.core.elements.normalization import Element
from veilset.core.elements.packed import PackedElements, lay_out
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.bloom.response import perturb
from veilset.core.encodings.bloom.vectors import count_ones_per_element, positions
from veilset.core.encodings.interface import MemoryVector
from veilset.core.params import MAX_ELEMENT_BYTES, HashParameters, HashScheme, Normalization
from veilset.errors import InvalidInput

numba = pytest.importorskip("numba")

KERNELS = compiled.load()
SEEDS = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
LONGEST = 70

seeds = st.integers(0, 0xFFFFFFFF)
blobs = st.lists(st.binary(min_size=1, max_size=LONGEST), min_size=1, max_size=20)
elements = st.one_of(blobs, st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20))
shapes = st.builds(FilterParameters, st.integers(8, 5000), st.integers(1, 32))


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded in this file, and as before for the tests of others."""
    assert KERNELS is not None
    monkeypatch.setattr(compiled._State, "kernels", KERNELS)


def without_kernels(work: Any) -> Any:
    """What the plain code gives, or the error it raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "kernels", lambda saved_seconds=0.0: None)
        return outcome(work)


def outcome(work: Any) -> Any:
    """A result, or an error by its text."""
    try:
        return work()
    except InvalidInput as error:
        return error.message


def hash_packed(packed: PackedElements, seed: int) -> bytes:
    """By the kernel itself."""
    assert KERNELS is not None
    out = np.empty(len(packed), dtype=np.uint64)
    data, starts, ends = packed.data, packed.starts, packed.ends
    KERNELS.elements.hash_packed(read_only(data), read_only(starts), read_only(ends), seed, out)
    return pack_digests(out)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_length_and_tail(seed: int) -> None:
    """0 to 70 bytes: no block to four, every tail, each at the very end of its buffer and in its midst; all bytes high too."""
    for content in (bytes(range(7, 7 + LONGEST)), b"\xff" * LONGEST):
        cases = [content[:length] for length in range(LONGEST + 1)]
        wanted = b"".join(mmh3.mmh3_x64_128_digest(case, seed)[:8] for case in cases)
        assert hash_packed(lay_out(cases), seed) == wanted
        alone = b"".join(hash_packed(PackedElements(*_alone(case)), seed) for case in cases)
        assert alone == wanted


def _alone(case: bytes) -> tuple[Any, Any, Any]:
    return np.frombuffer(case, dtype=np.uint8), np.zeros(1, dtype=np.int64), np.array([len(case)])


@given(blobs, seeds, st.binary(max_size=20), st.binary(max_size=20))
def test_hash_is_that_of_mmh3(cases: list[bytes], seed: int, before: bytes, behind: bytes) -> None:
    """Wherever the element lies, whatever lies around it, in whatever order."""
    packed = lay_out([before, *cases, behind])
    chosen = PackedElements(packed.data, packed.starts[-2:0:-1].copy(), packed.ends[-2:0:-1].copy())
    wanted = [mmh3.mmh3_x64_128_digest(case, seed)[:8] for case in reversed(cases)]
    assert hash_packed(chosen, seed) == b"".join(wanted)


@given(st.lists(st.sampled_from([9, 10, 11, 0, 0x80, 0x8A, 255]), max_size=40), st.integers(0, 255), st.integers(0, 45))
def test_bytes_are_found_where_they_are(content: list[int], value: int, room: int) -> None:
    """Next to bytes that differ from them by one or in the top bit, at every place of a word; no more than there is room for."""
    assert KERNELS is not None
    data = np.array(content, dtype=np.uint8)
    around = np.full(room + 1, -1, dtype=np.int64)
    places = around[:room]
    wanted = np.flatnonzero(data == value)
    assert KERNELS.elements.find_byte(read_only(data), value, places) == len(wanted)
    assert places[: len(wanted)].tolist() == wanted[:room].tolist()
    assert around[room] == -1


@given(elements, st.sampled_from(Normalization), st.sampled_from(HashScheme), seeds)
def test_batches_have_the_same_digests_and_the_same_errors(
    batch: list[Element], profile: Normalization, scheme: HashScheme, seed: int
) -> None:
    """For lists and packed elements, under every profile and scheme."""
    hashing = HashParameters(scheme, seed)
    key = b"k" * 16 if scheme is HashScheme.BLAKE2B else None
    forms: list[Any] = [batch, lay_out([e.encode() if isinstance(e, str) else e for e in batch])]
    for form in forms:
        found = outcome(lambda form=form: digest_batch(form, 0, hashing, profile, key).tobytes())
        assert found == without_kernels(lambda: digest_batch(batch, 0, hashing, profile, key).tobytes())


@pytest.mark.parametrize(
    "wrong",
    ["", "x" * (MAX_ELEMENT_BYTES + 1), "\ud800", None, 7, bytearray(b"x")],
    ids=["empty", "long", "surrogate", "none", "int", "array"],
)
def test_what_is_no_element_is_refused_alike(wrong: Any) -> None:
    """With its place."""
    hashing = HashParameters()
    batch = ["a", "b", wrong, "c"]
    refused = outcome(lambda: digest_batch(batch, 10, hashing, Normalization.NONE, None))
    assert isinstance(refused, str)
    assert refused == without_kernels(lambda: digest_batch(batch, 10, hashing, Normalization.NONE, None))
    assert "index 12" in refused


@given(shapes, blobs, blobs)
def test_inserts_are_the_same(shape: FilterParameters, members: list[bytes], more: list[bytes]) -> None:
    """The vector, the second time too."""
    hashed = [digests(batch, shape.scheme, shape.seed) for batch in (members, more + members)]
    vector, plain = (np.zeros(shape.vector_bytes, dtype=np.uint8) for _ in range(2))
    for batch in hashed:
        vectors.insert(vector, shape.bits, shape.hashes, batch)
        without_kernels(lambda batch=batch: vectors.insert(plain, shape.bits, shape.hashes, batch))
    assert np.array_equal(vector, plain)


@given(st.integers(1, 1 << 63), st.integers(1, 300), st.integers(0, 255), st.integers(0, 1 << 32))
def test_noise_is_the_same(threshold: int, length: int, open_share: int, seed: int) -> None:
    """From one stream, whether few, many or all bits are left open until their last 56 random bits; ties included."""
    bits = 8 * length

    def stream() -> Any:
        tied, ready = np.random.default_rng(seed), np.random.default_rng(seed + 1)
        planes = iter(range(63, 55, -1))

        def random_bytes(count: int) -> bytes:
            plane = next(planes, None)
            if plane is None:
                tail = threshold & ((1 << 56) - 1)
                near = ready.integers(-1, 2, count // 8)
                return np.array([((tail + int(step)) % (1 << 56)) << 8 for step in near], dtype="<u8").tobytes()
            as_threshold = 0xFF * (threshold >> plane & 1)
            noise = tied.integers(0, 256, count, dtype=np.uint8)
            return np.where(ready.integers(0, 256, count) < open_share, noise, as_threshold).astype(np.uint8).tobytes()

        return random_bytes

    vector = np.zeros(length, dtype=np.uint8)
    noisy = perturb(vector, bits, threshold, stream())
    assert np.array_equal(noisy, without_kernels(lambda: perturb(vector, bits, threshold, stream())))


@pytest.mark.parametrize("bits", [1 << 33, (1 << 35) - 1])
def test_positions_beyond_32_bits_are_the_same(bits: int) -> None:
    """In the vector that a kernel would see if there were memory for it: the arithmetic alone."""
    assert KERNELS is not None
    hashed = digests([b"%d" % i for i in range(2000)])
    wanted = positions(hashed, bits, 2)
    for i in range(2):
        found = [int(KERNELS.bloom._position(digest, i, np.uint64(bits))) for digest in hashed]
        assert found == wanted[:, i].tolist()


@given(shapes, blobs, st.data())
def test_readings_are_the_same(shape: FilterParameters, asked: list[bytes], data: st.DataObject) -> None:
    """Ones and distinct positions of each element, coinciding positions included."""
    content = data.draw(st.binary(min_size=shape.vector_bytes, max_size=shape.vector_bytes))
    vector = np.frombuffer(content, dtype=np.uint8)
    hashed = digests(asked, shape.scheme, shape.seed)
    found = positions(hashed, shape.bits, shape.hashes)
    readings = np.unpackbits(vector)[found.astype(np.intp)].astype(np.bool_)
    ones, distinct = count_ones_per_element(found, readings)
    wanted = distinct * (shape.hashes + 1) + ones
    asked_of = MemoryVector(vector)
    assert np.array_equal(vectors.read(shape.bits, shape.hashes, asked_of, hashed), wanted)
    assert np.array_equal(without_kernels(lambda: vectors.read(shape.bits, shape.hashes, asked_of, hashed)), wanted)


@pytest.mark.parametrize("length", [124, 126])
def test_a_vector_of_another_length_is_refused(length: int) -> None:
    """Kernels look at no bounds, so it is done before."""
    hashed, vector = digests([b"a"]), np.zeros(length, dtype=np.uint8)
    for work in (vectors.insert, lambda v, m, k, h: vectors.read(m, k, MemoryVector(v), h)):
        with pytest.raises(ValueError, match="vector"):
            work(vector, 1000, 3, hashed)


def test_elements_outside_of_their_buffer_are_refused() -> None:
    """Before the kernel would read there."""
    data = np.zeros(10, dtype=np.uint8)
    for start, end in ((-1, 3), (8, 11), (12, 13)):
        packed = PackedElements(data, np.array([start]), np.array([end]))
        with pytest.raises(ValueError, match="outside"):
            digest_batch(packed, 0, HashParameters(), Normalization.NONE, None)


def test_they_are_loaded_once_they_would_have_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for little work, not again, and never where numba is missing."""
    for name, value in (("kernels", None), ("unavailable", False), ("missed_seconds", 0.0)):
        monkeypatch.setattr(compiled._State, name, value)
    assert compiled.kernels(compiled.LOADING_SECONDS * 0.6) is None
    assert compiled.kernels(compiled.LOADING_SECONDS * 0.6) is not None
    assert compiled.kernels() is not None
    monkeypatch.setattr(compiled._State, "kernels", None)
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    assert compiled.kernels(2 * compiled.LOADING_SECONDS) is None
    assert compiled._State.unavailable


def test_a_short_job_loads_nothing_compiled() -> None:
    """A thousand elements hashed, inserted and asked for: numba, which takes its time, stays out of the process."""
    program = """
import sys, numpy as np
from veilset.core.encodings.bloom import vectors
from veilset.core.encodings.interface import MemoryVector
from veilset._input.digests import digest_batch
from veilset.core.params import HashParameters, Normalization
hashed = digest_batch([f"element {i}" for i in range(1000)], 0, HashParameters(), Normalization.NONE, None)
vector = np.zeros(1250, dtype=np.uint8)
vectors.insert(vector, 10_000, 3, hashed)
vectors.read(10_000, 3, MemoryVector(vector), hashed)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_a_folder_to_keep_them_in_they_are_compiled_anew(tmp_path: Any) -> None:
    """As in a container whose file system cannot be written to."""
    program = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from veilset.core.kernels import kernel
@kernel
def twice(value):
    return 2 * value
assert twice(21) == 42
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
