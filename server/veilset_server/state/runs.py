"""What sets hold, on disk: runs in order of finish, read as one sorted sequence of distinct digests, and compaction.

A run never changes. A compaction writes its result beside what it folds and swaps it in by one commit of the ledger; before that
the file is noted as a leftover, so a crash leaves the old runs or the new one, and no file that the ledger does not know. A file
that it does not know is of another state of the folder: it is set aside in ``quarantine``, never deleted.

Whether to compact, and what, depends on how many uploads there were and how many elements they sent, never on how many of those
are distinct.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, groupby
from pathlib import Path

import structlog

from veilset.core.params import Operation
from veilset_server.locks import KeyedLocks
from veilset_server.records import RunFile, SmallUpload, StoredRun, Upload
from veilset_server.state.durability import FOLDER_MODE, TEMPORARY_SUFFIX, sync_folder
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.ledger.uploads import spool_name
from veilset_server.state.run_file import (
    LIMIT,
    Digests,
    FoldedRun,
    MemorySource,
    Slice,
    Source,
    damaged_run,
    fold,
    last_operations,
    release,
    released_between,
    write_run,
)
from veilset_server.state.spool import Spool, UploadedRun, least_bytes, remove_spool, trace

MAX_RUNS = 64
"""Of one set; a finish waits for a compaction when there are so many."""

MAX_SMALL = 1 << 16
"""Small uploads of one set, likewise."""

MANY_RUNS = 12
MANY_SMALL = 1024
MANY_SENT = 1 << 24
"""From so many runs, small uploads, or elements sent in runs that are not folded, a compaction is due."""

CHUNK_DIGESTS = 1 << 17
"""Given at a time: what an encoding makes of a chunk takes several times its memory."""

GROWTH = 2
"""An older run is folded too if it was sent at most so many times as many elements as all newer ones."""

_OURS = re.compile(r"[1-9][0-9]*-[1-9][0-9]*\.(run|spool)", re.ASCII)

Item = StoredRun | SmallUpload
log = structlog.get_logger(__name__)


class Stopped(Exception):
    """A compaction was asked to end."""


class Runs:
    """The runs and spools of one state folder. Thread-safe."""

    def __init__(self, folder: Path, ledger: SqliteLedger) -> None:
        """``folder`` is a state folder that this process holds."""
        self._folder = folder
        self._ledger = ledger
        self._guard = threading.Lock()
        self._in_use: Counter[str] = Counter()
        self._compacting = KeyedLocks()

    # Spools

    def open_spool(self, upload: Upload) -> Spool:
        """The spool of an open upload, made if new; a torn last batch is cut off. Raises StorageFull, StateCorrupted."""
        return Spool(self._folder / spool_name(upload), upload.set_id, upload.serial)

    def spool_trace(self, upload: Upload) -> tuple[int, int] | None:
        """What changes whenever the spool is opened or appended to; None if there is no spool."""
        return trace(self._folder / spool_name(upload))

    def remove_spool(self, upload: Upload, only_if: tuple[int, int] | None = None) -> bool:
        """Delete a spool, or only one that still has this trace; whether it is gone."""
        return remove_spool(self._folder / spool_name(upload), only_if)

    # What a set holds

    @contextmanager
    def sorted_chunks(self, set_id: int) -> Iterator[Iterator[Digests]]:
        """The digests that the set holds as of now, in chunks: sorted, distinct, strictly increasing across chunks.

        Nothing that is finished later takes part. Raises NotFound, and while reading StateCorrupted naming a damaged run.
        """
        with self._reading(set_id) as items, self._sources(items) as sources:
            yield _chunks(found.added for found in fold(sources))

    @contextmanager
    def released(
        self, set_id: int, sequence: int, before: RunFile | None, *, tombstones: bool
    ) -> Iterator[tuple[RunFile, Iterator[Digests], Iterator[Digests]]]:
        """What release ``sequence`` of a generation holds: the content as of now without what ``before`` has.

        before: what the generation had released until then; None before a base. Gives what it has released with this release, in
        a new file that goes again unless the ledger takes it on within the block; and in chunks as those of `sorted_chunks` the
        digests that are released, and of those released before the ones that left (none without ``tombstones``). Raises
        NotFound, StorageFull, StateCorrupted naming a damaged file.
        """
        with self._writing(set_id) as name, ExitStack() as files:
            earlier: Source = MemorySource(*last_operations(()), 0)
            if before is not None:
                earlier = files.enter_context(self._folded(before))
            with self._reading(set_id) as items, self._sources(items) as sources:
                slices = release(sources, earlier, tombstones=tombstones)
                checksum = write_run(self._folder / name, set_id, sequence, slices)
            file = RunFile(name, earlier.sent + sum(map(_sent, items)), checksum)
            later = files.enter_context(self._folded(file))
            added = (found.added for found in released_between(earlier, later))
            removed = (found.removed for found in released_between(earlier, later))
            yield file, _chunks(added), _chunks(removed)

    def _folded(self, file: RunFile) -> closing[FoldedRun]:
        return closing(FoldedRun(self._folder / file.name, file.checksum, file.sent))

    def holds_any(self, set_id: int) -> bool:
        """Whether any upload into the set was ever finished."""
        return any(self._ledger.count_items(set_id))

    @contextmanager
    def _reading(self, set_id: int) -> Iterator[list[Item]]:
        """What the set holds; in the block none of its files goes."""
        with self._guard:
            items = self._ledger.items(set_id)
            files = [file.name for item in items if isinstance(item, StoredRun) for file in item.files]
            self._in_use.update(files)
        try:
            yield items
        finally:
            with self._guard:
                self._in_use.subtract(files)
                self._in_use += Counter()  # without the zeros

    @contextmanager
    def _sources(self, items: Sequence[Item]) -> Iterator[list[Source]]:
        with ExitStack() as files:
            sources: list[Source] = []
            small: list[tuple[bool, Digests]] = []
            room = LIMIT
            for item in items:
                if isinstance(item, SmallUpload):
                    small.append((item.operation is Operation.ADD, item.digests))
                    continue
                sources += _memory_source(small)
                small = []
                source = self._source(item, files)
                if isinstance(source, UploadedRun) and source.sent <= room:
                    room -= source.sent
                    source = source.loaded()
                sources.append(source)
            yield sources + _memory_source(small)

    def _source(self, run: StoredRun, files: ExitStack) -> FoldedRun | UploadedRun | MemorySource:
        if run.operation is None:
            return files.enter_context(self._folded(*run.files))
        spools = [(self._folder / file.name, file.sent, file.checksum) for file in run.files]
        return UploadedRun(spools, adds=run.operation is Operation.ADD)

    def check(self, set_id: int) -> None:
        """Look whether the set's runs are there and of their length, without reading them. Raises StateCorrupted."""
        with self._reading(set_id) as items, ExitStack() as files:
            for run in items:
                if not isinstance(run, StoredRun):
                    continue
                self._source(run, files)
                for file in run.files if run.operation is not None else ():
                    path = self._folder / file.name
                    if not path.is_file() or path.stat().st_size < least_bytes(file.sent):
                        raise damaged_run(file.name, "missing or too short")

    # Compaction

    def due(self, set_id: int) -> bool:
        """Whether the set has so many runs, small uploads, or elements in runs that are not folded, that it is time to fold."""
        runs, small, fresh = self._ledger.count_items(set_id)
        return runs >= MANY_RUNS or small >= MANY_SMALL or fresh >= MANY_SENT

    def full(self, set_id: int) -> bool:
        """Whether the set has so many runs that the next upload has to wait for a compaction."""
        runs, small, _ = self._ledger.count_items(set_id)
        return runs >= MAX_RUNS or small >= MAX_SMALL

    def compact(self, set_id: int, *, whole: bool = False, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Fold the newest runs and small uploads of the set into one run, if that is due; whether anything was folded.

        whole: all of them, if any was a removal, so that removed digests leave the disk, and checksums of uploads. Raises
        NotFound, StateCorrupted naming a damaged run, StorageFull, Stopped; what the set holds is as before then.
        """
        if not whole and not self.due(set_id):
            return False
        with self._compacting[set_id]:
            self._ledger.drop_expired(set_id)
            with self._reading(set_id) as items:
                if self._ledger.expires(set_id):
                    folds = _folds_by_day(items, whole)
                else:
                    chosen = _chosen(items, whole)
                    folds = [(chosen, (), len(chosen) < len(items))] if chosen else []
                folded = any([self._fold(set_id, *wanted, stopping) for wanted in folds])  # noqa: C419 - all of them
            if whole:  # always: a replacement and an earlier fold leave no removal behind
                self._ledger.forget_checksums(set_id)
            return folded

    def _fold(
        self,
        set_id: int,
        chosen: Sequence[Item],
        later: Sequence[Item],
        keep_removed: bool,
        stopping: Callable[[], bool],
    ) -> bool:
        """Put one run in the place of consecutive items; whether they were still there. later: as of `fold`."""
        number = chosen[-1].number
        with self._writing(set_id) as name, self._sources(chosen) as sources, self._sources(later) as after:
            slices = _until(fold(sources, keep_removed=keep_removed, later=after), stopping)
            checksum = write_run(self._folder / name, set_id, number, slices)
            file = RunFile(name, sum(map(_sent, chosen)), checksum)
            removes = keep_removed and any(map(_removes, chosen))
            run = StoredRun(number, None, (file,), removes, chosen[-1].day)
            return self._ledger.replace_items(set_id, [item.number for item in chosen], run)

    @contextmanager
    def _writing(self, set_id: int) -> Iterator[str]:
        """The block in which a file is written, under a name that no file of the set ever had, which goes again unless the ledger
        takes it on."""
        with self._guard:
            name = self._ledger.new_run_file(set_id)
            self._in_use[name] += 1
        try:
            yield name
        finally:
            with self._guard:
                self._in_use[name] -= 1

    def discard(self) -> int:
        """Delete the files that no set holds any more and no thread reads; returns how many."""
        with self._guard:
            gone = [name for name in self._ledger.leftovers() if not self._in_use[name]]
            for name in gone:
                remove_spool(self._folder / name)
            if gone:
                for folder in {(self._folder / name).parent for name in gone}:
                    sync_folder(folder)
                self._ledger.forget_leftovers(gone)
            return len(gone)

    def set_unknown_aside(self) -> list[str]:
        """At the start: move runs and spools that the ledger does not know into ``quarantine``; returns their names."""
        known = self._ledger.run_files() | set(self._ledger.leftovers())
        known |= {spool_name(upload) for upload in self._ledger.all_open_uploads()}
        moved = []
        for path in chain((self._folder / "runs").iterdir(), (self._folder / "spools").iterdir()):
            if path.name.endswith(TEMPORARY_SUFFIX):
                path.unlink()
            elif f"{path.parent.name}/{path.name}" not in known and _OURS.fullmatch(path.name):
                aside = self._folder / "quarantine"
                aside.mkdir(mode=FOLDER_MODE, exist_ok=True)
                path.rename(_free(aside / path.name))
                moved.append(f"{path.parent.name}/{path.name}")
        if moved:
            for name in ("runs", "spools", "quarantine", "."):
                sync_folder(self._folder / name)
        return moved


def _chunks(parts: Iterable[Digests]) -> Iterator[Digests]:
    return (part[start : start + CHUNK_DIGESTS] for part in parts for start in range(0, len(part), CHUNK_DIGESTS))


def _memory_source(small: Sequence[tuple[bool, Digests]]) -> list[Source]:
    """Consecutive small uploads as one source."""
    if not small:
        return []
    added, removed = last_operations(small)
    return [MemorySource(added, removed, sum(len(digests) for _, digests in small))]


def _until(slices: Iterator[Slice], stopping: Callable[[], bool]) -> Iterator[Slice]:
    for found in slices:
        if stopping():
            raise Stopped
        yield found


def _free(path: Path) -> Path:
    """A name beside ``path`` that nothing bears."""
    names = chain((path,), (path.with_name(f"{path.name}.{number}") for number in range(1, 1 << 30)))
    return next(name for name in names if not name.exists())


def _sent(item: Item) -> int:
    return len(item.digests) if isinstance(item, SmallUpload) else item.sent


def _removes(item: Item) -> bool:
    return item.operation is Operation.REMOVE if isinstance(item, SmallUpload) else item.removes


def _folded(item: Item) -> bool:
    return isinstance(item, StoredRun) and item.operation is None


def _folds_by_day(items: Sequence[Item], whole: bool) -> list[tuple[Sequence[Item], Sequence[Item], bool]]:
    """What to fold of a set whose elements expire: never items of two days, as a day goes as a whole.

    whole: all days, oldest first, each without what was removed later; so no removal is needed any more afterwards.
    """
    days = [list(group) for _, group in groupby(items, key=lambda item: item.day)]
    if whole:
        if not any(map(_removes, items)):
            return []
        return [(day, list(chain.from_iterable(days[place + 1 :])), False) for place, day in enumerate(days)]
    folds: list[tuple[Sequence[Item], Sequence[Item], bool]] = [(day, (), True) for day in days[:-1] if len(day) > 1]
    newest = _chosen(days[-1], whole=False) if days else ()
    return [*folds, (newest, (), True)] if newest else folds


def _chosen(items: Sequence[Item], whole: bool) -> Sequence[Item]:
    """The newest items, which a compaction should fold."""
    if whole:
        return items if any(map(_removes, items)) else ()
    first, sent = len(items), 0
    while first and (not _folded(items[first - 1]) or _sent(items[first - 1]) <= GROWTH * sent):
        first -= 1
        sent += _sent(items[first])
    chosen = items[first:]
    return () if len(chosen) == 1 and _folded(chosen[0]) else chosen
