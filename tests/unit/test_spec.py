"""A spec comes back as it was written, and whatever is not exactly a spec is refused by the name of its field."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilset
from harness.releases import release_view
from harness.shapes import FilterParameters, parameters
from veilset._service.spec import FIELDS, Spec
from veilset.core.elements.hashing import key_check
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.params import Adjacency, Calibration, HashParameters, HashScheme, Normalization, PrivacyParameters
from veilset.errors import AlreadyExists, InvalidInput, NotComparable, NotFound, PoorUtility

KEY = bytes(range(32))
SPEC = Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", normalization="email")
KEYED = Spec.plan(size=10_000, epsilon=3, adjacency="replace-one", scheme="blake2b-1", key=KEY)
TEXT = str(SPEC)
OWN_FIELDS = [name for name in FIELDS if name not in LinearParameters.DIMENSIONS]


def changed(field: str, literal: str) -> str:
    """The text of the spec with another value of a field."""
    text, count = re.subn(rf"^{field} = [^#]*", f"{field} = {literal} ", TEXT, flags=re.MULTILINE)
    assert count == 1
    return text


hashings = st.builds(HashParameters, seed=st.integers(0, (1 << 32) - 1)) | st.builds(
    HashParameters,
    scheme=st.just(HashScheme.BLAKE2B),
    key_check=st.binary(min_size=8, max_size=8).map(bytes.hex),
)
promises = st.builds(
    PrivacyParameters,
    epsilon=st.floats(0, 64, exclude_min=True),
    delta=st.floats(0, 0.1),
    adjacency=st.sampled_from(Adjacency),
    calibration=st.sampled_from(Calibration),
    elements_per_user=st.integers(1, 4),
    min_size=st.integers(1, 100),
)


LINEAR = Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", encoding="linear")
LINEAR_ONLY = tuple(LINEAR.encoding.dimensions())


@settings(deadline=None)
@given(
    st.integers(100, 10**12),
    hashings,
    st.integers(8, 1 << 40),
    st.integers(1, 8),
    promises,
    st.sampled_from(Normalization),
)
def test_a_spec_comes_back_as_it_was_written(
    size: int,
    hashing: HashParameters,
    bits: int,
    hashes: int,
    privacy: PrivacyParameters,
    normalization: Normalization,
) -> None:
    """To the last bit of every float."""
    spec = Spec(size, hashing, parameters(bits, hashes, privacy), privacy, normalization)
    assert Spec.parse(str(spec)) == spec


def test_the_file_is_one_for_people() -> None:
    """Every field stands there with a note; a file that is there is never replaced."""
    for field in OWN_FIELDS:
        assert (f"\n{field} = " in TEXT) == (field != "key_check")
        assert (f"\n{field} = " in str(KEYED)) is True
    for field in LinearParameters.DIMENSIONS:
        assert f"\n{field} = " not in TEXT
        assert f"\n{field} = " in str(Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", encoding="linear"))
    assert TEXT.isascii()


def test_a_linear_spec_comes_back_as_it_was_written() -> None:
    assert Spec.parse(str(LINEAR)) == LINEAR
    for field in LINEAR_ONLY:
        with pytest.raises(InvalidInput, match=rf"^spec\.{field} is missing"):
            Spec.parse(re.sub(rf"^{field} = .*\n", "", str(LINEAR), flags=re.MULTILINE))
    with pytest.raises(InvalidInput, match="planes"):
        Spec.parse(str(LINEAR).replace("planes = 4", "planes = 33"))


def test_files(tmp_path: Path) -> None:
    """Written once, read back; a missing one, a folder and bytes that are no text are named."""
    path = tmp_path / "partners.toml"
    SPEC.save(path)
    assert Spec.load(str(path)) == SPEC
    with pytest.raises(AlreadyExists, match="exists already"):
        KEYED.save(path)
    assert Spec.load(path) == SPEC
    for missing in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(NotFound, match="spec "):
            Spec.load(missing)
    path.write_bytes(b"\xef\xbb\xbf" + str(SPEC).replace("\n", "\r\n").encode())
    assert Spec.load(path) == SPEC, "as an editor of another system leaves it"
    path.write_bytes(b"# long\n" * 100_000)
    with pytest.raises(InvalidInput, match="at most 65536 characters"):
        Spec.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="spec must be UTF-8"):
        Spec.load(path)


def test_a_plan_is_for_the_worst_case_and_has_a_seed_of_its_own() -> None:
    """Since both sides know the seed. Who wants another calibration says so."""
    assert SPEC.privacy.calibration is Calibration.WORST_CASE
    again = [Spec.plan(size=10_000, epsilon=3, adjacency="add-remove").hashing.seed for _ in range(4)]
    assert len({SPEC.hashing.seed, *again}) > 3  # two equal seeds of five: once in 10^8 runs; two such pairs: never
    chosen = Spec.plan(
        size=10_000, epsilon=3, delta=1e-9, adjacency="add-remove", calibration="exact", bits=999, hashes=2
    )
    assert (chosen.privacy.calibration, chosen.encoding.dimensions()) == (Calibration.EXACT, {"bits": 999, "hashes": 2})
    with pytest.raises(PoorUtility):
        Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", max_bytes=8)
    with pytest.raises(InvalidInput, match="hashes is missing"):
        Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", bits=8)


def test_a_keyed_spec_holds_the_check_value_and_not_the_key() -> None:
    """And a spec with a scheme and a check value that do not fit cannot be made."""
    assert KEYED.hashing.key_check == key_check(KEY)
    assert KEY not in str(KEYED).encode()
    assert KEY.hex() not in str(KEYED)
    with pytest.raises(InvalidInput, match="key_check is needed"):
        Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", scheme="blake2b-1")
    with pytest.raises(InvalidInput, match="key_check does not belong"):
        Spec.plan(size=10_000, epsilon=3, adjacency="add-remove", key=KEY)


@pytest.mark.parametrize(
    ("field", "literal"),
    [
        ("veilset_spec", "2"),
        ("veilset_spec", "true"),
        ("veilset_spec", '"1"'),
        ("size", "0"),
        ("size", "1e4"),
        ("size", "10_000_000_000_001"),
        ("bits", "7"),
        ("bits", "-8"),
        ("bits", '"1024"'),
        ("bits", "1099511627777"),
        ("hashes", "0"),
        ("hashes", "33"),
        ("hashes", "true"),
        ("hashes", "1.0"),
        ("scheme", '"mmh3"'),
        ("scheme", "1"),
        ("scheme", '"blake2b-1"'),  # without a check value
        ("seed", "4294967296"),
        ("seed", "-1"),
        ("seed", "1979-05-27"),
        ("normalization", '"email-2"'),
        ("adjacency", '"add-or-remove"'),
        ("adjacency", '""'),
        ("calibration", '"best"'),
        ("epsilon", "0"),
        ("epsilon", "nan"),
        ("epsilon", "inf"),
        ("epsilon", "-1.0"),
        ("epsilon", "64.1"),
        ("epsilon", "true"),
        ("epsilon", '"3"'),
        ("delta", "1e-9"),  # worst-case promises 0
        ("delta", "nan"),
        ("delta", "-1"),
        ("elements_per_user", "0"),
        ("elements_per_user", "[1]"),
        ("min_size", "0"),
        ("min_size", "2"),
        ("min_size", "20000"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(field: str, literal: str) -> None:
    """Wrong type, out of range, or at odds with another field."""
    with pytest.raises(InvalidInput) as caught:
        Spec.parse(changed(field, literal))
    named = "key_check" if literal == '"blake2b-1"' else field
    assert caught.value.field == f"spec.{named}"
    assert str(caught.value).startswith(f"spec.{named} ")


@pytest.mark.parametrize("field", [*(name for name in OWN_FIELDS if name != "key_check"), "veilset_spec"])
def test_a_missing_field_is_refused_by_its_name(field: str) -> None:
    """Nothing has a default that one side might not know of."""
    with pytest.raises(InvalidInput, match=rf"^spec\.{field} (is missing|must be 1)"):
        Spec.parse(re.sub(rf"^{field} = .*\n", "", TEXT, flags=re.MULTILINE))


@pytest.mark.parametrize(
    "more", ["epsilom = 3", "columns = 3", "[filter]\nbits = 3", "key = 'secret'", "key_check = '0011223344556677'"]
)
def test_what_does_not_belong_there_is_refused(more: str) -> None:
    """A misspelt field would else be a silent default; a check value has no place beside an unkeyed scheme."""
    (name,) = re.findall(r"\w+", more)[:1]
    with pytest.raises(InvalidInput, match=name):
        Spec.parse(f"{TEXT}\n{more}\n")


@pytest.mark.parametrize("text", ["", "{", "a = 1\na = 2", "\0", "[" * 10_000, "x" * 100_000, "veilset_spec = 1"])
def test_what_is_no_spec_is_refused(text: str) -> None:
    """Without a crash."""
    with pytest.raises(InvalidInput, match=r"^spec"):
        Spec.parse(text)


@given(st.text(max_size=200))
def test_garbage_is_refused(text: str) -> None:
    """Whatever it is, before or behind a spec, unless it is a comment or white space."""
    with pytest.raises(InvalidInput, match=r"^spec"):
        Spec.parse(text)


def test_a_release_is_held_against_the_spec() -> None:
    """The error says what the spec has and what the release has."""
    shape = FilterParameters(4096, 2, seed=5)
    view = (
        release_view(["a"], shape, 6.0, normalization=Normalization.EMAIL) if False else release_view(["a"], shape, 6.0)
    )
    promise = PrivacyParameters(1.0, 0.0, Adjacency.REPLACE_ONE)
    own, hashing = parameters(4096, 2, promise), shape.hashing
    Spec(100, hashing, own, promise).check_release(view.header)
    for other, told in (
        (Spec(100, hashing, parameters(4097, 2, promise), promise), "bits: the spec has 4097, members/1 has 4096"),
        (Spec(100, hashing, parameters(4096, 3, promise), promise), "hashes: the spec has 3, members/1 has 2"),
        (Spec(100, HashParameters(seed=6), own, promise), "seed: the spec has 6, members/1 has 5"),
        (Spec(100, hashing, own, promise, Normalization.NFC), "normalization: the spec has nfc-1, members/1 has none"),
    ):
        with pytest.raises(NotComparable, match=re.escape(f"differ in {told}. ")):
            other.check_release(view.header)


def test_open_refuses_a_release_that_is_not_as_agreed(tmp_path: Path) -> None:
    """Before any answer."""
    shape = FilterParameters(4096, 2, seed=os.getpid())
    path = tmp_path / "members.release"
    release_view(["a"], shape, 6.0).save(path)
    promise = PrivacyParameters(6.0, 0.0, Adjacency.ADD_REMOVE)
    spec = Spec(100, shape.hashing, parameters(4096, 2, promise), promise)
    assert veilset.open(path, spec=spec).header.hashing == shape.hashing
    with pytest.raises(NotComparable, match="seed: the spec has"):
        veilset.open(path, spec=replace(spec, hashing=HashParameters(seed=shape.seed + 1)))
