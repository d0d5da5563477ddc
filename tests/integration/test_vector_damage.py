"""A raw vector that is not what was merged: noticed before it is published or merged into, and named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from publish_examples import Desk, MemoryAnchor, MemoryStore, names, restarted
from storage_examples import UNRECORDED, StoppedClock, add_set, changing, new_files, whole

from veilset.errors import FailedPrecondition, StateCorrupted
from veilset_server.records import UploadState
from veilset_server.state import raw_vectors
from veilset_server.state.folder_format import FORMAT_NAME
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.opened_state import open_state
from veilset_server.state.vector_files import VectorFiles

CHUNK = 1 << 20
LENGTH = 2 * CHUNK + 77  # three chunks
CASES = settings(
    max_examples=250,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Crash(BaseException):
    """The process is gone."""


@contextmanager
def damaged(path: Path, kind: str, place: int) -> Iterator[None]:
    """The file changed in that way, and as it was again behind the block, which may not have changed it."""
    sound = path.read_bytes()
    content = bytearray(sound)
    at = place % len(sound)
    match kind:
        case "flip":
            content[at] ^= 1 << place % 8
        case "zero":
            content[at : at + 4096] = bytes(len(content[at : at + 4096]))
        case "page of ones":
            content[at : at + 4096] = b"\xff" * len(content[at : at + 4096])
        case "cut":
            del content[at:]
        case "grow":
            content += bytes(1 + at % 5000)
        case "empty":
            content.clear()
        case "gone":
            path.unlink()
    if kind != "gone":
        path.write_bytes(content)
    if kind in ("zero", "page of ones") and content == sound:
        content[at] ^= 1
        path.write_bytes(content)
    try:
        yield
        assert (path.read_bytes() if path.exists() else None) == (None if kind == "gone" else bytes(content))
    finally:
        path.write_bytes(sound)


KINDS = st.sampled_from(["flip", "zero", "page of ones", "cut", "grow", "empty", "gone"])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service with a set of one chunk whose upload is finished."""
    found = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    found.create(budget=100)
    found.upload("one", names(1000))
    yield found
    found.close()


@CASES
@given(place=st.integers(0, 1 << 24), kind=KINDS, name=st.sampled_from(["1.bits", "1.sums"]))
def test_nothing_is_published_of_a_damaged_vector_nor_merged_into_it(
    desk: Desk, tmp_path: Path, place: int, kind: str, name: str
) -> None:
    """Whatever bit, wherever: the refusal names the file, charges nothing, and leaves no artefact; sound again, all goes on."""
    charges = desk.account().charges
    with damaged(tmp_path / "vectors" / name, kind, place):
        with pytest.raises(StateCorrupted, match=f"vectors/{name.split('.')[0]}") as refused:
            desk.publish(f"damaged {charges}")
        assert refused.value.details["file"] in ("vectors/1.bits", f"vectors/{name}")
        with pytest.raises(StateCorrupted, match="vectors/1"):
            desk.upload("more", names(1, 5000))
        assert desk.account().charges == charges
        assert list((tmp_path / "artefacts").iterdir()) == []
        assert desk.ledger.finished_uploads(1) == 1


def test_an_upload_into_a_damaged_set_is_accepted_and_waits(desk: Desk, tmp_path: Path) -> None:
    """It was acknowledged, so it is merged as soon as the vector is sound again, without the producer; not before."""
    with damaged(tmp_path / "vectors" / "1.bits", "flip", 12345), pytest.raises(StateCorrupted):
        desk.upload("two", names(10, 5000))
    assert [upload.upload_id for upload in desk.ledger.merging_uploads(1)] == ["elements//two"]
    desk.publish("r")
    assert desk.ledger.merging_uploads() == []
    assert desk.ledger.finished_uploads(1) == 2


def test_a_damaged_set_refuses_and_the_others_go_on(desk: Desk, tmp_path: Path) -> None:
    """An accepted upload whose spool is damaged: at the start it is logged; its set says which file; others serve."""
    session = desk.ingest.open("set", "two")
    session.add_elements(1, names(10, 5000))
    open_one = desk.ingest.open("set", "three")
    open_one.add_elements(1, names(1, 9000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_vectors, "sync_vector", crash)
        with pytest.raises(Crash):
            desk.ingest.finish(session, 10, b"")
    (spool,) = [path for path in (tmp_path / "spools").iterdir() if path.stat().st_size > 200]
    with damaged(spool, "flip", spool.stat().st_size - 3):
        again = restarted(desk, tmp_path)
        add_set(again.ledger, "healthy")
        again.files.create_vector(2, 1 << 13)
        other = again.ingest.open("healthy", "u")
        other.add_elements(1, [name.replace(b" ", b"@") for name in names(60)])  # its elements are e-mail addresses
        assert again.ingest.finish(other, 60, b"") == 60
        assert again.publishing.charge("healthy", "r").sequence == 1
        for use in (
            lambda: again.publish("r"),
            lambda: again.ingest.open("set", "new"),
            lambda: again.ingest.open("set", "two"),
        ):
            with pytest.raises(StateCorrupted, match=spool.name):
                use()
        assert again.ledger.merging_uploads(1) != []
    assert again.publish("r").sequence == 1
    again.close()


def crash(*_: object) -> None:
    """In place of a step that the process did not live to see."""
    raise Crash


# Between a crash in the middle of a merge and the start that completes it


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VectorFiles:
    """Upload "u" was being merged, in place, into the last two of three chunks when the process died."""
    monkeypatch.setattr(raw_vectors, "PRIVATE_BYTES", 0)
    files = new_files(tmp_path)
    files.create_vector(1, LENGTH)
    with changing(files, 1, LENGTH, "before") as vector:
        vector[::100] = 0x11
    with (
        suppress(Crash),
        files.change_vector(1, LENGTH, "u", UNRECORDED, touched=lambda: {1, 2}, positions=10**9) as vector,
    ):
        vector[CHUNK::50] |= 0x80
        raise Crash
    return VectorFiles(tmp_path)


def test_the_same_merge_completes_a_torn_vector(torn: VectorFiles) -> None:
    """Until then nothing reads it; another upload's merge is refused too, as it could not tell what is torn."""
    with pytest.raises(StateCorrupted, match="chunk 1"):
        whole(torn, 1, LENGTH)
    with pytest.raises(StateCorrupted, match="chunk 1"), changing(torn, 1, LENGTH, "v"):
        pass
    with torn.change_vector(1, LENGTH, "u", UNRECORDED, touched=lambda: {1, 2}, positions=10**9) as vector:
        vector[CHUNK::50] |= 0x80
    assert whole(torn, 1, LENGTH) == merged()


@CASES
@given(place=st.integers(0, CHUNK - 1), kind=st.sampled_from(["flip", "zero", "page of ones"]))
def test_damage_beside_a_torn_merge_is_noticed(torn: VectorFiles, tmp_path: Path, place: int, kind: str) -> None:
    """In a chunk that the interrupted upload does not touch nothing is forgiven."""
    with (
        damaged_within(tmp_path / "vectors" / "1.bits", kind, place),
        pytest.raises(StateCorrupted, match=r"vectors/1\.bits.*chunk 0"),
        torn.change_vector(1, LENGTH, "u", UNRECORDED, touched=lambda: {1, 2}, positions=10**9),
    ):
        pass


@contextmanager
def damaged_within(path: Path, kind: str, place: int) -> Iterator[None]:
    """`damaged`, without writing two megabytes each time, and within the first chunk."""
    with path.open("r+b") as file:
        length = min(4096, CHUNK - place % CHUNK, LENGTH - place)
        sound = os.pread(file.fileno(), length, place)
        bad = {"flip": bytes([sound[0] ^ 1 << place % 8]) + sound[1:], "zero": bytes(length)}.get(
            kind, b"\xff" * length
        )
        os.pwrite(file.fileno(), bad if bad != sound else bytes([sound[0] ^ 1]) + sound[1:], place)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), sound, place)


@pytest.fixture
def torn_copy(tmp_path: Path) -> VectorFiles:
    """The same, where the merge works on a copy: it died when half of the second chunk was written."""
    files = new_files(tmp_path)
    files.create_vector(1, LENGTH)
    with changing(files, 1, LENGTH, "before") as vector:
        vector[::100] = 0x11
    path = tmp_path / "vectors" / "1.bits"
    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_vectors, "sync_vector", crash)
        with suppress(Crash), changing(files, 1, LENGTH, "u") as vector:
            vector[CHUNK::50] |= 0x80
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), before[CHUNK + CHUNK // 2 :], CHUNK + CHUNK // 2)
    return VectorFiles(tmp_path)


def merged() -> bytes:
    """What has to come of it."""
    expected = np.zeros(LENGTH, np.uint8)
    expected[::100] = 0x11
    expected[CHUNK::50] |= 0x80
    return expected.tobytes()


def test_a_torn_copy_is_completed(torn_copy: VectorFiles) -> None:
    """By the same upload only."""
    with pytest.raises(StateCorrupted, match="chunk 1"):
        whole(torn_copy, 1, LENGTH)
    with pytest.raises(StateCorrupted, match="chunk 1"), changing(torn_copy, 1, LENGTH, "v"):
        pass
    with changing(torn_copy, 1, LENGTH, "u") as vector:
        vector[CHUNK::50] |= 0x80
    assert whole(torn_copy, 1, LENGTH) == merged()


@settings(CASES, max_examples=60)
@given(place=st.integers(0, LENGTH - 1), kind=st.sampled_from(["flip", "zero", "page of ones"]))
def test_damage_within_a_torn_copy_is_noticed_too(
    torn_copy: VectorFiles, tmp_path: Path, place: int, kind: str
) -> None:
    """Anywhere: the merge that completes it knows what has to come out. What it sets anyway is healed, not noticed."""
    torn_files = {path: path.read_bytes() for path in (tmp_path / "vectors").iterdir()}
    with damaged_within(tmp_path / "vectors" / "1.bits", kind, place):
        refused = False
        try:
            with changing(torn_copy, 1, LENGTH, "u") as vector:
                vector[CHUNK::50] |= 0x80
        except StateCorrupted:
            refused = True
        assert refused or whole(torn_copy, 1, LENGTH) == merged()
    for path, content in torn_files.items():
        path.write_bytes(content)
    with changing(torn_copy, 1, LENGTH, "u") as vector:
        vector[CHUNK::50] |= 0x80
    assert whole(torn_copy, 1, LENGTH) == merged()
    for path, content in torn_files.items():
        path.write_bytes(content)


def test_a_merge_that_was_never_begun_forgives_nothing(tmp_path: Path) -> None:
    """The upload was accepted and the process died before its mark: then a difference is damage, in every chunk."""
    files = new_files(tmp_path)
    files.create_vector(1, LENGTH)
    path = tmp_path / "vectors" / "1.bits"
    with (
        damaged_within(path, "flip", 5),
        pytest.raises(StateCorrupted, match="chunk 0"),
        files.change_vector(1, LENGTH, "u", UNRECORDED, touched=lambda: {0, 1, 2}, positions=10**9),
    ):
        pass


def test_few_bits_have_only_their_own_chunks_checked_and_summed(tmp_path: Path) -> None:
    """A small upload into a large vector does not read all of it; what it did not read is checked by whoever does."""
    files = new_files(tmp_path)
    files.create_vector(1, LENGTH)
    with damaged_within(tmp_path / "vectors" / "1.bits", "flip", 5):
        with files.change_vector(1, LENGTH, "u", UNRECORDED, touched=lambda: {2}, positions=2) as vector:
            vector[-1] = 1
        with pytest.raises(StateCorrupted, match="chunk 0"):
            whole(files, 1, LENGTH)
    assert whole(files, 1, LENGTH) == bytes(LENGTH - 1) + b"\x01"


# Folders from before there were checksums


def test_a_folder_without_sums_is_brought_forward(tmp_path: Path) -> None:
    """Sums of what is there, also of a vector that a crash left torn: its merge completes it. Then they are missed."""
    state = tmp_path / "state"
    with open_state(state, StoppedClock()) as opened:
        stored = add_set(opened.ledger)
        opened.files.create_vector(1, 8192)
        with changing(opened.files, 1, 8192) as vector:
            vector[:] = 0xA5
        opened.ledger.open_upload(stored.set_id, "u")
        opened.ledger.accept_upload(stored.set_id, "u", 0)
    form = json.loads((state / FORMAT_NAME).read_text())
    for _ in range(2):  # the second time a crash came before the new version was written
        (state / FORMAT_NAME).write_text(json.dumps(form | {"version": 1}))
        (state / "vectors" / "1.sums").unlink(missing_ok=True)
        with open_state(state, StoppedClock()) as opened:
            assert whole(opened.files, 1, 8192) == b"\xa5" * 8192
            assert opened.ledger.merging_uploads()[0].state is UploadState.MERGING
    assert json.loads((state / FORMAT_NAME).read_text()) == form
    (state / "vectors" / "1.sums").unlink()
    with open_state(state, StoppedClock()) as opened, pytest.raises(StateCorrupted, match=r"vectors/1\.sums: missing"):
        whole(opened.files, 1, 8192)


def test_no_finished_upload_is_told_before_damage(tmp_path: Path) -> None:
    """Nothing of an unused set is read."""
    desk = Desk(tmp_path, MemoryAnchor(), MemoryStore(tmp_path / LEDGER_NAME))
    desk.create()
    with damaged(tmp_path / "vectors" / "1.bits", "flip", 9), pytest.raises(FailedPrecondition, match="no finished"):
        desk.publish("r")
    desk.close()
