"""Anchor port: one small JSON file on a path outside the state folder, best on another volume.

It holds what every release header tells anyway: sequences and sums spent. It is never lowered; a file that cannot be read
is refused, since guessing would defeat it.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

from veilset.core.privacy.budget import format_delta, parse_delta
from veilset.errors import InvalidInput, StateCorrupted, StorageFull, Unavailable
from veilset_server.records import Charged, Mark
from veilset_server.state.durability import new_file, relative_name, write_all

VERSION = 1


def open_anchor(path: Path, state: Path) -> AnchorFile:
    """The anchor at ``path`` of the state folder ``state``, which exists.

    Raises InvalidInput naming ``anchor`` (its folder does not exist, or is in the state folder) and StateCorrupted. A folder
    is not made here: one that is missing is mostly a volume that is not mounted, and an anchor begun anew forgets.
    """
    folder = path.parent.resolve()
    if not folder.is_dir():
        raise InvalidInput("anchor", "in a folder that exists; is its volume mounted?", str(path))
    kept = state.stat()
    if any(os.path.samestat(above.stat(), kept) for above in (folder, *folder.parents)):
        raise InvalidInput("anchor", "outside the state folder, or every backup would hold it too", str(path))
    return AnchorFile(folder / path.name)


class AnchorFile:
    """The anchor of one state folder. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises StateCorrupted if the file is there and no anchor, InvalidInput if it cannot be read; a missing one is made
        by the first write."""
        self._path = path
        self._lock = threading.Lock()
        self._sets: dict[str, int] = {}
        self._accounts: dict[str, tuple[int, Fraction]] = {}
        try:
            self._missing = not path.exists()
            if not self._missing:
                self._load()
        except OSError as error:
            raise InvalidInput("anchor", f"a file that can be read ({type(error).__name__})", str(path)) from None

    @property
    def missing(self) -> bool:
        """Whether there was no file when this one was opened."""
        return self._missing

    def read(self, set_name: str, account: str) -> Mark:
        """The highest mark of the set and of its account; zeros if there is none."""
        with self._lock:
            nano_epsilon, delta = self._accounts.get(account, (0, Fraction(0)))
            return Mark(self._sets.get(set_name, 0), nano_epsilon, delta)

    def charged(self) -> Charged:
        """All that it holds."""
        with self._lock:
            return Charged(dict(self._sets), dict(self._accounts))

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        """Raise both to ``mark``, durably. Raises as `raise_to` does."""
        self.raise_to(Charged({set_name: mark.sequence}, {account: (mark.nano_epsilon, mark.delta)}))

    def raise_to(self, charged: Charged) -> None:
        """Raise all these marks in one write, durably. Raises StorageFull, Unavailable, StateCorrupted (the disk fails).

        They are kept here first: whatever fails to be written, of whichever set, is written by the next one that does not.
        """
        with self._lock:
            for name, sequence in charged.sequences.items():
                self._sets[name] = max(sequence, self._sets.get(name, 0))
            for name, (nano_epsilon, delta) in charged.accounts.items():
                nano_before, delta_before = self._accounts.get(name, (0, Fraction(0)))
                self._accounts[name] = max(nano_epsilon, nano_before), max(delta, delta_before)
            self._save()

    def _save(self) -> None:
        spent = {name: [nano, format_delta(delta)] for name, (nano, delta) in self._accounts.items()}
        content = {"version": VERSION, "sets": self._sets, "accounts": spent}
        text = json.dumps(content | {"sha256": _checksum(content)}, indent=1, sort_keys=True)
        name = relative_name(self._path)
        try:
            with new_file(self._path) as descriptor:
                write_all(descriptor, text.encode())
        except StorageFull:
            raise StorageFull(f"anchor: the disk of {name} is full", file=name) from None
        except OSError as error:
            kind = type(error).__name__ if error.strerror is None else error.strerror
            raise Unavailable(f"anchor: {name} cannot be written: {kind}", file=name) from None

    def _load(self) -> None:
        try:
            found = json.loads(self._path.read_bytes())
            checksum = found.pop("sha256")
            if found["version"] != VERSION or checksum != _checksum(found):
                raise ValueError("version or checksum")
            self._sets = {str(name): _count(sequence) for name, sequence in found["sets"].items()}
            self._accounts = {
                str(name): (_count(nano), parse_delta(delta)) for name, (nano, delta) in found["accounts"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, InvalidInput):
            raise StateCorrupted(
                f"{self._path}: not an anchor of this version. Move it away only if the state folder is the newest there is, "
                "never after a restore; it is then written anew from the ledger",
                file=self._path.name,
            ) from None


def _checksum(content: dict[str, Any]) -> str:
    """A changed digit would lower a mark and be valid JSON all the same."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("count")
    return value
