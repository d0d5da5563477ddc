"""Elements become the same bytes for producers and readers, and bad ones are refused without being repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilset.core.elements.normalization import Element, normalize
from veilset.core.params import MAX_ELEMENT_BYTES, Normalization
from veilset.errors import InvalidInput


@pytest.mark.parametrize(
    ("profile", "element", "expected"),
    [
        (Normalization.NONE, " Straße ", " Straße ".encode()),
        (Normalization.NONE, b"\xff\x00", b"\xff\x00"),
        (Normalization.TRIM_CASEFOLD, " Straße\t", b"strasse"),
        (Normalization.TRIM_CASEFOLD, b" ABC ", b"abc"),
        (Normalization.NFC, "e\u0301", "é".encode()),
        (Normalization.EMAIL, " Alice@EXAMPLE.com ", b"alice@example.com"),
        (Normalization.EMAIL, "bob@bücher.example", b"bob@xn--bcher-kva.example"),
        (Normalization.EMAIL, '"a@b"@example.com', b'"a@b"@example.com'),
        (Normalization.EMAIL, '"a b"@example.com', b'"a b"@example.com'),
        (Normalization.EMAIL, "bob@XN--bcher-KVA.example", b"bob@xn--bcher-kva.example"),
        (Normalization.EMAIL, "bob@\U0001f4a9.la", b"bob@xn--ls8h.la"),
        (Normalization.EMAIL, "bob@xn--ls8h.la", b"bob@xn--ls8h.la"),
        (Normalization.EMAIL, "bob@r3---sn.example", b"bob@r3---sn.example"),
        (Normalization.EMAIL, "bob@[IPv6:2001:DB8::1]", b"bob@[ipv6:2001:db8::1]"),
        (Normalization.EMAIL, "bob@faß.example", b"bob@xn--fa-hia.example"),
        (Normalization.EMAIL, "bob@example\u3002com", b"bob@example.com"),
        (Normalization.EMAIL, "bob@example.com.", b"bob@example.com."),
    ],
)
def test_profiles(profile: Normalization, element: Element, expected: bytes) -> None:
    assert normalize([element], profile) == [expected]


@pytest.mark.parametrize("profile", [Normalization.NFC, Normalization.EMAIL])
@pytest.mark.parametrize("marks", ["\u0327\u0301", "\u0345", "\u0334\u05b0\u302a"])
def test_long_runs_of_marks_are_refused(profile: Normalization, marks: str) -> None:
    """The time to sort one grows with the square of its length; runs of 30 are taken, however many there are."""
    taken = ("a" + (marks * 30)[:30]) * 40
    normalize([f"{taken}@example.org"], profile)
    with pytest.raises(InvalidInput, match="30 combining marks"):
        normalize([f"a{(marks * 31)[:31]}@example.org"], profile)


@pytest.mark.parametrize("profile", list(Normalization))
@pytest.mark.parametrize("element", ["\ud800marker", "", b"", "m" * (MAX_ELEMENT_BYTES + 1), 7, None])
def test_refusals_name_the_field_and_never_the_element(profile: Normalization, element: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        normalize([element], profile)  # type: ignore[list-item]
    assert caught.value.field == "element"
    assert "marker" not in str(caught.value)
    assert "mmm" not in str(caught.value)


@pytest.mark.parametrize(
    "element",
    [
        "no-at-sign", "@example.com", "alice@", "alice@exa mple..com", "al ice@example.com", "alice\n@example.com",
        '"@example.com x',
        "alice@-a.com", "alice@a-.com", "alice@a_b.com", "alice@xn--a.com", "alice@xn--.com", "alice@xn--bcher-kvb.com",
        "alice@" + "a" * 64 + ".com", "alice@" + "a." * 127 + "com", "alice@[a b]", "alice@[]", "alice@\u0301a.com",
        "alice@1\u05d0.com",
        "Alice <alice@example.com>", "alice@a\u200db.com",
    ],
)  # fmt: skip
def test_email_profile_refuses_what_is_no_address(element: str) -> None:
    with pytest.raises(InvalidInput, match="e-mail"):
        normalize([element], Normalization.EMAIL)


@given(st.lists(st.text(min_size=1, max_size=20)), st.sampled_from([Normalization.TRIM_CASEFOLD, Normalization.NFC]))
def test_text_and_its_bytes_normalise_alike(texts: list[str], profile: Normalization) -> None:
    kept = [text for text in texts if text.strip() and text.isprintable()]
    assert normalize(kept, profile) == normalize([text.encode() for text in kept], profile)


@given(st.lists(st.one_of(st.text(min_size=1, max_size=9).filter(str.isprintable), st.binary(min_size=1, max_size=9))))
def test_the_fast_path_changes_nothing(mixed: list[str | bytes]) -> None:
    one_by_one = [normalize([element])[0] for element in mixed]
    assert normalize(mixed) == one_by_one
