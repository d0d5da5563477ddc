"""What the use cases need from the outside world. Adapters implement these; tests may use the real ones too."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from veilset.core.release.header import ReleaseHeader
from veilset_server.records import (
    Charged,
    Mark,
)


class Clock(Protocol):
    """Wall clock, injected so that tests can stop it."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch."""


class Entropy(Protocol):
    """Cryptographic randomness from the operating system."""

    def seed32(self) -> int:
        """A uniform 32-bit integer."""

    def keystream(self) -> KeyStream:
        """A fresh stream, keyed anew; never the same twice."""


class KeyStream(Protocol):
    """Callable source of uniform random bytes; each call continues where the last one stopped."""

    def __call__(self, length: int, /) -> bytes | bytearray | memoryview:
        """The next ``length`` bytes."""


class Anchor(Protocol):
    """A memory of charges outside the state folder, so that a restored older folder is noticed."""

    @property
    def missing(self) -> bool:
        """Whether there was none when it was opened: then it remembers only what was written since."""

    def read(self, set_name: str, account: str) -> Mark:
        """The highest mark of the set and of its account; zeros if there is none."""

    def charged(self) -> Charged:
        """The highest marks of all sets and accounts that were ever written to it."""

    def raise_to(self, charged: Charged) -> None:
        """Raise all these marks in one write, durably; never lowers one, and writes also if none rises.

        What cannot be written now is part of the next write. Raises StorageFull, Unavailable, StateCorrupted.
        """

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        """`raise_to` for one set and its account."""


class Signer(Protocol):
    """Signs release headers with this service's keys."""

    def sign(self, header: ReleaseHeader) -> bytes:
        """The manifest: the header with the signature of every key that signs now."""

    def public_keys(self) -> Collection[bytes]:
        """Raw public keys of all that ever signed, retired ones too."""


class ReleaseStore(Protocol):
    """Where readers fetch releases: Redis or Valkey. All writes are idempotent. Raises Unavailable."""

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        """Write manifest and chunks; nothing is visible through the pointer yet."""

    def move_pointer(self, set_name: str, sequence: int) -> None:
        """Point readers at ``sequence`` unless the pointer is already there or further, and notify them."""

    def latest(self, set_name: str) -> int:
        """Where the pointer points; 0 for nowhere."""

    def manifest(self, set_name: str, sequence: int) -> bytes:
        """The manifest of a release. Raises NotFound."""

    def missing_chunks(self, set_name: str, sequence: int, manifest: bytes, sizes: Sequence[int]) -> list[int]:
        """Which keys of a release are gone or of the wrong length: chunk indexes, -1 for the manifest."""

    def changed_chunks(self, set_name: str, sequence: int, sha256: Mapping[int, bytes]) -> list[int]:
        """Which of these chunks (index → SHA-256) have another content. Reads all of them."""

    def restore(self, set_name: str, sequence: int, index: int, value: bytes) -> None:
        """Write one key again; index -1 is the manifest."""

    def expire(self, set_name: str, sequence: int, chunk_count: int, grace_seconds: int) -> None:
        """Let an old release go after the grace time."""

    def remove(self, set_name: str, sequences: Sequence[tuple[int, int]]) -> None:
        """Delete releases (sequence, chunk count) and the pointer of a deleted set."""

    def probe(self, set_name: str) -> None:
        """Ask for everything that a delivery of the set will do, changing nothing. Raises StoreMisconfigured, Unavailable."""

    def ping(self) -> None:
        """Raises Unavailable if the store does not answer or takes no writes."""

    def evicts(self) -> str:
        """By which policy the store may throw releases out when memory is short; empty if by none, or if it does not say."""
