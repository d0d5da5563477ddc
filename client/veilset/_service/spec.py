"""A spec: all that partners have to agree on so that releases of their sets compare; a small text file without secrets.

Both sides create their sets from the same file. Its seed is public before the data are collected, and may be known to those who
choose the elements: so a spec is calibrated for the worst case unless its authors choose otherwise.

The file is TOML, since people on both sides read and approve it, and TOML has comments and whole numbers. The reader is strict:
one version, every field, no others, each of its own type; the records that they become check the ranges of values.
"""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from veilset._display import Displayed
from veilset.core.elements.hashing import key_check
from veilset.core.encodings import DEFAULT_ENCODING, ENCODINGS, find_encoding
from veilset.core.encodings.interface import Parameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.estimates.releases import check_alike, meaning, name_of
from veilset.core.params import (
    MAX_SEED,
    MAX_SIZE,
    Adjacency,
    Calibration,
    HashParameters,
    HashScheme,
    Normalization,
    PrivacyParameters,
    check_choice,
    check_integer,
)
from veilset.core.release.header import ReleaseHeader
from veilset.errors import AlreadyExists, InvalidInput, NotFound, must_be

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


@dataclass(frozen=True, slots=True, repr=False)
class Spec(Displayed):
    """What partners agree on. size: planned number of distinct elements of each side; the other fields as in a set."""

    size: int
    hashing: HashParameters
    encoding: Parameters
    privacy: PrivacyParameters
    normalization: Normalization = Normalization.NONE

    def __post_init__(self) -> None:
        check_integer("size", self.size, 1, MAX_SIZE)
        if self.privacy.min_size > self.size:
            raise must_be("min_size", f"at most size ({self.size})", self.privacy.min_size)
        keyed = self.hashing.scheme is HashScheme.BLAKE2B
        if keyed != bool(self.hashing.key_check):
            raise InvalidInput(
                "key_check",
                f"key_check {'is needed' if keyed else 'does not belong'} with scheme {self.hashing.scheme}",
            )

    @classmethod
    def plan(
        cls,
        *,
        size: int,
        epsilon: float,
        adjacency: Adjacency | str,
        delta: float = 0.0,
        calibration: Calibration | str | None = None,
        elements_per_user: int = 1,
        min_size: int = 1,
        encoding: str = DEFAULT_ENCODING,
        max_bytes: int = 0,
        scheme: HashScheme | str = HashScheme.MMH3,
        key: bytes | None = None,
        normalization: Normalization | str = Normalization.NONE,
        **dimensions: int,
    ) -> Spec:
        """A new spec: dimensions from the planner where none is given, a seed from the operating system.

        calibration: default worst-case, since partners know the seed. key: the secret of a keyed scheme, of which the spec
        gets the check value. Other arguments as `Service.create_set`. Raises InvalidInput, PoorUtility.
        """
        privacy = PrivacyParameters(
            epsilon,
            delta,
            check_choice("adjacency", adjacency, Adjacency),
            check_choice("calibration", calibration or Calibration.WORST_CASE, Calibration),
            elements_per_user,
            min_size,
        )
        family = find_encoding(encoding)
        if dimensions:
            parameters = family.calibrate(privacy, dimensions)
        else:
            parameters = family.plan(PlanRequest(size, privacy, max_bytes=max_bytes or None)).parameters
        chosen = check_choice("scheme", scheme, HashScheme)
        check = "" if key is None else key_check(key)
        hashing = HashParameters(chosen, secrets.randbelow(MAX_SEED + 1), check)
        return cls(size, hashing, parameters, privacy, check_choice("normalization", normalization, Normalization))

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read the text of a spec, strictly. Raises InvalidInput; its field is "spec" or "spec.<field>"."""
        fields = parse_fields(text)
        try:
            return _from_fields(fields)
        except InvalidInput as error:
            raise InvalidInput(f"spec.{error.field}", f"spec.{error.message}", allowed=error.allowed) from None

    @classmethod
    def load(cls, path: str | Path) -> Spec:
        """Read a file, strictly. Raises NotFound if there is none, and InvalidInput as `parse` does."""
        try:
            with Path(path).open(encoding="utf-8-sig") as file:
                return cls.parse(file.read(MAX_CHARACTERS + 1))
        except OSError as error:
            raise NotFound(f"spec {path} cannot be read: {error.strerror}", field="spec") from None
        except UnicodeDecodeError:
            raise must_be("spec", "UTF-8 text") from None

    def save(self, path: str | Path) -> None:
        """Write the file. Raises AlreadyExists instead of replacing one: sets with different seeds do not compare."""
        try:
            with Path(path).open("x", encoding="utf-8", newline="\n") as file:
                file.write(str(self))
        except FileExistsError:
            raise AlreadyExists(f"spec {path} exists already; choose another file name", field="spec") from None

    def __str__(self) -> str:
        return format_fields(self.fields())

    def fields(self) -> dict[str, Any]:
        """All fields, flat, as the file names them."""
        hashing = self.hashing
        return {
            "size": self.size,
            "encoding": self.encoding.encoding,
            **self.encoding.dimensions(),
            "scheme": str(hashing.scheme),
            "seed": hashing.seed,
            "key_check": hashing.key_check,
            "normalization": self.normalization.versioned,
            **asdict(self.privacy),
        }

    def check_release(self, header: ReleaseHeader) -> None:
        """Raise NotComparable, naming each side's value, unless a release was made as the spec says."""
        own = meaning(self.encoding, self.hashing, self.normalization)
        check_alike(
            ("the spec", name_of(header)), (own, meaning(header.encoding, header.hashing, header.normalization))
        )


def _from_fields(fields: dict[str, Any]) -> Spec:
    scheme = check_choice("scheme", fields["scheme"], HashScheme)
    calibration = check_choice("calibration", fields["calibration"], Calibration)
    if calibration is Calibration.WORST_CASE:  # the record would make it so silently
        for name, only in (("delta", 0), ("min_size", 1)):
            if fields[name] != only:
                raise must_be(
                    name, f"{only} with calibration {calibration}, which promises no more and takes no credit"
                )
    privacy = PrivacyParameters(
        fields["epsilon"],
        fields["delta"],
        check_choice("adjacency", fields["adjacency"], Adjacency),
        calibration,
        fields["elements_per_user"],
        fields["min_size"],
    )
    family = find_encoding(fields["encoding"])
    dimensions = {name: fields[name] for name in family.DIMENSIONS}
    for other in ENCODINGS.values():
        for name in other.DIMENSIONS:
            if name in fields and name not in dimensions:
                raise InvalidInput(name, f"{name} does not belong to encoding {family.encoding}; leave it out")
    hashing = HashParameters(scheme, fields["seed"], fields.get("key_check", ""))
    normalization = check_choice("normalization", fields["normalization"], Normalization)
    return Spec(fields["size"], hashing, family.calibrate(privacy, dimensions), privacy, normalization)
