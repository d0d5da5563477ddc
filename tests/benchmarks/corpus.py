"""Elements that look like e-mail addresses, 29 bytes on average; the same in every run."""

from __future__ import annotations

import random
from functools import lru_cache

_SYLLABLES = (
    "an",
    "bel",
    "chris",
    "do",
    "el",
    "fre",
    "gus",
    "han",
    "iris",
    "jo",
    "ka",
    "li",
    "mar",
    "nor",
    "o",
    "pe",
    "ro",
    "sa",
    "to",
    "ul",
)
_DOMAINS = ("example.com", "mail.example.org", "example.net", "post.example.co.uk", "firma.example.de")


@lru_cache(maxsize=2)
def addresses(count: int) -> list[str]:
    """``count`` different ones, in no order of their text, and in memory as they come: one made after the other."""
    draw = random.Random(6)  # noqa: S311 - the same list in every run, for nothing secret
    found = []
    for number in range(count):
        name = "".join(draw.choices(_SYLLABLES, k=3))
        found.append(f"{name}.{draw.choice(_SYLLABLES)}{number}@{draw.choice(_DOMAINS)}")
    return found
