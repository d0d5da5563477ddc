"""Elements (str or bytes) → the bytes that are hashed, alike for producers and readers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import cast
from uuid import UUID

import idna

from veilset.core.params import MAX_ELEMENT_BYTES, Normalization
from veilset.errors import must_be

Element = str | bytes

_EMAIL = "under the normalization 'email'"
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLAIN = re.compile(rf"[!-?A-~]+@{_LABEL}(?:\.{_LABEL})*\.?")
_LITERAL = re.compile(r"\[[!-Z^-~]+\]")
_LOCAL = re.compile(r"[!-~]+")
MAX_MARKS = 30
_LONGEST_DOMAIN = 253  # without the root's full stop
_NEITHER = "str or bytes, or a UUID, which is taken as its text; convert what is another type, for instance by str(x)"
_NOT_UNICODE = "valid Unicode text (UTF-8, no lone surrogates)"


def _trim_casefold(text: str) -> str:
    return text.strip().casefold()


def _nfc(text: str) -> str:
    if len(text) > MAX_MARKS and not text.isascii():
        _check_marks(text)
    return unicodedata.normalize("NFC", text)


def _check_marks(text: str) -> None:
    """Normalization sorts a run of combining marks in time that grows with the square of its length. So runs may be as long as in
    the stream-safe text format of UAX #15; longer ones are refused with InvalidInput."""
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_MARKS:
            raise must_be("element", f"text with at most {MAX_MARKS} combining marks in a row")


def _email(text: str) -> str:
    """local@domain in lower case, the domain in its ASCII form. The time depends on this address alone: nothing is cached, or
    timing would show which addresses came before."""
    text = text.strip()
    if text.isascii():
        text = text.lower()
        if _PLAIN.fullmatch(text) and "xn--" not in text and len(text) <= _LONGEST_DOMAIN:
            return text
    local, at, domain = _nfc(text).rpartition("@")
    if not at or not _is_local(local):
        raise must_be("element", f"an e-mail address, local@domain, {_EMAIL}")
    return f"{local.lower()}@{_ascii_domain(domain)}"


def _is_local(local: str) -> bool:
    """Whether this is a local part: white space and control characters may only be within quotes."""
    if _LOCAL.fullmatch(local):
        return True
    quoted = len(local) > 2 and local[0] == local[-1] == '"'
    return bool(local) and (quoted or not any(c.isspace() or unicodedata.category(c) == "Cc" for c in local))


def _ascii_domain(domain: str) -> str:
    """ToASCII of UTS #46, non-transitional, with STD3's rules; hyphens may not begin or end a label. An address literal such as
    [192.0.2.1] stays as it is. Raises InvalidInput.

    So emoji are accepted, which UTS #46 maps and IDNA 2008 has no letters for: mail to such domains is delivered.
    """
    if _LITERAL.fullmatch(domain):
        return domain.lower()
    try:
        mapped = idna.uts46_remap(domain, std3_rules=True)
        labels = mapped.removesuffix(".").split(".")
        plain = [_decoded(label) for label in labels]
        rtl = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for label in plain for c in label)
        found = ".".join(map(_ascii_label, plain)) + "." * mapped.endswith(".")
        well_formed = all(idna.check_initial_combiner(label) and _joined_well(label) for label in plain)
        directed = not rtl or all(idna.check_bidi(label, check_ltr=True) for label in plain)
        if well_formed and directed and len(found.removesuffix(".")) <= _LONGEST_DOMAIN:
            return found
    except (idna.IDNAError, UnicodeError):
        pass
    raise must_be("element", f"an e-mail address with a valid domain, {_EMAIL}")


def _decoded(label: str) -> str:
    """A label as Unicode. Raises UnicodeError for an encoded one that is not the encoding of its own text."""
    if not label.startswith("xn--"):
        return label
    found = label[4:].encode("ascii").decode("punycode")
    if (
        found.isascii()
        or idna.uts46_remap(found, std3_rules=True) != found
        or "." in found
        or _ascii_label(found) != label
    ):
        raise UnicodeError
    return found


def _ascii_label(label: str) -> str:
    encoded = label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
    if not 1 <= len(encoded) <= 63 or "-" in (label[0], label[-1]):
        raise UnicodeError
    return encoded


def _joined_well(label: str) -> bool:
    return all(idna.valid_contextj(label, at) for at, c in enumerate(label) if c in "\u200c\u200d")


_PROFILES: dict[Normalization, Callable[[str], str]] = {
    Normalization.TRIM_CASEFOLD: _trim_casefold,
    Normalization.NFC: _nfc,
    Normalization.EMAIL: _email,
}


def normalize(elements: Iterable[Element], profile: Normalization = Normalization.NONE) -> list[bytes]:
    """Normalise elements and encode text as UTF-8; with 'none' bytes stay as they come.

    A UUID is taken as its text. Raises InvalidInput, without the element in it, for anything else that is not str or bytes,
    text that is not valid Unicode (lone surrogates; bytes that are not UTF-8 under a text profile), and an element that is empty
    or longer than 4096 bytes afterwards.
    """
    given = elements if isinstance(elements, list) else list(elements)
    change = _PROFILES.get(profile)
    kinds = set(map(type, given))
    if change is None and kinds == {bytes}:
        done = cast(list[bytes], given)
    elif change is None and kinds == {str}:
        done = _encode_plain(cast(list[str], given))
    else:
        done = [_encode(element, change) for element in given]
    if done and not 1 <= min(map(len, done)) <= max(map(len, done)) <= MAX_ELEMENT_BYTES:
        raise must_be("element", f"1 to {MAX_ELEMENT_BYTES} bytes long")
    return done


def _encode_plain(elements: list[str]) -> list[bytes]:
    """Text without normalization, the common case, in one C loop."""
    try:
        return list(map(str.encode, elements))
    except UnicodeError:
        raise must_be("element", _NOT_UNICODE) from None


def _encode(element: object, change: Callable[[str], str] | None) -> bytes:
    try:
        if isinstance(element, str):
            return (change(element) if change else element).encode()
        if isinstance(element, bytes):
            return change(element.decode()).encode() if change else element
    except UnicodeError:
        raise must_be("element", _NOT_UNICODE) from None
    if isinstance(element, UUID):
        return str(element).encode()
    raise must_be("element", _NEITHER)
