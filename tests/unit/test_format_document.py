"""docs/format.md is enough to write a reader: one written from it reads what the library writes, and answers alike."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor

import veilset
from harness.releases import SIGNER, generation, linear_parameters, release_bytes
from harness.shapes import FilterParameters
from vectors.normalizing import WHITE_SPACE
from vectors.reader import Generation, read_generation
from veilset._reader import redis_keys
from veilset._reader.sources import read_manifest
from veilset._service.spec import FIELDS, MAX_CHARACTERS, VERSION_FIELD
from veilset.core.elements.hashing import key_check
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.params import HashScheme, Normalization
from veilset.core.release.signing import MAX_MANIFEST_BYTES
from veilset.v1 import parameters_pb2, release_pb2

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "format.md").read_text()
PUBLIC = SIGNER.public_key().public_bytes_raw()
KEY = b"a secret of sixteen bytes or more"
MEMBERS = [f"Member{number}@Example.ORG" for number in range(300)]
OTHERS = [f"Other{number}@Example.ORG" for number in range(300)]
SHAPES = {
    "mmh3": FilterParameters(1003, 3, seed=5),
    "blake2b": FilterParameters(4096, 1, HashScheme.BLAKE2B, 1 << 31, key_check(KEY)),
    "short": FilterParameters(9, 8),
    "chunks": FilterParameters(8 * CHUNK_BYTES + 17, 4, seed=1),
}


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table behind a text."""
    table = DOCUMENT.split(heading, 1)[1].split("\n\n| ", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("kind", "profile"),
    [*((kind, Normalization.NONE) for kind in SHAPES), *(("mmh3", profile) for profile in list(Normalization)[1:])],
)
def test_the_documents_reader_answers_as_the_library(kind: str, profile: Normalization) -> None:
    """On a fresh release: every reading and every decision, the vector's last bits and second chunk included."""
    shape = SHAPES[kind]
    key = KEY if shape.scheme is HashScheme.BLAKE2B else None
    file = release_bytes(MEMBERS, shape, 6.0, normalization=profile, key=key)
    view, read = veilset.open(file, key=key), read_generation(file, PUBLIC)
    asked = MEMBERS + OTHERS
    answers = [answer for element in asked if (answer := read.ask(element, key or b""))]
    assert [answer.member for answer in answers] == view.contains_many(asked).tolist()
    assert [answer.score for answer in answers] == pytest.approx(view.scores(asked).tolist(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("capacity", [300, 1000, 2_300_000], ids=["full", "usual", "chunks"])
def test_the_documents_reader_reads_linear_releases(capacity: int) -> None:
    """Sections, columns filled up to words, and a vector of several chunks included."""
    file = release_bytes(MEMBERS, SHAPES["mmh3"], 3.0, encoding=linear_parameters(capacity, 3.0))
    view, read = veilset.open(file), read_generation(file, PUBLIC)
    asked = MEMBERS + OTHERS
    answers = [answer for element in asked if (answer := read.ask(element))]
    assert [answer.member for answer in answers] == view.contains_many(asked).tolist()
    assert [answer.score for answer in answers] == pytest.approx(view.scores(asked).tolist(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("encoding", ["bloom", "linear"])
def test_the_documents_reader_reads_generations(encoding: str) -> None:
    """Three increments, each with a vector of removed elements: any yes counts, unless it was removed."""
    file = b"".join(generation(encoding, MEMBERS))
    view, read = veilset.open(file), read_generation(file, PUBLIC)
    asked = MEMBERS + OTHERS
    answers = [answer for element in asked if (answer := read.ask(element))]
    assert [answer.member for answer in answers] == view.contains_many(asked).tolist()
    assert [answer.score for answer in answers] == pytest.approx(view.scores(asked).tolist(), rel=1e-9, abs=1e-9)


def test_the_documents_reader_refuses_wrong_generations() -> None:
    """A release missing, one too many, another in its place, and another order."""
    base, first, second, _ = generation("linear", MEMBERS)
    other_base, other_first, *_ = generation("linear", MEMBERS)
    assert len(read_generation(base + first + second, PUBLIC).parts) == 3
    for wrong in (
        [base, second],
        [second],
        [base, base],
        [base, first, first, second],
        [base, second, first],
        [other_base, first, second],
        [base, other_first, second],
        [base, other_first],
    ):
        with pytest.raises(ValueError, match="earlier"):
            read_generation(b"".join(wrong), PUBLIC)


def test_the_documents_reader_needs_the_secret() -> None:
    """A wrong one is noticed by its check value."""
    read = read_generation(release_bytes(MEMBERS, SHAPES["blake2b"], 6.0, key=KEY), PUBLIC)
    with pytest.raises(ValueError, match="the wrong secret"):
        read.ask("anybody", KEY[::-1])


def test_the_documents_reader_refuses_what_was_changed() -> None:
    """Any byte of the file, but what is only a name: the field of the key's name in a signature."""
    shape = FilterParameters(1003, 2, seed=3)
    file = release_bytes(MEMBERS, shape, 6.0)
    read = read_generation(file, PUBLIC)
    name = file.index(b"\x0a\x10")
    for index in range(len(file)):
        changed = bytearray(file)
        changed[index] ^= 1 << index % 8
        try:
            found: Generation | None = read_generation(bytes(changed), PUBLIC)
        except (ValueError, KeyError, AssertionError, IndexError):
            found = None
        assert found is None or (found == read and name <= index < name + 18), index
    for cut in (0, 7, 11, 40, len(file) - 1):
        with pytest.raises((ValueError, KeyError)):
            read_generation(file[:cut], PUBLIC)
    with pytest.raises(ValueError, match="trusted key"):
        read_generation(file, os.urandom(32))


@pytest.mark.parametrize(
    ("heading", "descriptor"),
    [
        ("The protobuf message `ReleaseHeader`", release_pb2.ReleaseHeader.DESCRIPTOR),
        ("`EarlierPart`:", release_pb2.EarlierPart.DESCRIPTOR),
        ("`HashParameters`:", parameters_pb2.HashParameters.DESCRIPTOR),
        ("`Encoding`:", parameters_pb2.Encoding.DESCRIPTOR),
        ("`BloomParameters`:", parameters_pb2.BloomParameters.DESCRIPTOR),
        ("`LinearParameters`:", parameters_pb2.LinearParameters.DESCRIPTOR),
        ("`PrivacyParameters`:", parameters_pb2.PrivacyParameters.DESCRIPTOR),
        ("`NoisyCount`:", release_pb2.NoisyCount.DESCRIPTOR),
        ("the protobuf message `SignedHeader`", release_pb2.SignedHeader.DESCRIPTOR),
        ("`Signature`:", release_pb2.Signature.DESCRIPTOR),
    ],
)
def test_the_tables_are_the_contract(heading: str, descriptor: Descriptor) -> None:
    """Every field with its number and its type."""
    kinds = {1: "double", 3: "int64", 4: "uint64", 8: "bool", 9: "string", 12: "bytes", 13: "uint32", 14: "enum"}
    expected = []
    for field in descriptor.fields:
        kind = field.message_type.name if field.message_type else kinds[field.type]
        expected.append([str(field.number), f"`{field.name}`", kind + (", repeated" if field.is_repeated else "")])
    assert [row[:3] for row in rows(heading)] == expected


def test_the_tables_of_names_are_the_programs() -> None:
    """Profiles, schemes, and the keys of a spec."""
    profiles = [(row[0], row[1].strip("`")) for row in rows("## 2 ")]
    assert profiles == [(str(number), profile.versioned) for number, profile in enumerate(Normalization, 1)]
    schemes = [(row[0], row[1].strip("`")) for row in rows("## 3 ")]
    assert schemes == [(str(number), str(scheme)) for number, scheme in enumerate(HashScheme, 1)]
    assert [row[0].strip("`") for row in rows("## 12 ")] == [VERSION_FIELD, *FIELDS]


def test_the_numbers_are_the_programs() -> None:
    """Lengths, limits, and the keys in Redis."""
    for number in (CHUNK_BYTES, 8 * CHUNK_BYTES, MAX_MANIFEST_BYTES, MAX_CHARACTERS):
        assert str(number) in DOCUMENT
    keys = [row[0].strip("`").replace("<set>", "members").replace("<seq>", "3") for row in rows("## 10 ")]
    written = [redis_keys.latest("members"), redis_keys.manifest("members", 3), redis_keys.chunk("members", 3, 7)]
    assert [key.replace("<i>", "7") for key in keys] == written
    assert redis_keys.channel("<set>") in DOCUMENT


def test_white_space_is_what_python_strips() -> None:
    """The document lists it, since languages differ."""
    stripped = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and not chr(code).strip())
    assert sorted(stripped) == sorted(WHITE_SPACE)
    listed = DOCUMENT.split("*White space* is", 1)[1].split("(U+200B", 1)[0]
    told: list[str] = []
    for first, last in re.findall(r"U\+([0-9A-F]{4})(?: to U\+([0-9A-F]{4}))?", listed):
        told.extend(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    assert told == sorted(WHITE_SPACE)


def test_the_file_is_manifest_and_bits() -> None:
    """Section 9, against what the library writes."""
    file = release_bytes(MEMBERS, SHAPES["mmh3"], 6.0)
    manifest = read_manifest(io.BytesIO(file))
    assert file == b"veilset\x01" + len(manifest).to_bytes(4, "little") + manifest + file[12 + len(manifest) :]
    assert np.array_equal(np.frombuffer(file[12 + len(manifest) :], dtype=np.uint8), veilset.open(file).vector)
