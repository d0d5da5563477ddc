"""The JavaScript reader (client/js) under Node: the golden vectors, the library's own answers, and hostile files."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veilset
from harness.forged_releases import hostile_releases
from harness.javascript import SOURCES, reader_in
from harness.releases import PUBLIC_KEY, generation, linear_parameters, release_bytes
from harness.shapes import FilterParameters
from veilset.core.elements.hashing import key_check
from veilset.core.elements.normalization import normalize
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import HashScheme, Normalization
from veilset.errors import InvalidInput

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
KEY = b"a secret of sixteen bytes or more"
QUESTIONS = {"bloom": 100_000, "linear": 100_000}
FEW_QUESTIONS = 4_000
Call = Callable[[str, Sequence[dict[str, Any]]], list[Any]]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reader and its dependencies."""
    try:
        return reader_in(tmp_path_factory.mktemp("reader"))
    except FileNotFoundError as missing:
        reason = str(missing)
        return pytest.fail(reason) if os.environ.get("VEILSET_TEST_REQUIRE_NODE") else pytest.skip(reason)


@pytest.fixture(scope="module")
def call(reader: Path) -> Call:
    """Call a function of calls.mjs once for each set of arguments."""
    shutil.copy(Path(__file__).with_name("calls.mjs"), reader)

    def run(name: str, given: Sequence[dict[str, Any]]) -> list[Any]:
        command = ["node", str(reader / "calls.mjs")]
        asked = json.dumps([[name, arguments] for arguments in given])
        done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert len(found) == len(given)
        return list(found)

    return run


def golden(name: str) -> Any:
    """A file of golden values."""
    return json.loads((VECTORS / name).read_text())


def test_digests_and_check_values_are_golden(call: Call) -> None:
    """Both schemes, every length of a last block."""
    vectors = golden("digests.json")
    assert call("digest", vectors["digests"]) == [vector["digest"] for vector in vectors["digests"]]
    assert call("keyCheck", vectors["key_checks"]) == [vector["key_check"] for vector in vectors["key_checks"]]


def test_positions_and_rows_are_golden(call: Call) -> None:
    """Lengths beyond 2^32, several sections, bands that are no whole words."""
    vectors = golden("positions.json")["positions"]
    assert call("positions", vectors) == [vector["positions"] for vector in vectors]
    rows = golden("linear.json")["rows"]
    assert call("row", rows) == [[row["first"], row["coefficients"]] for row in rows]


def test_normalization_is_golden(call: Call) -> None:
    """What is refused included."""
    vectors = golden("normalization.json")["normalization"]
    given = [{"profile": each["profile"], "texts": [each["text"] * each["times"]]} for each in vectors]
    expected = [None if each["element"] is None else each["element"] * each["times"] for each in vectors]
    assert call("normalize", given) == [[each] for each in expected]


@pytest.mark.parametrize("profile", [Normalization.TRIM_CASEFOLD, Normalization.NFC, Normalization.EMAIL])
def test_every_character_is_normalized_as_in_python(call: Call, profile: Normalization) -> None:
    """Those that both sides' tables of Unicode know: in front, at the end, and as a run of combining marks."""
    step = 11 if profile is Normalization.EMAIL else 1
    codes = [code for code in range(0, 0x110000, step) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    known = [code for code, yes in zip(codes, call("assigned", [{"codes": codes}])[0], strict=True) if yes]
    ends = "@example.org" if profile is Normalization.EMAIL else ""
    texts = [f"{chr(code)}B{chr(code)}{ends}" for code in known]
    texts += [chr(code) * 31 + ends for code in known if unicodedata.category(chr(code))[0] == "M"]
    assert call("normalize", [{"profile": profile.versioned, "texts": texts}])[0] == [
        normalized(text, profile) for text in texts
    ]


def test_domains_are_encoded_as_in_python(call: Call) -> None:
    """Random labels: capitals, umlauts, joiners, two directions, symbols, full-width letters, Punycode right and wrong."""
    drawn = random.Random(20)  # noqa: S311 - the same questions every time
    letters = [*"abzABZ019-_.", *"äöüßςσΣéÉıİ", *"日本語ｅｘ。．", *"אבגدعر٣", *"क्षय", *"☃♥℡①≠´\u2044"]
    letters += ["\u200c", "\u200d", "\u00ad", "\u0301", "xn--", "bcher-kva", "xn--bcher-kva", "xn--a", "XN--BCHER-KVA"]
    domains = ["".join(drawn.choices(letters, k=drawn.randint(1, 7))) for _ in range(4_000)]
    texts = [f"a@{domain}.org" for domain in domains] + [f"a@{domain}" for domain in domains]
    found = call("normalize", [{"profile": "email-1", "texts": texts}])[0]
    expected = [normalized(text, Normalization.EMAIL) for text in texts]
    differing = [(text, got, due) for text, got, due in zip(texts, found, expected, strict=True) if got != due]
    assert not differing
    assert sum(each is not None for each in expected) > 400


def normalized(text: str, profile: Normalization) -> str | None:
    """The library's bytes in hexadecimal digits, None for a text that it refuses."""
    try:
        return normalize([text], profile)[0].hex()
    except InvalidInput:
        return None


@pytest.mark.parametrize("name", ["plain", "keyed", "linear", "generation-bloom", "generation-linear"])
def test_golden_releases_answer(call: Call, name: str) -> None:
    """With every key that signed."""
    told = golden(f"release-{name}.json")
    texts = [answer["text"] for answer in told["answers"]]
    path = str(VECTORS / f"release-{name}.veilset")
    keys = [signature["public_key"] for signature in told["signatures"]]
    asked = {"path": path, "secret": told["key"], "texts": texts, "prior": 0.5}
    for found in call("ask", [{**asked, "publicKeys": [key]} for key in keys]):
        assert found["scores"] == pytest.approx([answer["score"] for answer in told["answers"]], abs=1e-8)
        assert [bool(member) for member in found["members"]] == [answer["member"] for answer in told["answers"]]


ENCODINGS: dict[str, tuple[FilterParameters, LinearParameters | None, Normalization]] = {
    "bloom": (FilterParameters(400_003, 7, seed=9), None, Normalization.TRIM_CASEFOLD),
    "two chunks": (FilterParameters((8 << 20) + 17, 1, seed=1 << 31), None, Normalization.NONE),
    "coinciding": (FilterParameters(41, 32), None, Normalization.NFC),
    "keyed": (
        FilterParameters(90_001, 3, HashScheme.BLAKE2B, 4_000_000_000, key_check(KEY)),
        None,
        Normalization.EMAIL,
    ),
    "linear": (FilterParameters(8, 1, seed=3), linear_parameters(60_000, 3.0), Normalization.NFC),
    "beyond its capacity": (FilterParameters(8, 1), LinearParameters(1_700, 128, 3, 1 << 61), Normalization.NONE),
    "saturated": (FilterParameters(8, 1), linear_parameters(1_000, 2.0), Normalization.NONE),
    "sections": (FilterParameters(8, 1), LinearParameters(2 * 4_194_304, 128, 3, 1 << 60), Normalization.NONE),
    "short rows": (FilterParameters(8, 1), LinearParameters(60_001, 37, 32, 1 << 62), Normalization.NONE),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_random_questions_are_answered_as_in_python(call: Call, tmp_path: Path, name: str) -> None:
    """Half of them are members."""
    shape, encoding, normalization = ENCODINGS[name]
    drawn = random.Random(name)  # noqa: S311 - the same questions every time
    texts = [f"Ä{drawn.getrandbits(90):x}@Exämple.org " for _ in range(QUESTIONS.get(name, FEW_QUESTIONS))]
    key = KEY if shape.scheme is HashScheme.BLAKE2B else None
    members = texts[::2][: 300 if name == "short rows" else None]
    data = release_bytes(members, shape, 3.0, normalization=normalization, key=key, encoding=encoding)
    (path := tmp_path / "members.veilset").write_bytes(data)
    asked = {"path": str(path), "publicKeys": [PUBLIC_KEY.hex()], "secret": (key or b"").hex(), "texts": texts}
    (found,) = call("ask", [{**asked, "prior": 0.01, "setName": "members", "minSequence": 1}])
    view = veilset.open(data, key=key)
    assert found["members"] == view.contains_many(texts).astype(int).tolist()
    assert found["has"] == [bool(member) for member in found["members"][:100]]
    np.testing.assert_allclose(found["scores"], view.scores(texts), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["posteriors"], view.posteriors(texts, 0.01), rtol=1e-9)
    assert found["answers"] == [found["members"][:100], found["scores"][:100]]
    rates = [view.decoder.true_positive_rate, view.decoder.false_positive_rate]
    np.testing.assert_allclose(found["rates"], rates, rtol=1e-9, atol=1e-15)
    assert found["saturated"] == view.decoder.saturated
    assert found["saturated"] or name != "saturated"
    assert (found["setName"], found["sequence"], found["limitDelta"]) == ("members", 1, "0")


@pytest.mark.parametrize("encoding", ["linear", "bloom"])
def test_generations_are_answered_as_in_python(call: Call, tmp_path: Path, encoding: str) -> None:
    """A base, three increments and their removals; a file without one of them, or with one twice, is refused."""
    elements = [f"user{number}" for number in range(4000)]
    parts = generation(encoding, elements)
    data = b"".join(parts)
    (path := tmp_path / "members.veilset").write_bytes(data)
    texts = elements + [f"other{number}" for number in range(4000)]
    asked = {"publicKeys": [PUBLIC_KEY.hex()], "secret": ""}
    (found,) = call("ask", [{**asked, "path": str(path), "texts": texts, "prior": 0.01}])
    view = veilset.open(data)
    assert (len(view.parts), found["sequence"], found["saturatedParts"]) == (4, 4, [])
    assert found["members"] == view.contains_many(texts).astype(int).tolist()
    assert found["has"] == [bool(member) for member in found["members"][:100]]
    np.testing.assert_allclose(found["scores"], view.scores(texts), rtol=1e-10, atol=1e-10)
    rates = [view.decoder.true_positive_rate, view.decoder.false_positive_rate]
    np.testing.assert_allclose(found["rates"], rates, rtol=1e-9)
    broken = [parts[1:], parts[:1] + parts[2:], [*parts[:2], parts[1], *parts[2:]], [*parts, parts[0]], parts[3:]]
    files = [base64.b64encode(b"".join(some)).decode() for some in broken]
    for outcome in call("open", [{**asked, "file": file} for file in files]):
        assert outcome.startswith("ReleaseRejected: "), outcome


@pytest.mark.parametrize("name", ["plain", "linear"])
def test_damaged_files_are_refused(call: Call, name: str) -> None:
    """Every byte changed in two ways, but for the signature's name of its key, which nothing depends on; every length."""
    told = golden(f"release-{name}.json")
    (signature,) = told["signatures"]
    path = VECTORS / f"release-{name}.veilset"
    given = [{"path": str(path), "publicKeys": [signature["public_key"]]}]
    name_starts = path.read_bytes().index(signature["key_id"].encode())
    (opened,) = call("damage", given)
    assert {at for at, _ in opened} <= set(range(name_starts, name_starts + len(signature["key_id"])))
    assert {outcome for _, outcome in opened} == {"opened"}
    assert call("cut", given) == [[]]


def test_hostile_headers_are_refused(call: Call) -> None:
    """Signed by a trusted key, and wrong."""
    releases = dict(hostile_releases())
    files = [{"file": base64.b64encode(data).decode(), "publicKeys": [PUBLIC_KEY.hex()]} for data in releases.values()]
    for name, outcome in zip(releases, call("open", files), strict=True):
        assert outcome.startswith("ReleaseRejected: "), name


def test_wrong_keys_and_demands_are_refused(call: Call) -> None:
    """In sentences that name what is wrong."""
    file = base64.b64encode((VECTORS / "release-keyed.veilset").read_bytes()).decode()
    told = golden("release-keyed.json")
    keys = [told["signatures"][1]["public_key"]]
    right = {"file": file, "publicKeys": keys, "secret": told["key"]}
    wrong: dict[str, dict[str, Any]] = {
        "ReleaseRejected: manifest: there is no valid signature by a trusted key": {"publicKeys": ["11" * 32]},
        "InvalidInput: publicKeys: has to name at least one trusted key": {"publicKeys": []},
        "InvalidInput: publicKeys: each has to be 32 bytes, or 64 hexadecimal digits": {"publicKeys": ["11"]},
        "InvalidInput: secret: is not that of this release": {"secret": KEY.hex()},
        "InvalidInput: secret: is needed": {"secret": ""},
        "InvalidInput: secret: has to be 16 to 64 bytes": {"secret": "11"},
        "ReleaseRejected: release golden-keyed/1: is not of the set customers": {"setName": "customers"},
        "ReleaseRejected: release golden-keyed/1: is older than 2": {"minSequence": 2},
    }
    outcomes = call("open", [right, *({**right, **change} for change in wrong.values())])
    assert outcomes[0] == "opened"
    for outcome, expected in zip(outcomes[1:], wrong, strict=True):
        assert outcome.startswith(expected)
    (seen,) = call("look", [right])
    detected = veilset.open(VECTORS / "release-keyed.veilset").decoder.true_positive_rate
    assert seen[:2] == ["golden-keyed", pytest.approx(detected)]
    assert seen[2].startswith("InvalidInput: secret: is needed to ask")


def test_the_pages_reader_is_made_of_these_sources(reader: Path) -> None:
    """Else: cd client/js, npm install, npm run bundle. It holds nothing that could send what is asked."""
    (made := reader / "made").mkdir()
    subprocess.run(["node", "bundle.mjs", str(made)], cwd=reader, check=True)
    for name in ("reader.js", "LICENSES.txt"):
        assert (made / name).read_bytes() == (ROOT / "client" / "veilset" / "_report" / "site" / name).read_bytes()
    sending = r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|importScripts|\beval\("
    assert not re.search(sending, (made / "reader.js").read_text())


def test_types_name_what_the_reader_has(reader: Path) -> None:
    """Every export, and every member of a release."""
    script = (
        "import * as reader from 'veilset';"
        "console.log(JSON.stringify([Object.keys(reader), Object.getOwnPropertyNames(reader.Release.prototype)]))"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", script], cwd=reader, capture_output=True, check=True)
    exports, members = json.loads(done.stdout)
    types = (SOURCES / "index.d.ts").read_text()
    assert set(exports) == set(re.findall(r"^export (?:class|function) (\w+)", types, re.MULTILINE))
    listed = types.partition("export class Release")[2].partition("\n}")[0]
    own = set(re.findall(r"^  (?:readonly )?(\w+)[(:]", listed, re.MULTILINE))
    assert own == {*members, "header", "truePositiveRate", "falsePositiveRate"} - {"constructor"}
