"""Anchor port: one small JSON file on a path outside the state folder, best on another volume.

It holds what every release header tells anyway: sequences and sums spent. It is never lowered; a file that cannot be read
is refused, since guessing would defeat it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

from veilset.core.budget import format_delta, parse_delta
from veilset.errors import InvalidInput, StateCorrupted
from veilset_server.adapters.durability import new_file, write_all
from veilset_server.records import Mark

VERSION = 1


class AnchorFile:
    """The anchor of one state folder. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises StateCorrupted if the file is there and no anchor; a missing one is made with the first mark."""
        self._path = path
        self._lock = threading.Lock()
        self._sets: dict[str, int] = {}
        self._accounts: dict[str, tuple[int, Fraction]] = {}
        if path.exists():
            self._load()

    def read(self, set_name: str, account: str) -> Mark:
        """The highest mark of the set and of its account; zeros if there is none."""
        with self._lock:
            nano_epsilon, delta = self._accounts.get(account, (0, Fraction(0)))
            return Mark(self._sets.get(set_name, 0), nano_epsilon, delta)

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        """Raise both to ``mark``, durably. Raises StorageFull."""
        with self._lock:
            nano_epsilon, delta = self._accounts.get(account, (0, Fraction(0)))
            sequence = max(mark.sequence, self._sets.get(set_name, 0))
            self._save(
                self._sets | {set_name: sequence},
                self._accounts | {account: (max(mark.nano_epsilon, nano_epsilon), max(mark.delta, delta))},
            )

    def _save(self, sets: dict[str, int], accounts: dict[str, tuple[int, Fraction]]) -> None:
        spent = {name: [nano, format_delta(delta)] for name, (nano, delta) in accounts.items()}
        content = {"version": VERSION, "sets": sets, "accounts": spent}
        text = json.dumps(content | {"sha256": _checksum(content)}, indent=1, sort_keys=True)
        with new_file(self._path) as descriptor:
            write_all(descriptor, text.encode())
        self._sets, self._accounts = sets, accounts

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
                f"{self._path}: not an anchor of this version; restore it, or remove it if nothing was ever published",
                file=self._path.name,
            ) from None


def _checksum(content: dict[str, Any]) -> str:
    """A changed digit would lower a mark and be valid JSON all the same."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("count")
    return value
