"""The normalisation profiles written anew, from docs/format.md. None stands for an element that is refused.

`email_domain` is no full UTS #46: it maps and checks what the vectors use (NFKC with case folding, the four characters
that non-transitional processing keeps, letters, marks, digits, symbols beyond ASCII, hyphens). Another language takes a
library for it.
"""

from __future__ import annotations

import re
import unicodedata

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_KEPT = "ß\u03c2\u200c\u200d"
_DOTS = "\u3002\uff0e\uff61"


def normalize(profile: str, text: str) -> bytes | None:
    """The bytes to hash under a versioned profile; None if the text is refused."""
    try:
        if profile == "trim-casefold-1":
            done = text.strip(WHITE_SPACE).casefold().encode()
        elif profile == "nfc-1":
            done = unicodedata.normalize("NFC", text).encode()
        elif profile == "email-1":
            done = _email(text)
        else:
            done = text.encode()
    except (UnicodeError, ValueError):
        return None
    return done if 1 <= len(done) <= 4096 else None


def _email(text: str) -> bytes:
    local, at, domain = unicodedata.normalize("NFC", text.strip(WHITE_SPACE)).rpartition("@")
    if not (at and local and domain):
        raise ValueError("no address")
    quoted = len(local) > 2 and local[0] == local[-1] == '"'
    if not quoted and any(c in WHITE_SPACE or unicodedata.category(c) == "Cc" for c in local):
        raise ValueError("white space")
    return f"{local.lower()}@{email_domain(domain)}".encode()


def email_domain(domain: str) -> str:
    """The ASCII form of a domain. Raises ValueError."""
    if re.fullmatch(r"\[[!-Z^-~]+\]", domain):
        return domain.lower()
    mapped = "".join(
        character
        if character in _KEPT
        else "."
        if character in _DOTS
        else unicodedata.normalize("NFKC", character).casefold()
        for character in domain
    )
    labels = unicodedata.normalize("NFC", mapped).split(".")
    root = labels[-1] == ""
    return ".".join(map(_label, labels[: len(labels) - root])) + "." * root


def _label(label: str) -> str:
    if label.startswith("xn--"):
        _check(label[4:].encode("ascii").decode("punycode"))
        return label
    _check(label)
    encoded = label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
    if len(encoded) > 63:
        raise ValueError("too long")
    return encoded


def _check(label: str) -> None:
    symbols = {character for character in label if ord(character) > 127 and unicodedata.category(character)[0] == "S"}
    allowed = all(c in symbols or c == "-" or unicodedata.category(c)[0] in "LMN" for c in label)
    if not label or not allowed or label[0] == "-" or label[-1] == "-":
        raise ValueError("no label")
