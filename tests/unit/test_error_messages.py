"""Every kind of error, and the sentences they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veilset import errors
from veilset.errors import BY_REASON, InvalidInput, NotComparable, VeilsetError, from_reason, must_be

SOURCES = Path(__file__).parents[2]
# `must_be` is for a range or a choice. Whether something has to be there is a sentence of its own.
MISUSED = re.compile(r'must_be\(\s*[^,]+,\s*f?"(?:absent|given|readable|used with|named|open|without)\b')
EXAMPLES: list[VeilsetError] = [
    must_be("epsilon", "a number in (0, 64]", 65),
    InvalidInput("redis-file", "redis-file and --redis exclude each other; give one of them"),
    NotComparable("left", "right", {"seed": (1, 2)}),
]


def test_no_source_says_must_be_absent_or_given() -> None:
    """A range or a choice completes "must be"; anything else is a full sentence."""
    rooms = [SOURCES / "client" / "veilset", SOURCES / "server" / "veilset_server"]
    files = [path for room in rooms for path in room.rglob("*.py")]
    assert len(files) > 50
    found = [f"{path}: {hit.group()}" for path in files for hit in MISUSED.finditer(path.read_text())]
    assert not found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda error: error.reason + ":" + error.details.get("field", ""))
def test_messages_are_sentences_that_name_their_field(example: InvalidInput) -> None:
    """The field is in the sentence and in the attribute, and both cross the wire."""
    assert example.field in example.message
    assert example.message[-1] not in ".:; "
    back = from_reason(example.reason, example.message, example.details)
    assert type(back) is type(example)
    assert (back.message, back.details) == (example.message, example.details)
    assert isinstance(back, InvalidInput)
    assert (back.field, back.allowed) == (example.field, example.allowed)


@pytest.mark.parametrize("kind", BY_REASON.values(), ids=BY_REASON)
def test_every_kind_says_whose_fault_it_is(kind: type[VeilsetError]) -> None:
    """A docstring of more than five words, a status, and a reason that finds the class again."""
    assert kind.__doc__
    assert len(kind.__doc__.split()) > 5
    assert BY_REASON[kind.reason] is kind
    assert kind.status.isupper()
    assert kind.__module__ == errors.__name__


def test_the_range_is_kept_beside_the_sentence() -> None:
    """Programs read ``allowed``; people read the message."""
    error = must_be("epsilon", "a number in (0, 64]", 65)
    assert error.message == "epsilon must be a number in (0, 64], not 65"
    assert error.allowed == "a number in (0, 64]"
