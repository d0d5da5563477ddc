"""deploy/THREAT_MODEL.md names tests and files; they have to be there, or a claim hangs in the air."""

from __future__ import annotations

import re
from pathlib import Path

from harness.named_tests import named_tests

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "deploy" / "THREAT_MODEL.md").read_text()
ATTACKERS = ("producer", "publisher", "reader", "partner", "Redis operator", "network", "host operator")


def test_every_named_test_exists() -> None:
    """As a function of the file."""
    named = list(named_tests(DOCUMENT))
    assert len(named) > 8
    assert [(path, name) for path, name in named if f"def {name}(" not in (ROOT / path).read_text()] == []


def test_every_named_file_exists() -> None:
    """Of the tree, and beside the document."""
    named = set(re.findall(r"`?((?:client|server|tests|deploy|docs)/[\w/]+\.\w+)", DOCUMENT))
    named |= {f"deploy/{name}" for name in re.findall(r"\b([A-Z_]+\.md)\b", DOCUMENT)}
    assert len(named) > 5
    assert [path for path in sorted(named) if not Path(ROOT / path).is_file()] == []


def test_nobody_is_forgotten() -> None:
    """Each attacker has a row of its own."""
    for name in ATTACKERS:
        assert re.search(rf"^\| \*\*(\w+ of )?{name}\*\*", DOCUMENT, flags=re.MULTILINE), name
