"""Anchor port: one small file on a path outside the state folder, best on another volume.

It holds what every release header shows anyway: sequences and sums spent, and beside them each set's operation number. Each line
is JSON with a checksum. The first has all marks as they were, a later one those that were raised since: so a publish writes one
line, whatever the number of sets. The highest mark holds; a last line that does not end is a write that a crash cut short. It is
never lowered; a file that cannot be read is refused, since guessing would defeat it. It bears a random id, which the ledger
holds too, so that the anchor of another state folder is not taken for this one's. A lock on a file beside it keeps a second
service out, whose writes would put back what the first one raised.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
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
    storage_errors,
    sync_file,
    write_all,
    write_file,
)

VERSION = 3
NOT_WRITTEN = -1
"""Length of a file that may not hold all marks: the next write is of all of them."""
FEW_LINES = 1000
"""So many are added, or as many as there are marks, before all is written anew."""
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
    except (OSError, RuntimeError):  # the latter before Python 3.13, for links in a loop
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
        self._length = NOT_WRITTEN
        self._added = 0
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

        They are kept here first: what cannot be written now is part of the next write.
        """
        with self._lock:
            self._keep(charged)
            length, self._length = self._length, NOT_WRITTEN  # unless nothing fails
            try:
                with storage_errors(relative_name(self._path)):
                    self._length = self._add(charged, length) or self._write_all()
            except StorageFull:
                name = relative_name(self._path)
                raise StorageFull(f"anchor: the disk of {name} is full", file=name) from None
            except OSError as error:
                raise _cannot_be_written(self._path, error) from None

    def _keep(self, charged: Charged) -> None:
        for kept, raised in ((self._sequences, charged.sequences), (self._operations, charged.operations)):
            kept.update({name: number for name, number in raised.items() if number > kept.get(name, 0)})
        for name, (nano_epsilon, delta) in charged.accounts.items():
            nano_before, delta_before = self._accounts.get(name, (0, Fraction(0)))
            self._accounts[name] = max(nano_epsilon, nano_before), max(delta, delta_before)

    def _add(self, charged: Charged, length: int) -> int:
        """Add a line; the file's length then, or 0 if all has to be written: the file is another, or old lines are most of it."""
        if length == NOT_WRITTEN or self._added >= max(FEW_LINES, len(self._sequences)):
            return 0
        line = self._line(charged.sequences.keys() | charged.operations.keys(), charged.accounts)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # writing all of them says what is wrong
            return 0
        try:
            if os.fstat(descriptor).st_size != length:
                return 0
            write_all(descriptor, line)
            sync_file(descriptor, self._path.name)
        finally:
            os.close(descriptor)
        self._added += 1
        return length + len(line)

    def _write_all(self) -> int:
        content = self._line(self._sequences.keys() | self._operations.keys(), self._accounts)
        write_file(self._path, content)
        self._added = 0
        return len(content)

    def _line(self, sets: Iterable[str], accounts: Iterable[str]) -> bytes:
        numbers = {
            name: {"sequence": self._sequences.get(name, 0), "operation": self._operations.get(name, 0)}
            for name in sets
        }
        spent = {name: (self._accounts[name][0], format_delta(self._accounts[name][1])) for name in accounts}
        content = {"version": VERSION, "id": self._id, "sets": numbers, "accounts": spent}
        return json_with_checksum(content, indent=None) + b"\n"

    def _parse(self, content: bytes) -> None:
        first, *others = content.split(b"\n")
        *others, last = others or [b"{}"]
        try:
            self._id = self._parse_line(first)
            if any(self._parse_line(line) != self._id for line in others):
                raise ValueError("id")
            if last and _is_whole(last[:-1]):
                raise ValueError("the end of the last line")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInput):
            raise StateCorrupted(
                f"{self._path}: not an anchor of this version. Move it away only if the state folder is the newest there is, "
                "never after a restore; it is then rewritten from the ledger",
                file=self._path.name,
            ) from None

    def _parse_line(self, line: bytes) -> str:
        """Keep its marks; the id that it bears."""
        found = parse_json_with_checksum(line)
        if found["version"] != VERSION or not _ID.fullmatch(found["id"]):
            raise ValueError("version or id")
        sequences, operations = (
            {name: _count(numbers[kind]) for name, numbers in found["sets"].items()}
            for kind in ("sequence", "operation")
        )
        accounts = {name: (_count(nano), parse_delta(delta)) for name, (nano, delta) in found["accounts"].items()}
        self._keep(Charged(sequences, accounts, operations))
        return str(found["id"])


def _is_whole(line: bytes) -> bool:
    """Whether the line has its checksum: then only its end is damaged."""
    try:
        parse_json_with_checksum(line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return True


def _cannot_be_written(path: Path, error: OSError) -> Unavailable:
    name = relative_name(path)
    return Unavailable(f"anchor: {name} cannot be written: {error.strerror or type(error).__name__}", file=name)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("count")
    return value
