"""Upload spools: an acknowledged batch is there after any kill, or its loss is told; never is it silently gone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from storage_examples import digests_of, kill, read_line, start_worker

from veilset.errors import OutOfSequence, StateCorrupted
from veilset_server.state.spool import _FRAME_HEAD as MARK_BYTES
from veilset_server.state.spool import _MARK_OFFSET as MARK_OFFSET
from veilset_server.state.spool import _PAIR, Spool, _sealed, read_spool, remove_spool

EXAMPLES = settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
COUNTS = [3, 2, 1, 40]
PLACES = st.integers(0, 1 << 40)


def opened(folder: Path, serial: int = 1) -> Spool:
    """A spool of set 1, made if new."""
    (folder / "spools").mkdir(exist_ok=True)
    return Spool(folder / "spools" / f"1-{serial}.spool", 1, serial)


def read(spool: Spool, folder: Path) -> list[NDArray[np.uint64]]:
    """All that it holds, from the file as its run."""
    return list(read_spool(only_spool(folder), spool.elements, spool.checksum()))


def fill(spool: Spool) -> None:
    """Append batches of `COUNTS` digests."""
    for batch, count in enumerate(COUNTS, start=1):
        spool.append(batch, digests_of(batch, count))


def holds(spool: Spool, batches: int) -> bool:
    """Whether the spool holds exactly the first batches of `COUNTS`, told in every way that it tells."""
    expected = [digests_of(batch, count) for batch, count in enumerate(COUNTS[:batches], start=1)]
    packed = b"".join(digests.astype("<u8").tobytes() for digests in expected)
    return (
        spool.sequence == batches
        and spool.elements == sum(COUNTS[:batches])
        and spool.checksum() == xxhash.xxh3_128_digest(packed)
    )


def only_spool(folder: Path) -> Path:
    """The one spool's file."""
    (path,) = (folder / "spools").iterdir()
    return path


def test_batches_come_back_in_order(tmp_path: Path) -> None:
    """From the open spool, and from the file."""
    spool = opened(tmp_path)
    assert holds(spool, 0)
    fill(spool)
    assert holds(spool, len(COUNTS))
    assert sum(len(chunk) for chunk in read(spool, tmp_path)) == sum(COUNTS)
    spool.sync()
    spool.close()
    spool.close()
    again = opened(tmp_path)
    assert holds(again, len(COUNTS))
    again.append(len(COUNTS) + 1, digests_of(9))
    again.close()


@pytest.mark.parametrize("sequence", [0, 1, 2, 4, -1])
def test_only_the_next_batch_is_taken(tmp_path: Path, sequence: int) -> None:
    """Any other is refused, and nothing of it is held."""
    spool = opened(tmp_path)
    spool.append(1, digests_of(1, COUNTS[0]))
    if sequence != 2:
        with pytest.raises(OutOfSequence):
            spool.append(sequence, digests_of(2))
    assert holds(spool, 1)
    spool.close()


@pytest.mark.parametrize("shape", [(), (0,), (4, 2), (2, 2, 2)])
def test_digests_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """They would be counted wrongly."""
    spool = opened(tmp_path)
    with pytest.raises(ValueError, match="shape"):
        spool.append(1, np.zeros(shape, np.uint64))
    spool.close()


def test_views_and_other_byte_orders_are_stored_by_value(tmp_path: Path) -> None:
    """What is on disk is little-endian and contiguous, whatever the array is in memory."""
    digests = digests_of(1, 10)
    spool = opened(tmp_path)
    spool.append(1, digests[::2])
    spool.append(2, digests[1::2].astype(">u8").astype(np.uint64))
    found = np.concatenate(read(spool, tmp_path))
    assert (found == np.concatenate([digests[::2], digests[1::2]])).all()
    spool.close()


def test_a_stream_that_was_taken_over_cannot_add(tmp_path: Path) -> None:
    """The first of the two to append goes on; the other is told to resume, and adds nothing."""
    old, new = opened(tmp_path), opened(tmp_path)
    new.append(1, digests_of(1, COUNTS[0]))
    with pytest.raises(OutOfSequence):
        old.append(1, digests_of(8))
    with pytest.raises(OutOfSequence):
        old.sync()
    assert holds(new, 1)
    old.close()
    new.close()


# Crashes


@pytest.mark.parametrize("lines", [1, 5, 40])
def test_acknowledged_batches_survive_a_kill(tmp_path: Path, lines: int) -> None:
    """SIGKILL amid appends of up to 1 MiB: every batch told is there, whole, and the upload goes on; and again."""
    for _ in range(2):
        worker = start_worker("append", tmp_path, "")
        told = [read_line(worker) for _ in range(lines)]
        told += kill(worker)
        spool = opened(tmp_path)
        last = int(told[-1])
        assert spool.sequence in (last, last + 1)
        sent = [digests_of(batch, 1 << (batch * 7 % 17)) for batch in range(1, spool.sequence + 1)]
        assert (np.concatenate(read(spool, tmp_path)) == np.concatenate(sent)).all()
        spool.close()


@EXAMPLES
@given(batch=st.integers(1, len(COUNTS)), torn=PLACES)
def test_a_torn_last_write_is_cut_off(tmp_path: Path, batch: int, torn: int) -> None:
    """A killed process had written part of a frame, of any length, and not moved the mark: the batch was not acknowledged."""
    spool = opened(tmp_path)
    for number, count in enumerate(COUNTS[: batch - 1], start=1):
        spool.append(number, digests_of(number, count))
    path = only_spool(tmp_path)
    before = path.read_bytes()
    spool.append(batch, digests_of(batch, COUNTS[batch - 1]))
    spool.close()
    frame = path.read_bytes()[len(before) :]
    part = frame[: torn % (len(frame) + 1)]
    path.write_bytes(before + part)
    again = opened(tmp_path)
    assert holds(again, batch if part == frame else batch - 1)
    again.append(again.sequence + 1, digests_of(99))
    again.close()
    remove_spool(only_spool(tmp_path))


@EXAMPLES
@given(place=PLACES, kind=st.sampled_from(["flip", "cut", "zeros", "remove a stretch"]))
def test_damage_to_what_was_acknowledged_is_told(tmp_path: Path, place: int, kind: str) -> None:
    """A flipped bit anywhere, any cut, any lost stretch: refused by name, and the file is left as it is."""
    spool = opened(tmp_path)
    fill(spool)
    spool.close()
    path = only_spool(tmp_path)
    sound = path.read_bytes()
    start = place % len(sound)
    match kind:
        case "flip":
            changed = bytearray(sound)
            changed[start] ^= 1 << (place // len(sound)) % 8
            damaged = bytes(changed)
        case "cut":
            damaged = sound[:start]
        case "zeros":
            damaged = sound[:start] + bytes(len(sound) - start)
        case _:
            damaged = sound[:start] + sound[start + 1 + place % 300 :]
    path.write_bytes(damaged)
    if damaged != sound:
        with pytest.raises(StateCorrupted, match=path.name):
            opened(tmp_path)
        assert path.read_bytes() == damaged
    remove_spool(only_spool(tmp_path))


def test_a_spool_of_another_upload_is_refused(tmp_path: Path) -> None:
    """As from a file that was renamed."""
    opened(tmp_path).close()
    only_spool(tmp_path).rename(tmp_path / "moved")
    opened(tmp_path, 2).close()
    target = only_spool(tmp_path)
    (tmp_path / "moved").rename(target)
    with pytest.raises(StateCorrupted, match=target.name):
        opened(tmp_path, 2)


def test_a_frame_behind_the_mark_is_kept_if_it_is_whole(tmp_path: Path) -> None:
    """The process died between the write and the mark; keeping the batch is right, as the producer will be told."""
    spool = opened(tmp_path)
    fill(spool)
    spool.close()
    path = only_spool(tmp_path)
    fresh = opened(tmp_path, 2)
    fresh.close()
    (other,) = set((tmp_path / "spools").iterdir()) - {path}
    mark = slice(MARK_OFFSET, MARK_OFFSET + MARK_BYTES)
    data = bytearray(path.read_bytes())
    data[mark] = other.read_bytes()[mark]  # the mark of an empty spool
    path.write_bytes(data)
    again = opened(tmp_path)
    assert holds(again, len(COUNTS))
    again.close()


@pytest.mark.parametrize(("length", "sequence"), [(0, 3), (0, 5), (-1, 3), (-1, 4), (1, 4)])
def test_a_mark_that_no_append_wrote_is_refused(tmp_path: Path, length: int, sequence: int) -> None:
    """It has to lie at the end of a frame, and at that of its own sequence; length is relative to the file's."""
    spool = opened(tmp_path)
    fill(spool)
    spool.close()
    path = only_spool(tmp_path)
    data = bytearray(path.read_bytes())
    data[MARK_OFFSET : MARK_OFFSET + MARK_BYTES] = _sealed(_PAIR.pack(len(data) + length, sequence))
    path.write_bytes(data)
    with pytest.raises(StateCorrupted, match=path.name):
        opened(tmp_path)


def test_a_write_that_stops_early_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel may at any length, also where there is space."""
    spool = opened(tmp_path)
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real_pwrite(descriptor, data[:100], offset))
    fill(spool)
    assert holds(spool, len(COUNTS))
    spool.close()
    again = opened(tmp_path)
    assert holds(again, len(COUNTS))
    again.close()


def test_a_failed_append_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error at the mark, behind the frame, takes the frame back; the same batch can be sent again."""
    spool = opened(tmp_path)
    spool.append(1, digests_of(1, COUNTS[0]))
    path = only_spool(tmp_path)
    before = path.read_bytes()
    real_pwrite = os.pwrite
    failures = [ZeroDivisionError("at the mark")]

    def fail_once(descriptor: int, data: bytes, offset: int) -> int:
        if failures:
            raise failures.pop()
        return real_pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", fail_once)
    with pytest.raises(ZeroDivisionError):
        spool.append(2, digests_of(2, COUNTS[1]))
    assert path.read_bytes() == before
    spool.append(2, digests_of(2, COUNTS[1]))
    assert holds(spool, 2)
    spool.close()
