"""Elements as callers hold them (str or bytes) → the bytes that are hashed, alike for producers and readers."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import cast

import idna

from veilset.core.params import MAX_ELEMENT_BYTES, Normalization
from veilset.errors import InvalidInput

Element = str | bytes

_NOT_UNICODE = "valid Unicode text (UTF-8, no lone surrogates)"


def _trim_casefold(text: str) -> str:
    return text.strip().casefold()


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _email(text: str) -> str:
    local, at, domain = _nfc(text.strip()).rpartition("@")
    if not at or not local or not domain:
        raise InvalidInput("element", "an e-mail address, local@domain, under the normalization 'email'")
    try:
        ascii_domain = idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise InvalidInput("element", "an e-mail address with a valid domain, under 'email'") from None
    return f"{local.lower()}@{ascii_domain.lower()}"


_PROFILES: dict[Normalization, Callable[[str], str]] = {
    Normalization.TRIM_CASEFOLD: _trim_casefold,
    Normalization.NFC: _nfc,
    Normalization.EMAIL: _email,
}


def normalize(elements: Iterable[Element], profile: Normalization = Normalization.NONE) -> list[bytes]:
    """Normalise elements and encode text as UTF-8; with 'none' bytes stay as they come.

    Raises InvalidInput, without the element in it, for anything that is not str or bytes, text that is not valid
    Unicode (lone surrogates; bytes that are not UTF-8 under a text profile), and an element that is empty or longer
    than 4096 bytes afterwards.
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
        raise InvalidInput("element", f"1 to {MAX_ELEMENT_BYTES} bytes long")
    return done


def _encode_plain(elements: list[str]) -> list[bytes]:
    """The common case, at the speed of a C loop."""
    try:
        return list(map(str.encode, elements))
    except UnicodeError:
        raise InvalidInput("element", _NOT_UNICODE) from None


def _encode(element: Element, change: Callable[[str], str] | None) -> bytes:
    try:
        if isinstance(element, str):
            return (change(element) if change else element).encode()
        if isinstance(element, bytes):
            return change(element.decode()).encode() if change else element
    except UnicodeError:
        raise InvalidInput("element", _NOT_UNICODE) from None
    raise InvalidInput("element", "str or bytes", type(element).__name__)
