"""Who calls, and what they may touch: roles, and patterns of set names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from veilset.core.params import check_choice
from veilset.errors import must_be

ALL_SETS = "*"
MAX_PATTERNS = 100

_PATTERN = re.compile(r"[a-z0-9._*-]{1,63}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_LONGEST_NAME = 63


class Role(StrEnum):
    """What a principal is for. Which calls a role may make is in one table, `veilset_server.rpc.permissions`."""

    PRODUCER = "producer"
    PUBLISHER = "publisher"
    READER = "reader"
    ADMIN = "admin"


class AuthMode(StrEnum):
    """Whether callers have to show who they are. auto: as soon as there is a tokens file or an identities file, however
    empty. none: not, said explicitly."""

    AUTO = "auto"
    TOKEN = "token"  # noqa: S105 - the option's value
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that was recognised. Uploads and sets belong to the name, with any of its credentials.

    sets: patterns of the names of sets and of budget accounts. The empty name stands for all callers where authentication is off.
    """

    name: str
    roles: frozenset[Role]
    sets: tuple[str, ...]

    def covers(self, name: str) -> bool:
        """Whether a set or account of that name is within the patterns."""
        return self.covers_all or any(pattern_covers(pattern, name) for pattern in self.sets)

    @property
    def covers_all(self) -> bool:
        """Whether every name is."""
        return ALL_SETS in self.sets


EVERYBODY = Principal("", frozenset(Role), (ALL_SETS,))
"""The caller where authentication is off."""


def make_principal(name: str, roles: Iterable[str], sets: Iterable[str]) -> Principal:
    """A checked principal. Raises InvalidInput naming name, role or sets."""
    return Principal(check_principal_name(name), check_roles(roles), check_patterns(sets))


def check_principal_name(name: str) -> str:
    """Raises InvalidInput naming ``name``."""
    if not _NAME.fullmatch(name):
        raise must_be("name", "1 to 63 letters, digits, '.', '_', '@' and '-', the first a letter or digit", name)
    return name


def check_roles(roles: Iterable[str]) -> frozenset[Role]:
    """Raises InvalidInput naming ``role``."""
    found = frozenset(check_choice("role", role, Role) for role in roles)
    if not found:
        raise must_be("role", f"at least one of {', '.join(Role)}")
    return found


def check_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """Patterns without duplicates, in order. Raises InvalidInput naming ``sets``."""
    found = tuple(dict.fromkeys(patterns))
    if not 1 <= len(found) <= MAX_PATTERNS:
        raise must_be("sets", f"1 to {MAX_PATTERNS} patterns", len(found))
    for pattern in found:
        if not _PATTERN.fullmatch(pattern):
            raise must_be("sets", "names of sets, in which * stands for any characters", pattern)
    return found


def pattern_covers(pattern: str, name: str) -> bool:
    """Whether the whole of ``name`` fits ``pattern``; ``*`` stands for any characters, also none; nothing else is special.

    Linear in their lengths: each part between two stars is taken where it first occurs, which never loses a fit.
    """
    if len(name) > _LONGEST_NAME:  # of no set
        return False
    first, *rest = pattern.split(ALL_SETS)
    if not rest:
        return name == first
    *middle, last = rest
    end = len(name) - len(last)
    if end < len(first) or not name.startswith(first) or not name.endswith(last):
        return False
    position = len(first)
    for part in middle:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
