"""Anchor port: one small JSON file on a path outside the state folder, best on another volume.

It holds what every release header shows anyway: sequences and sums spent, and beside them each set's operation number. It is
never lowered; a file that cannot be read is refused, since guessing would defeat it. It bears a random id, which the ledger
holds too, so that the anchor of another state folder is not taken for this one's. A lock on a file beside it keeps a second
service out, whose writes would put back what the first one raised.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from veilset.core.privacy.budget import format_delta, parse_delta
from veilset.errors import FailedPrecondition, InvalidInput, StateCorrupted, StorageFull, Unavailable, must_be
from veilset_server.records import Charged, Mark
from veilset_server.state.durability import (
    Held,
    hold,
    json_with_checksum,
    parse_json_with_checksum,
    read_regular,
    relative_name,
    write_file,
)

VERSION = 2
LOCK_SUFFIX = ".lock"
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


@contextmanager
def open_anchor(path: Path, state: Path) -> Iterator[AnchorFile]:
    """The anchor at ``path`` of the state folder ``state``, which exists; held against a second service until the block ends.

    A symbolic link is followed and stays. Raises InvalidInput naming ``anchor`` (its folder does not exist, or is in the state
    folder; it is no regular file), FailedPrecondition (another service holds it), Unavailable (its folder cannot be written)
    and StateCorrupted. A folder is not made here: one that is missing is mostly a volume that is not mounted, and an anchor
    begun again has forgotten all charges.
    """
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # the latter before Python 3.13, for links that lead in a circle
        raise must_be("anchor", "a path whose links lead to a file", str(path)) from None
    folder = target.parent
    if not folder.is_dir():
        raise InvalidInput("anchor", f"anchor {path} is in a folder that does not exist; is its volume mounted?")
    kept = state.stat()
    if any(os.path.samestat(above.stat(), kept) for above in (folder, *folder.parents)):
        raise InvalidInput(
            "anchor", f"anchor {path} is in the state folder; put it outside, or every backup holds it too"
        )
    if target.exists() and not target.is_file():
        raise must_be("anchor", "a regular file, or a path where none is yet", str(path))
    descriptor = _hold(target)
    try:
        yield AnchorFile(target)
    finally:
        os.close(descriptor)


def _hold(path: Path) -> int:
    try:
        return hold(path.with_name(path.name + LOCK_SUFFIX))
    except Held as held:
        raise FailedPrecondition(
            f"anchor: {path} is in use by {held}; each service needs an anchor of its own (--anchor)", pid=held.pid
        ) from None
    except OSError as error:
        raise _cannot_be_written(path, error) from None


class AnchorFile:
    """The anchor of one state folder. Thread-safe. Two of one path would undo each other's writes: see `open_anchor`."""

    def __init__(self, path: Path) -> None:
        """Raises StateCorrupted if the file is there and no anchor, InvalidInput if it is no file that can be read; a missing
        one is made by the first write."""
        self._path = path
        self._lock = threading.Lock()
        self._id = uuid.uuid4().hex
        self._sequences: dict[str, int] = {}
        self._operations: dict[str, int] = {}
        self._accounts: dict[str, tuple[int, Fraction]] = {}
        self._missing = False
        try:
            self._parse(read_regular(path))
        except FileNotFoundError:
            self._missing = True
        except OSError as error:
            raise must_be("anchor", f"a regular file that can be read ({error.strerror})", str(path)) from None

    @property
    def missing(self) -> bool:
        """Whether there was no file when this one was opened."""
        return self._missing

    @property
    def anchor_id(self) -> str:
        """Random name, 32 hex digits; of a missing one, what it would be called."""
        return self._id

    def bind(self, anchor_id: str) -> None:
        """Be the anchor of the ledger that names ``anchor_id``; a missing one takes on that id with its first write.

        Raises FailedPrecondition if it is another ledger's.
        """
        if self._missing:
            self._id = anchor_id
        elif self._id != anchor_id:
            raise FailedPrecondition(
                f"anchor: {self._path} belongs to another state folder; name this one's own with --anchor. If that is lost and "
                "this state folder is the newest there is, name a path where no file is: it is then rewritten from the ledger"
            )

    def read(self, set_name: str, account: str) -> Mark:
        """The highest mark of the set and of its account; zeros if there is none."""
        with self._lock:
            nano_epsilon, delta = self._accounts.get(account, (0, Fraction(0)))
            sequence, operation = self._sequences.get(set_name, 0), self._operations.get(set_name, 0)
            return Mark(sequence, nano_epsilon, delta, operation)

    def charged(self) -> Charged:
        """Everything that it remembers: sequences, operations and sums spent."""
        with self._lock:
            return Charged(dict(self._sequences), dict(self._accounts), dict(self._operations))

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        """Raise both to ``mark``, durably. Raises as `raise_to` does."""
        spent = {account: (mark.nano_epsilon, mark.delta)}
        self.raise_to(Charged({set_name: mark.sequence}, spent, {set_name: mark.operation}))

    def raise_to(self, charged: Charged) -> None:
        """Raise all these marks in one write, durably. Raises StorageFull, Unavailable, StateCorrupted (the disk fails).

        They are kept here first: whatever fails to be written, of whichever set, is written by the next one that does not.
        """
        with self._lock:
            for kept, raised in ((self._sequences, charged.sequences), (self._operations, charged.operations)):
                kept.update({name: number for name, number in raised.items() if number > kept.get(name, 0)})
            for name, (nano_epsilon, delta) in charged.accounts.items():
                nano_before, delta_before = self._accounts.get(name, (0, Fraction(0)))
                self._accounts[name] = max(nano_epsilon, nano_before), max(delta, delta_before)
            self._save()

    def _save(self) -> None:
        sets = {
            name: {"sequence": self._sequences.get(name, 0), "operation": self._operations.get(name, 0)}
            for name in self._sequences.keys() | self._operations.keys()
        }
        spent = {name: [nano, format_delta(delta)] for name, (nano, delta) in self._accounts.items()}
        content = {"version": VERSION, "id": self._id, "sets": sets, "accounts": spent}
        try:
            write_file(self._path, json_with_checksum(content))
        except StorageFull:
            name = relative_name(self._path)
            raise StorageFull(f"anchor: the disk of {name} is full", file=name) from None
        except OSError as error:
            raise _cannot_be_written(self._path, error) from None

    def _parse(self, content: bytes) -> None:
        try:
            found = parse_json_with_checksum(content)
            if found["version"] != VERSION or not _ID.fullmatch(found["id"]):
                raise ValueError("version or id")
            self._id = found["id"]
            self._sequences, self._operations = (
                {name: count for name, numbers in found["sets"].items() if (count := _count(numbers[kind]))}
                for kind in ("sequence", "operation")
            )
            self._accounts = {
                name: (_count(nano), parse_delta(delta)) for name, (nano, delta) in found["accounts"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInput):
            raise StateCorrupted(
                f"{self._path}: not an anchor of this version. Move it away only if the state folder is the newest there is, "
                "never after a restore; it is then rewritten from the ledger",
                file=self._path.name,
            ) from None


def _cannot_be_written(path: Path, error: OSError) -> Unavailable:
    name = relative_name(path)
    return Unavailable(f"anchor: {name} cannot be written: {error.strerror or type(error).__name__}", file=name)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("count")
    return value
