"""The search for leaks finds what it is meant to find."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from google.protobuf import text_format

from harness.leaks import Seen, shared_windows
from veilset.core.elements.hashing import digests, pack_digests
from veilset.v1 import membership_pb2 as pb

ELEMENT = b"alice@Example.org"


@pytest.mark.parametrize("form", [ELEMENT, ELEMENT.lower(), ELEMENT.upper(), ELEMENT[::-1], ELEMENT.hex().encode()])
def test_an_element_is_found_in_any_form(form: bytes) -> None:
    """Also in the middle of something else; another element is not."""
    texts = [b"nothing", b"in the " + form + b" middle"]
    for seen in (Seen(words=texts), Seen(blobs=texts)):
        assert seen.find(ELEMENT, b"bob@example.org") == [ELEMENT]


@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
def test_base64_and_escapes_are_seen_through(before: bytes) -> None:
    """Whatever stands before the element or the digest in the same run; also as log lines write bytes."""
    packed = pack_digests(digests([ELEMENT], seed=7))
    for secret in (ELEMENT, packed):
        forms = [
            base64.b64encode(before + secret),
            base64.urlsafe_b64encode(before + secret),
            base64.b64encode(before + secret).rstrip(b"="),
            before + repr(secret).encode(),
            json.dumps(repr(secret)).encode(),
            json.dumps(secret.decode("latin-1")).encode(),
            text_format.MessageToString(pb.Batch(digests=before + secret)).encode(),
        ]
        for form in forms:
            seen = Seen(words=[b"a", b'"' + form + b'"'])
            assert seen.find(ELEMENT) + seen.find_digests([ELEMENT], seed=7) == [ELEMENT], form


def test_a_digest_is_found_in_any_form() -> None:
    """As bytes in either order, hexadecimal or number."""
    packed = pack_digests(digests([ELEMENT], seed=7))
    (digest,) = digests([ELEMENT], seed=7).tolist()
    forms = [packed, packed[::-1], packed.hex().encode(), packed[::-1].hex().upper().encode(), b"digest=%d" % digest]
    for form in forms:
        assert Seen(words=[b"a", b"xy" + form + b"z"]).find_digests([b"other", ELEMENT], seed=7) == [ELEMENT]
    assert Seen(numbers={float(3), digest}).find_digests([ELEMENT], seed=7) == [ELEMENT]
    assert Seen(words=[packed.hex().encode()]).find_digests([ELEMENT], seed=8) == []


def test_a_number_is_found_by_itself_only() -> None:
    """In words and in messages."""
    for text in (b"n=7919", b'{"n": 7919}', b"7919", b"7919 elements"):
        assert Seen(words=[text]).find_number(7919)
    for text in (b"17919", b"7919a", b"0.7919", b"79190"):
        assert not Seen(words=[text]).find_number(7919)
    for text in (b"fill 0.123456", b"0.12346", b'"fill":0.12345678'):
        assert Seen(words=[text]).find_number(0.12345678)
    assert not Seen(words=[b"0.1299"]).find_number(0.12345678)
    nested = Seen()
    nested.message(pb.CreateSetResponse(plan=pb.Plan(bytes=4711, advantage=0.25)))
    assert nested.numbers >= {4711, 0.25}
    assert nested.find_number(4711)
    assert nested.find_number(0.25)


def test_shared_windows_are_found_at_any_offset() -> None:
    """A window with too few ones proves nothing and does not count."""
    random = np.random.default_rng(1)
    secret = random.bytes(200)
    assert shared_windows(secret, [random.bytes(500)]) == []
    assert shared_windows(secret, [random.bytes(33) + secret[50:114] + random.bytes(7)]) == [50]
    assert shared_windows(bytes(200), [bytes(500)]) == []
