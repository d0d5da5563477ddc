"""Linear vectors: rows, the kernels against the plain reference, what is asked of sorted digests, and every way to read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.programs import environment
from veilset.core import compiled
from veilset.core.encodings.interface import CHUNK_BYTES, MemoryVector
from veilset.core.encodings.linear import encode as encoding
from veilset.core.encodings.linear import rows as linear_rows
from veilset.core.encodings.linear.encode import encode
from veilset.core.encodings.linear.parameters import SECTION_COLUMNS, LinearParameters
from veilset.core.encodings.linear.rows import first_digest, row, rows
from veilset.errors import InvalidInput

QUARTER = 1 << 62
SHAPES = [
    # columns, band, planes, elements
    (128, 128, 1, 50),
    (1000, 128, 4, 900),
    (777, 100, 3, 700),
    (300, 64, 5, 290),
    (200, 63, 2, 150),
    (9, 3, 2, 5),
    (5, 5, 1, 4),
    (70, 65, 32, 60),
    (3000, 128, 3, 6000),
]
GOLDEN = Path(__file__).parents[1] / "vectors" / "linear.json"


def stream(text: str) -> Callable[[int], bytes]:
    """A stream of bytes that is the same for the same text."""
    position = 0
    digest = hashlib.shake_256(text.encode())

    def take(length: int) -> bytes:
        nonlocal position
        position += length
        return digest.digest(position)[-length:] if length else b""

    return take


def some_digests(count: int, seed: int = 1) -> NDArray[np.uint64]:
    """Distinct and sorted."""
    return np.unique(np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64))


def readings(
    parameters: LinearParameters, vector: bytes, digests: NDArray[np.uint64], monkeypatch: pytest.MonkeyPatch
) -> NDArray[np.uint8]:
    """What every way to read says, if they agree: kernel, numpy, and one digest after the other without numpy."""
    memory = MemoryVector(np.frombuffer(vector, np.uint8))
    assert compiled.load() is not None
    by_kernel = parameters.read(memory, digests)
    with monkeypatch.context() as patched:
        patched.setattr(linear_rows, "kernels", lambda _: None)
        assert parameters.read(memory, digests).tolist() == by_kernel.tolist()
    assert [parameters.read_one(memory, digest) for digest in digests.tolist()] == by_kernel.tolist()
    return np.asarray(by_kernel)


def test_rows_are_those_of_the_independent_generator() -> None:
    for known in json.loads(GOLDEN.read_text())["rows"]:
        parameters = LinearParameters(known["columns"], known["band"], 1, QUARTER)
        found = row(parameters, int(known["digest"], 16))
        assert (found.column, f"{found.coefficients:x}") == (known["first"], known["coefficients"]), known


@pytest.mark.parametrize("columns", [128, 1 << 22, 3 << 22, 5 * 64 * 65_000])
def test_rows_of_many_digests_are_rows_of_each(columns: int) -> None:
    parameters = LinearParameters(columns, 128, 1, QUARTER)
    digests = np.concatenate([some_digests(300), np.array([0, 1, (1 << 64) - 1], np.uint64)])
    first, low, high = rows(parameters, digests)
    found = [(f, h << 64 | w) for f, w, h in zip(first.tolist(), low.tolist(), high.tolist(), strict=True)]
    assert found == [tuple(row(parameters, digest)) for digest in digests.tolist()]


@pytest.mark.parametrize("columns", [1 << 22, 2 << 22, 5 * 64 * 65536])
def test_sorted_digests_are_sorted_rows_within_their_section(columns: int) -> None:
    parameters = LinearParameters(columns, 128, 1, QUARTER)
    edges = {first_digest(parameters, section) + step for section in range(parameters.sections) for step in (-1, 0)}
    digests = np.union1d(some_digests(2000), np.array(sorted(edges - {-1}), np.uint64))
    first, _, _ = rows(parameters, digests)
    assert np.all(np.diff(first.astype(np.int64)) >= 0)
    of = parameters.section_columns
    assert np.all(first % np.uint64(of) + np.uint64(128) <= np.uint64(of))  # no row leaves its section
    for section in range(1, parameters.sections):
        edge = first_digest(parameters, section)
        assert [row(parameters, edge - step).column // of for step in (1, 0)] == [section - 1, section]


@pytest.mark.parametrize(("columns", "band", "planes", "elements"), SHAPES)
def test_kernels_equal_the_plain_reference(
    columns: int, band: int, planes: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = LinearParameters(columns, band, planes, QUARTER)
    digests = some_digests(elements)
    plain = b"".join(encode(parameters, [digests], stream("a"), compiled=False))
    assert plain == b"".join(encode(parameters, [digests], stream("a")))
    assert len(plain) == parameters.vector_bytes
    asked = np.concatenate([digests, some_digests(200, seed=2)])
    readings(parameters, plain, asked, monkeypatch)


def test_sections_are_solved_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several short sections, encoded by both and read in all ways."""
    monkeypatch.setattr("veilset.core.encodings.linear.parameters.SECTION_COLUMNS", 256)
    parameters = LinearParameters(192 * 3, 128, 2, QUARTER)
    assert parameters.sections == 3
    digests = some_digests(400)
    chunks = [digests[:7], digests[7:9], digests[9:]]
    sections = list(encoding.solved_sections(parameters, chunks, stream("b"), compiled=False))
    assert [len(piece) for piece in sections] == [192 * 2 // 8] * 3
    vector = b"".join(sections)
    assert vector == b"".join(encode(parameters, chunks, stream("b")))
    readings(parameters, vector, digests, monkeypatch)


def test_every_kept_digest_reads_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = LinearParameters(1000, 128, 8, QUARTER)
    digests = some_digests(900)
    vector = b"".join(encode(parameters, [digests], stream("c")))
    (kept,) = encoding.keep_some([digests], QUARTER, stream("c"))
    assert 0 < len(kept) < len(digests)
    assert readings(parameters, vector, kept, monkeypatch).all()
    assert not readings(parameters, vector, np.setdiff1d(digests, kept), monkeypatch).all()


def test_bits_behind_the_last_column_are_zero() -> None:
    parameters = LinearParameters(130, 128, 3, QUARTER)
    vector = b"".join(encode(parameters, [some_digests(3)], stream("d")))
    words = np.frombuffer(vector, np.uint64).reshape(-1, 3)
    assert not np.any(words[-1] >> np.uint64(130 - 128))


def test_a_vector_comes_in_pieces_of_a_chunk() -> None:
    parameters = LinearParameters(2_000_000, 128, 11, QUARTER)
    sizes = [len(piece) for piece in encode(parameters, [], np.random.default_rng(1).bytes)]
    assert sizes[:-1] == [CHUNK_BYTES] * (parameters.vector_bytes // CHUNK_BYTES)
    assert sum(sizes) == parameters.vector_bytes


def test_an_empty_set_gives_a_uniform_vector() -> None:
    parameters = LinearParameters(128, 128, 1, QUARTER)
    assert b"".join(encode(parameters, [], stream("e"))) == stream("e")(16)


@pytest.mark.parametrize(
    "chunks",
    [[[5, 5]], [[5, 4]], [[1, 5], [5, 6]], [[1, 5], [2]], [[0], [0]]],
    ids=["twice", "down", "next", "back", "0"],
)
def test_digests_that_do_not_rise_are_refused(chunks: list[list[int]]) -> None:
    """Across chunks, too: a digest that came twice would toss two coins and cost twice the epsilon."""
    parameters = LinearParameters(128, 128, 1, QUARTER)
    with pytest.raises(InvalidInput, match="strictly increasing"):
        list(encode(parameters, [np.array(chunk, np.uint64) for chunk in chunks], stream("f")))


def test_random_bytes_taken_depend_on_the_counts_alone() -> None:
    """One coin for every digest, one bit for every column and plane; nothing by what the digests are."""
    parameters = LinearParameters(1000, 128, 4, QUARTER)
    for seed in range(5):
        taken: list[int] = []
        source = stream(str(seed))

        def counted(length: int, taken: list[int] = taken, source: Callable[[int], bytes] = source) -> bytes:
            taken.append(length)
            return source(length)

        list(encode(parameters, [some_digests(800, seed)], counted))
        assert taken == [8 * 800, 16 * 8 * 4]


def test_a_section_is_handed_over_before_the_next_is_read() -> None:
    """So memory is bounded by a section, whatever the length of the vector."""
    parameters = LinearParameters(2 * SECTION_COLUMNS, 128, 1, QUARTER)
    halves = [np.arange(10, dtype=np.uint64), np.arange(10, dtype=np.uint64) + np.uint64(1 << 63)]
    came: list[str] = []

    def chunks() -> Iterator[NDArray[np.uint64]]:
        for half in halves:
            came.append("digests")
            yield half

    for piece in encoding.solved_sections(parameters, chunks(), np.random.default_rng(1).bytes, compiled=True):
        came += [f"{len(piece)} bytes"]
    assert came == ["digests", "digests", "524288 bytes", "524288 bytes"]


_ENCODE = """
import os
import numpy as np
from harness.peak_memory import own_peak_bytes
from veilset.core import compiled
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, PrivacyParameters

elements, part = 10**8, 1 << 18
privacy = PrivacyParameters(3.0, 0.0, Adjacency.ADD_REMOVE)
parameters = LinearParameters.plan(PlanRequest(elements, privacy)).parameters
random, parts = np.random.default_rng(), elements // part
compiled.load()
before = own_peak_bytes()
chunks = (
    np.unique(random.integers((i << 64) // parts, (i + 1 << 64) // parts, part, dtype=np.uint64)) for i in range(parts)
)
length = sum(len(piece) for piece in parameters.encode(chunks, os.urandom))
print(length == parameters.vector_bytes, own_peak_bytes() - before)
"""


@pytest.mark.large
@pytest.mark.timeout(600)
def test_encoding_10_8_elements_takes_256_mib_beside_the_vector() -> None:
    """Which is not even held: pieces go as they are made."""
    settings = environment({"PYTHONPATH": str(Path(__file__).parents[1])})
    done = subprocess.run([sys.executable, "-c", _ENCODE], env=settings, capture_output=True, text=True, check=True)
    whole, peak = done.stdout.split()
    assert whole == "True"
    assert int(peak) <= 256 << 20
