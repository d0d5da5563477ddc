"""The parameters of a set: frozen records that cannot hold a value out of range.

Ranges are checked by containment (``if not low <= value <= high``), so that NaN fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from veilset.errors import InvalidInput, must_be

MAX_EPSILON = 64.0
MAX_BUDGET_EPSILON = 1e6
MAX_DELTA = 0.1
MIN_BITS = 8
MAX_BITS = 1 << 40
MAX_HASHES = 32
MAX_SIZE = 10**12
MAX_ELEMENTS_PER_USER = 1000
MAX_SEED = (1 << 32) - 1
MAX_ELEMENT_BYTES = 4096
DIGEST_BYTES = 8
KEY_CHECK_BYTES = 8
MAX_PART = 10_000
MAX_SMALL_ELEMENTS = 4096
"""Elements of an upload that is one call, at most."""

Choice = TypeVar("Choice", bound=StrEnum)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_KEY_CHECK = re.compile(rf"[0-9a-f]{{{2 * KEY_CHECK_BYTES}}}", re.ASCII)


class Adjacency(StrEnum):
    """Neighbouring relation: which two data sets must look alike. It has no default anywhere."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Calibration(StrEnum):
    """What the promise assumes of the hash: worst-case assumes nothing and has δ = 0; see docs/privacy.md."""

    W_QUANTILE = "w-quantile"
    EXACT = "exact"
    WORST_CASE = "worst-case"


class HashScheme(StrEnum):
    """Element bytes to 64-bit digest, name and version; positions follow from the digest alike in all schemes."""

    MMH3 = "mmh3-1"
    BLAKE2B = "blake2b-1"


class Operation(StrEnum):
    """What an upload does with its elements. replace: they become the whole content of the set."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class Normalization(StrEnum):
    """What producers and readers do to an element's text before hashing it."""

    NONE = "none"
    TRIM_CASEFOLD = "trim-casefold"
    NFC = "nfc"
    EMAIL = "email"

    @classmethod
    def _missing_(cls, value: object) -> Normalization | None:
        """A profile by its name with version."""
        return next((profile for profile in cls if profile.versioned == value), None)

    @property
    def versioned(self) -> str:
        """Name with version, as in the contract's NORMALIZATION_…_V1; a changed normalization gets a new name."""
        return self.value if self is Normalization.NONE else f"{self.value}-1"


def check_name(field: str, name: str) -> str:
    """Return ``name`` if it can name a set or a budget account, else raise InvalidInput naming ``field``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise must_be(field, "1 to 63 characters matching [a-z0-9][a-z0-9._-]{0,62}")
    return name


def check_integer(field: str, value: int, low: int, high: int) -> int:
    """Return ``value`` if it is an int (not a bool) in [low, high], else raise InvalidInput naming ``field``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise must_be(field, f"an integer in [{low}, {high}]", value)
    return value


def check_epsilon(field: str, value: float) -> float:
    """Return ``value`` as a float if it is in (0, 64], else raise InvalidInput naming ``field``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_EPSILON:
        raise must_be(field, f"a number in (0, {MAX_EPSILON:g}]", value)
    return float(value)


def check_delta(field: str, value: float) -> float:
    """Return ``value`` as a float if it is in [0, 0.1], else raise InvalidInput naming ``field``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_DELTA:
        raise must_be(field, f"a number in [0, {MAX_DELTA:g}]", value)
    return float(value)


def check_choice(field: str, value: str | None, choices: type[Choice]) -> Choice:
    """Return ``value`` as a member of ``choices``, else raise InvalidInput naming ``field`` and the choices."""
    try:
        return choices(value or "")
    except ValueError:
        raise must_be(field, "one of " + ", ".join(choices), value) from None


def check_key_check(value: str, scheme: HashScheme) -> str:
    """Return a check value if it is "" or, with a keyed scheme, 16 lower-case hexadecimal digits; else raise InvalidInput."""
    if value and scheme is not HashScheme.BLAKE2B:
        raise InvalidInput("key_check", f"key_check does not belong with scheme {scheme}; leave it out")
    if not isinstance(value, str) or (value and not _KEY_CHECK.fullmatch(value)):
        raise must_be("key_check", f"{2 * KEY_CHECK_BYTES} lower-case hexadecimal digits")
    return value


@dataclass(frozen=True, slots=True)
class HashParameters:
    """How element bytes become digests.

    seed: public 32-bit seed of the hash, drawn independently of the data. key_check: `core.elements.hashing.key_check` of
    a keyed scheme's secret, 16 hexadecimal digits; "" with an unkeyed scheme.
    """

    scheme: HashScheme = HashScheme.MMH3
    seed: int = 0
    key_check: str = ""

    def __post_init__(self) -> None:
        check_choice("scheme", self.scheme, HashScheme)
        check_integer("seed", self.seed, 0, MAX_SEED)
        check_key_check(self.key_check, self.scheme)


@dataclass(frozen=True, slots=True)
class PrivacyParameters:
    """What one release promises, and about whom.

    epsilon in (0, 64], delta in [0, 0.1]. elements_per_user: how many elements one user may contribute (the unit of
    privacy), in [1, 1000]. min_size: the owner's public promise that the set holds at least this many distinct
    elements, in [1, 10^12]; 1 assumes nothing. Worst-case calibration is pure ε: it is charged with delta = 0, and delta and
    min_size become 0 and 1 here, whatever was given.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    calibration: Calibration = Calibration.W_QUANTILE
    elements_per_user: int = 1
    min_size: int = 1

    def __post_init__(self) -> None:
        check_epsilon("epsilon", self.epsilon)
        check_delta("delta", self.delta)
        check_choice("adjacency", self.adjacency, Adjacency)
        check_choice("calibration", self.calibration, Calibration)
        check_integer("elements_per_user", self.elements_per_user, 1, MAX_ELEMENTS_PER_USER)
        check_integer("min_size", self.min_size, 1, MAX_SIZE)
        if self.calibration is Calibration.WORST_CASE:
            object.__setattr__(self, "delta", 0.0)
            object.__setattr__(self, "min_size", 1)
