"""One release in the store, compared with what was charged; missing or different chunks are written again from the artefact.

The pointer moves only to a release of which the same pass compared every chunk by its hash. So a release whose artefact is
damaged keeps what the store still has of it, and gets back what is whole in the artefact; where both are damaged in the same
chunk, readers are never pointed at it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from veilset._reader.redis_keys import MANIFEST
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.release.header import ReleaseHeader, check_chunk
from veilset.core.release.signing import open_manifest
from veilset.errors import ReleaseRejected, StateCorrupted, StoreMisconfigured, Unavailable
from veilset_server.ports import ReleaseStore
from veilset_server.records import StoredRelease
from veilset_server.state.artefacts import ArtefactFiles

Place = tuple[str, int, int]
"""Set, sequence, chunk."""

_REFUSALS = ("NoPermissionError", "UnknownCommand")
"""Kinds of StoreMisconfigured that concern one command or key, answered at once; others may succeed."""


class Reconciled(NamedTuple):
    """What a comparison of the store with the ledger came to.

    checked: releases looked at. restored: keys written again. unrestorable: (set, sequence) of the releases that the store
    lacks in part, or has otherwise than they were signed, and whose artefact is damaged, so that readers find nothing.
    """

    checked: int
    restored: int
    unrestorable: tuple[tuple[str, int], ...] = ()


def chunk_count(release: StoredRelease) -> int:
    """Number of chunks of a release."""
    return len(open_manifest(release.manifest).chunk_sha256)


def generation_of(release: StoredRelease) -> int:
    """Sequence of the base of its generation."""
    return open_manifest(release.manifest).generation


class Restoring:
    """Reads artefacts and compares the store with them."""

    def __init__(self, artefacts: ArtefactFiles, store: ReleaseStore) -> None:
        self._artefacts = artefacts
        self._store = store

    def chunks(self, release: StoredRelease) -> Iterator[bytes]:
        """The release's bits from its artefact, each chunk checked. Raises StateCorrupted naming the file."""
        header = open_manifest(release.manifest)
        return (chunk for _, chunk in self._chunks(release, header, range(len(header.chunk_sha256))))

    def _chunks(
        self, release: StoredRelease, header: ReleaseHeader, wanted: Collection[int]
    ) -> Iterator[tuple[int, bytes]]:
        name = self._artefacts.name(release.set_id, release.sequence)
        for index, chunk in enumerate(self._artefacts.read(release.set_id, release.sequence, CHUNK_BYTES)):
            if index in wanted:
                try:
                    checked = check_chunk(header, index, chunk)
                except ReleaseRejected:
                    raise StateCorrupted(f"{name}: damaged (chunk {index} is not what was signed)", file=name) from None
                yield index, checked

    def restore(self, release: StoredRelease, header: ReleaseHeader, compare: Collection[int]) -> int:
        """Make the release's keys what they should be, and the pointer point at it or further; returns how many were not.

        header: the release's own. compare: chunks to compare by content; all others by their length. Where the pointer has
        to move, all are compared.
        Raises StateCorrupted (a chunk of it is damaged in the artefact as well: the pointer stays), Unavailable.
        """
        behind = self._store.latest(release.set_name) < release.sequence
        wrong = set(
            self._store.missing_chunks(release.set_name, release.sequence, release.manifest, header.chunk_sizes)
        )
        compare = range(len(header.chunk_sha256)) if behind else compare
        sha256 = {index: header.chunk_sha256[index] for index in compare if index not in wrong}
        wrong.update(self._store.changed_chunks(release.set_name, release.sequence, sha256))
        if wrong:
            self._write_again(release, header, wrong)
        if behind:
            self._store.move_pointer(release.set_name, release.sequence)
        return len(wrong) + behind

    def _write_again(self, release: StoredRelease, header: ReleaseHeader, wrong: set[int]) -> None:
        """Damage elsewhere in the artefact keeps nothing from being restored."""
        if wrong - {MANIFEST}:
            for index, chunk in self._chunks(release, header, wrong):
                self._store.restore(release.set_name, release.sequence, index, chunk)
        if MANIFEST in wrong:
            self._store.restore(release.set_name, release.sequence, MANIFEST, release.manifest)


class ChunkRotation:
    """Which chunks a pass compares by content: a few each time, all of them in the end."""

    def __init__(self, chunks_at_a_time: int) -> None:
        self._chunks_at_a_time = chunks_at_a_time
        self._last: Place = ("", 0, 0)

    def next_chunks(self, releases: Iterable[tuple[str, int, int]]) -> set[Place]:
        """The next chunks of these releases (set, sequence, number of chunks)."""
        places = sorted((name, sequence, index) for name, sequence, count in releases for index in range(count))
        start = bisect_right(places, self._last)
        chosen = (places[start:] + places[:start])[: self._chunks_at_a_time]
        if chosen:
            self._last = chosen[-1]
        return set(chosen)


class Outage:
    """Lets a pass continue where a part of the store is away (a cluster's node), but not through a time-out for each key; and
    where one command or one set's keys are refused."""

    MOST = 3

    def __init__(self) -> None:
        self.sets: set[str] = set()
        self._away = 0
        self._error: Unavailable | None = None

    @contextmanager
    def of(self, set_name: str) -> Iterator[None]:
        """Keep an Unavailable for later, unless it is one too many."""
        try:
            yield
        except Unavailable as error:
            self._error = error
            self.sets.add(set_name)
            self._away += not _is_refusal(error)
            if self._away >= self.MOST:
                raise

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep what refuses a step, so that the steps behind it are taken."""
        try:
            yield
        except StoreMisconfigured as error:
            if not _is_refusal(error):
                raise
            self._error = error

    def raise_kept(self) -> None:
        """Raise what was kept."""
        if self._error is not None:
            raise self._error


def _is_refusal(error: Unavailable) -> bool:
    return isinstance(error, StoreMisconfigured) and error.details.get("kind") in _REFUSALS
