"""docs/privacy.md names modules and tests; they have to be there, or a claim hangs in the air."""

from __future__ import annotations

import re
from pathlib import Path

from harness.named_tests import named_tests

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "privacy.md").read_text()
SECTIONS = re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)[1:]
WITHOUT_CLAIMS = ("16 What is not promised",)


def test_every_named_test_exists() -> None:
    """As a function of the file."""
    named = list(named_tests(DOCUMENT))
    assert len(named) > 50
    missing = [(path, name) for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_every_named_file_exists() -> None:
    """Modules and tests alike."""
    named = set(re.findall(r"`((?:client|server|tests|protos)/[\w/]+\.\w+)", DOCUMENT))
    assert len(named) > 40
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_every_guarantee_names_a_test() -> None:
    """A claim that no test would miss is no promise."""
    silent = [title for section in SECTIONS if not list(named_tests(section)) for title in [section.splitlines()[0]]]
    assert silent == list(WITHOUT_CLAIMS)
