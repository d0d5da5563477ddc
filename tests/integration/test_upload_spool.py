"""Upload spools: an acknowledged batch is there after any kill, or its loss is told; never is it silently gone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from storage_examples import add_set, digests_of, kill, new_files, new_ledger, read_line, start_worker

from veilset.errors import OutOfSequence, StateCorrupted
from veilset_server.ports import UploadSpool, VectorSpool
from veilset_server.records import UploadState
from veilset_server.state.spools.format import FRAME_HEAD_BYTES, MARK_BYTES, MARK_OFFSET, Mark, pack_mark
from veilset_server.state.vector_files import VectorFiles

EXAMPLES = settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
COUNTS = [3, 0, 1, 40]
PLACES = st.integers(0, 1 << 40)


@pytest.fixture
def files(tmp_path: Path) -> VectorFiles:
    """The files of an empty state folder."""
    return new_files(tmp_path)


def fill(spool: UploadSpool) -> None:
    """Append batches of `COUNTS` digests."""
    for batch, count in enumerate(COUNTS, start=1):
        spool.append(batch, digests_of(batch, count))


def holds(spool: UploadSpool, batches: int) -> bool:
    """Whether the spool holds exactly the first batches of `COUNTS`, told in every way that it tells."""
    expected = [digests_of(batch, count) for batch, count in enumerate(COUNTS[:batches], start=1)]
    packed = b"".join(digests.astype("<u8").tobytes() for digests in expected)
    return (
        spool.sequence == batches
        and spool.elements == sum(COUNTS[:batches])
        and spool.checksum() == xxhash.xxh3_128_digest(packed)
        and b"".join(chunk.tobytes() for chunk in spool.read()) == packed
    )


def only_spool(folder: Path) -> Path:
    """The one spool's file."""
    (path,) = (folder / "spools").iterdir()
    return path


def test_batches_come_back_in_order(files: VectorFiles) -> None:
    """From the open spool, and from the file."""
    spool = files.open_spool(1, "u")
    assert holds(spool, 0)
    fill(spool)
    assert holds(spool, len(COUNTS))
    assert [chunk.shape for chunk in spool.read()] == [(count,) for count in COUNTS]
    spool.sync()
    spool.close()
    spool.close()
    again = files.open_spool(1, "u")
    assert holds(again, len(COUNTS))
    again.append(len(COUNTS) + 1, digests_of(9))
    again.close()


@pytest.mark.parametrize("sequence", [0, 1, 2, 4, -1])
def test_only_the_next_batch_is_taken(files: VectorFiles, sequence: int) -> None:
    """Any other is refused, and nothing of it is held."""
    spool = files.open_spool(1, "u")
    spool.append(1, digests_of(1, COUNTS[0]))
    if sequence != 2:
        with pytest.raises(OutOfSequence):
            spool.append(sequence, digests_of(2))
    assert holds(spool, 1)
    spool.close()


@pytest.mark.parametrize("shape", [(), (4, 2), (0, 2), (2, 2, 2)])
def test_digests_of_another_shape_are_refused(files: VectorFiles, shape: tuple[int, ...]) -> None:
    """They would be counted wrongly."""
    spool = files.open_spool(1, "u")
    with pytest.raises(ValueError, match="shape"):
        spool.append(1, np.zeros(shape, np.uint64))
    spool.close()


def test_views_and_other_byte_orders_are_stored_by_value(files: VectorFiles) -> None:
    """What is on disk is little-endian and contiguous, whatever the array is in memory."""
    digests = digests_of(1, 10)
    spool = files.open_spool(1, "u")
    spool.append(1, digests[::2])
    spool.append(2, digests[1::2].astype(">u8"))
    read = np.concatenate(list(spool.read()))
    assert (read == np.concatenate([digests[::2], digests[1::2]])).all()
    spool.close()


def test_spools_are_apart_and_no_text_of_a_producer_names_a_file(files: VectorFiles, tmp_path: Path) -> None:
    """Any upload id, in any set, is a file of its own inside the folder."""
    upload_ids = ["u", "U", "../../u", "/etc/passwd", "a\0b", "\udc80", "é", "e\u0301", "x" * 128, "*", "-1", ""]
    for set_id in (1, 2):
        for upload_id in upload_ids:
            spool = files.open_spool(set_id, upload_id)
            assert spool.sequence == 0
            spool.append(1, digests_of(1))
            spool.close()
    names = {path.name for path in (tmp_path / "spools").iterdir()}
    assert len(names) == 2 * len(upload_ids)
    assert all(set(name) <= set("0123456789abcdef-.spool") for name in names)
    for _ in range(2):
        files.remove_spool(1, "../../u")
    assert len(list((tmp_path / "spools").iterdir())) == len(names) - 1


def test_the_spools_of_no_upload_under_way_go(tmp_path: Path) -> None:
    """Of both kinds, in whatever set; those of open and of accepted uploads stay."""
    files = new_files(tmp_path)
    with new_ledger(tmp_path) as ledger:
        add_set(ledger)
        kinds: tuple[Callable[[int, str], UploadSpool | VectorSpool], ...] = files.open_spool, files.open_vector_spool
        for (kind, open_spool), state in product(enumerate(kinds), UploadState):
            upload_id = f"{kind}/{state}"
            open_spool(1, upload_id).close()
            ledger.open_upload(1, upload_id)
            if state is not UploadState.OPEN:
                ledger.accept_upload(1, upload_id, 0)
            if state is UploadState.FINISHED:
                ledger.finish_upload(1, upload_id, 0, b"")
            for set_id in (1, 7):
                open_spool(set_id, f"unknown/{upload_id}").close()
        under_way = [
            (upload.set_id, upload.upload_id) for upload in ledger.all_open_uploads() + ledger.merging_uploads()
        ]
    assert len(under_way) == 4
    assert len(list((tmp_path / "spools").iterdir())) == 18
    assert files.remove_other_spools(under_way) == 14
    assert files.remove_other_spools(under_way) == 0
    kept = {f"1-{hashlib.sha256(upload_id.encode()).hexdigest()}.spool" for _, upload_id in under_way}
    assert {path.name for path in (tmp_path / "spools").iterdir()} == kept


def test_what_is_not_ours_among_the_spools_stays(files: VectorFiles, tmp_path: Path) -> None:
    """Names that no spool has, and what has such a name and is no file."""
    folder, zeros = tmp_path / "spools", "0" * 64
    foreign = ("notes.spool", "a" * 64 + ".spool", f"01-{zeros}.spool", f"1-{zeros}.spool.bak", f"1-{'A' * 64}.spool")
    for name in foreign:
        (folder / name).touch()
    (tmp_path / "elsewhere").touch()
    (folder / f"1-{zeros}.spool").symlink_to(tmp_path / "elsewhere")
    (folder / f"2-{zeros}.spool").mkdir()
    assert files.remove_other_spools([]) == 0
    assert len(list(folder.iterdir())) == len(foreign) + 2


def test_a_stream_that_was_taken_over_cannot_add(files: VectorFiles) -> None:
    """The first of the two to append goes on; the other is told to resume, and adds nothing."""
    old, new = files.open_spool(1, "u"), files.open_spool(1, "u")
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
def test_acknowledged_batches_survive_a_kill(files: VectorFiles, tmp_path: Path, lines: int) -> None:
    """SIGKILL amid appends of up to 1 MiB: every batch told is there, whole, and the upload goes on; and again."""
    for _ in range(2):
        worker = start_worker("append", tmp_path, "u")
        told = [read_line(worker) for _ in range(lines)]
        told += kill(worker)
        spool = files.open_spool(1, "u")
        last = int(told[-1])
        assert spool.sequence in (last, last + 1)
        for batch, digests in enumerate(spool.read(), start=1):
            assert (digests == digests_of(batch, 1 << (batch * 7 % 17))).all()
        assert batch == spool.sequence
        spool.close()


@EXAMPLES
@given(batch=st.integers(1, len(COUNTS)), torn=PLACES)
def test_a_torn_last_write_is_cut_off(files: VectorFiles, tmp_path: Path, batch: int, torn: int) -> None:
    """A killed process had written part of a frame, of any length, and not moved the mark: the batch was not acknowledged."""
    spool = files.open_spool(1, "u")
    for number, count in enumerate(COUNTS[: batch - 1], start=1):
        spool.append(number, digests_of(number, count))
    path = only_spool(tmp_path)
    before = path.read_bytes()
    spool.append(batch, digests_of(batch, COUNTS[batch - 1]))
    spool.close()
    frame = path.read_bytes()[len(before) :]
    part = frame[: torn % (len(frame) + 1)]
    path.write_bytes(before + part)
    again = files.open_spool(1, "u")
    assert holds(again, batch if part == frame else batch - 1)
    again.append(again.sequence + 1, digests_of(99))
    again.close()
    files.remove_spool(1, "u")


@EXAMPLES
@given(place=PLACES, kind=st.sampled_from(["flip", "cut", "zeros", "remove a stretch"]))
def test_damage_to_what_was_acknowledged_is_told(files: VectorFiles, tmp_path: Path, place: int, kind: str) -> None:
    """A flipped bit anywhere, any cut, any lost stretch: refused by name, and the file is left as it is."""
    spool = files.open_spool(1, "u")
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
            files.open_spool(1, "u")
        assert path.read_bytes() == damaged
    files.remove_spool(1, "u")


def test_a_spool_of_another_upload_is_refused(files: VectorFiles, tmp_path: Path) -> None:
    """As from a file that was renamed."""
    files.open_spool(1, "u").close()
    only_spool(tmp_path).rename(tmp_path / "moved")
    files.open_spool(1, "v").close()
    target = only_spool(tmp_path)
    (tmp_path / "moved").rename(target)
    with pytest.raises(StateCorrupted, match=target.name):
        files.open_spool(1, "v")


def test_a_frame_behind_the_mark_is_kept_if_it_is_whole(files: VectorFiles, tmp_path: Path) -> None:
    """The process died between the write and the mark; keeping the batch is right, as the producer will be told."""
    spool = files.open_spool(1, "u")
    fill(spool)
    spool.close()
    path = only_spool(tmp_path)
    fresh = files.open_spool(1, "fresh")
    fresh.close()
    (other,) = set((tmp_path / "spools").iterdir()) - {path}
    mark = slice(MARK_OFFSET, MARK_OFFSET + MARK_BYTES)
    data = bytearray(path.read_bytes())
    data[mark] = other.read_bytes()[mark]  # the mark of an empty spool
    path.write_bytes(data)
    again = files.open_spool(1, "u")
    assert holds(again, len(COUNTS))
    again.close()


@pytest.mark.parametrize(("length", "sequence"), [(0, 3), (0, 5), (-1, 3), (-1, 4), (1, 4)])
def test_a_mark_that_no_append_wrote_is_refused(files: VectorFiles, tmp_path: Path, length: int, sequence: int) -> None:
    """It has to lie at the end of a frame, and at that of its own sequence; length is relative to the file's."""
    spool = files.open_spool(1, "u")
    fill(spool)
    spool.close()
    path = only_spool(tmp_path)
    data = bytearray(path.read_bytes())
    data[MARK_OFFSET : MARK_OFFSET + MARK_BYTES] = pack_mark(Mark(len(data) + length, sequence))
    path.write_bytes(data)
    with pytest.raises(StateCorrupted, match=path.name):
        files.open_spool(1, "u")


def test_a_write_that_stops_early_is_carried_on(files: VectorFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel may at any length, also where there is space."""
    spool = files.open_spool(1, "u")
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda descriptor, parts, offset: real_pwrite(descriptor, parts[0][:7], offset))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: real_pwrite(descriptor, data[:100], offset))
    fill(spool)
    assert holds(spool, len(COUNTS))
    spool.close()
    again = files.open_spool(1, "u")
    assert holds(again, len(COUNTS))
    again.close()


def test_damage_while_the_spool_is_open_is_told_by_read(files: VectorFiles, tmp_path: Path) -> None:
    """Frames are checked again when they are merged."""
    spool = files.open_spool(1, "u")
    fill(spool)
    with only_spool(tmp_path).open("r+b") as file:
        file.seek(MARK_OFFSET + MARK_BYTES + FRAME_HEAD_BYTES + 5)
        file.write(b"\xff\x00")
    with pytest.raises(StateCorrupted):
        list(spool.read())
    spool.close()


def test_a_failed_append_holds_nothing(files: VectorFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error at the mark, behind the frame, takes the frame back; the same batch can be sent again."""
    spool = files.open_spool(1, "u")
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
