"""A spec as text. It is TOML, since people on both sides read and approve the file, and TOML has comments and whole numbers.

The reader is strict: one version, every field, no others, each of its own type. The ranges of values are checked by the records
that they become (`veilset._service.spec`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

from veilset.core.encodings import ENCODINGS
from veilset.errors import InvalidInput, must_be

VERSION = 1
VERSION_FIELD = "veilset_spec"
MAX_CHARACTERS = 1 << 16

FIELDS: dict[str, tuple[type, str]] = {
    "size": (int, "planned number of distinct elements of each side, a round number"),
    "encoding": (str, "how a set becomes a noisy vector"),
    **{
        name: (int, text.rstrip(".").lower())
        for family in ENCODINGS.values()
        for name, text in family.DIMENSIONS.items()
    },
    "scheme": (str, "element bytes to digest, with version"),
    "seed": (int, "of the digest; public, drawn at random, the same on both sides"),
    "key_check": (str, "check value of the secret, which is not in this file"),
    "normalization": (str, "what is done to an element before hashing, with version"),
    "adjacency": (str, "neighbouring relation of the promise"),
    "calibration": (str, "how epsilon becomes noise; worst-case assumes nothing of the shared seed"),
    "epsilon": (float, "of one release"),
    "delta": (float, "of one release"),
    "elements_per_user": (int, "unit of privacy: elements that one user may contribute"),
    "min_size": (int, "public promise: at least this many distinct elements; 1 promises nothing"),
}
"""Field → (type, comment), in the order of the file."""

OPTIONAL = ("key_check",)
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text in quotes"}


def parse_fields(text: str) -> dict[str, object]:
    """The fields of a spec, each of its own type. Raises InvalidInput naming the field as "spec.<field>"."""
    if len(text) > MAX_CHARACTERS:
        raise must_be("spec", f"at most {MAX_CHARACTERS} characters long")
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise must_be("spec", f"a TOML file ({error})") from None
    version = found.pop(VERSION_FIELD, None)
    if type(version) is not int or version != VERSION:
        raise must_be(f"spec.{VERSION_FIELD}", f"{VERSION}, the version that this program knows", version)
    for name in found:
        if name not in FIELDS:
            raise InvalidInput(
                "spec", f"spec has the field {name[:40]!r}, which version {VERSION} does not know; remove it"
            )
    for name, (kind, _) in FIELDS.items():
        if name not in found and name not in OPTIONAL and not _is_of_another(name, found):
            raise InvalidInput(f"spec.{name}", f"spec.{name} is missing")
        if name in found:
            found[name] = _typed(name, kind, found[name])
    return found


def _is_of_another(name: str, found: Mapping[str, object]) -> bool:
    """Whether a field is a dimension, and of another encoding than the spec's."""
    own = ENCODINGS.get(str(found.get("encoding")))
    return any(name in family.DIMENSIONS for family in ENCODINGS.values() if family is not own)


def _typed(name: str, kind: type, value: object) -> object:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: a bool is no number here
        raise must_be(f"spec.{name}", _TYPE_NAMES[kind], value)
    return value


def format_fields(values: Mapping[str, object]) -> str:
    """The text of a spec; fields without a value ("" or None) are left out."""
    rows = [
        (name, _literal(values[name]), note) for name, (_, note) in FIELDS.items() if values.get(name) not in ("", None)
    ]
    width = max(len(f"{name} = {literal}") for name, literal, _ in rows)
    head = [
        "# veilset spec: what partners agree on so that their releases compare. It holds no secret.",
        "# Each side runs: veilset create NAME --spec THIS-FILE",
        f"{VERSION_FIELD} = {VERSION}",
        "",
    ]
    return "\n".join([*head, *(f"{f'{name} = {literal}':<{width}}  # {note}" for name, literal, note in rows), ""])


def _literal(value: object) -> str:
    """TOML of a whole number, a float or a plain word; all texts here are names and hexadecimal digits."""
    return f'"{value}"' if isinstance(value, str) else repr(value)
