"""Uploads that are cut, by either side, go on where they were; nothing acknowledged is lost, nothing unfinished is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from harness.programs import unused_port
from harness.raw_calls import RawUpload, digest_batch, finish, hashed, open_upload, raw_batch, refuse_publishing
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters, shape_of_set
from harness.vectors import expected_vector, raw_vector
from veilset._input.columns import BATCH
from veilset._service.service import Service
from veilset.core.release.wire import hashing_from_proto
from veilset.errors import AlreadyExists, InvalidInput, UploadMismatch
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

ELEMENTS = [b"element %d" % number for number in range(1000)]


def create(connection: Service, name: str, size: int = 1000) -> FilterParameters:
    """A set for what the test sends."""
    return shape_of_set(connection.create_set(name, size=size, epsilon=2, adjacency="add-remove"))


@pytest.fixture
def shape(service: ServiceProcess, set_name: str) -> FilterParameters:
    """An empty set under ``set_name``."""
    with service.connect() as connection:
        return create(connection, set_name)


def test_open_tells_how_to_hash_and_where_to_go_on(
    stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """A new upload starts at batch 1, one of another name too."""
    for upload_id in ("one", "two"):
        with RawUpload(stub, open_upload(set_name, upload_id)) as stream:
            opened = stream.opened()
            assert (opened.sequence, opened.elements, opened.finished) == (0, 0, False)
            assert hashing_from_proto(opened.hashing) == shape.hashing
            assert opened.max_batch_elements == BATCH


@pytest.mark.parametrize("end", ["reset", "half-close", "mistake"])
def test_a_cut_upload_goes_on_from_its_last_acknowledgement(
    end: str, service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """However the stream ended; what it held is neither lost nor used before finish."""
    batches = [ELEMENTS[:300], ELEMENTS[300:350], ELEMENTS[350:]]
    with RawUpload(stub, open_upload(set_name, "u"), raw_batch(1, batches[0]), raw_batch(2, batches[1])) as stream:
        stream.opened()
        assert [stream.acknowledged(), stream.acknowledged()] == [(1, 300), (2, 350)]
        if end == "half-close":
            stream.half_close()
            assert stream.failure().metadata == {"field": "finish"}
        elif end == "mistake":
            stream.send(raw_batch(4, [b"never"]))
            assert stream.failure().reason == "OUT_OF_SEQUENCE"
    refuse_publishing(stub, set_name)
    assert not any(raw_vector(service.state, set_name))
    with RawUpload(stub, open_upload(set_name, "u")) as stream:
        opened = stream.opened()
        assert (opened.sequence, opened.elements) == (2, 350)
        stream.send(raw_batch(3, batches[2]), finish(1000, hashed(ELEMENTS, shape.seed)))
        assert stream.acknowledged() == (3, 1000)
        assert stream.finished() == 1000
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS)
    with RawUpload(stub, open_upload(set_name, "u")) as stream:
        opened = stream.opened()
        assert (opened.finished, opened.elements) == (True, 1000)


def test_replayed_batches_are_acknowledged_and_ignored(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """Whatever a replay holds: the batch that was acknowledged first is the one that counts."""
    batches = [raw_batch(1, ELEMENTS[:9]), raw_batch(2, ELEMENTS[9:20]), raw_batch(1, [b"other"]), raw_batch(2, [b"o"])]
    with RawUpload(stub, open_upload(set_name, "u"), *batches) as stream:
        stream.opened()
        assert [stream.acknowledged() for _ in batches] == [(1, 9), (2, 20), (2, 20), (2, 20)]
    with RawUpload(stub, open_upload(set_name, "u"), *batches, finish(20)) as stream:
        stream.opened()
        assert {stream.acknowledged() for _ in batches} == {(2, 20)}
        assert stream.finished() == 20
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:20])


def test_a_second_stream_takes_the_upload_over(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """The first one, a cut connection that nobody noticed yet, can neither add nor finish any more."""
    for last_word in (raw_batch(2, [b"late"]), finish(9)):
        upload_id = str(last_word.WhichOneof("message"))
        with RawUpload(stub, open_upload(set_name, upload_id), raw_batch(1, ELEMENTS[:9])) as first:
            first.opened()
            first.acknowledged()
            with RawUpload(stub, open_upload(set_name, upload_id)) as second:
                assert second.opened().sequence == 1
                first.send(last_word)
                failure = first.failure()
                assert (failure.code, failure.reason) == ("ABORTED", "OUT_OF_SEQUENCE")
                assert failure.metadata == {"field": "upload_id"}
                second.send(raw_batch(2, ELEMENTS[9:20]), finish(20))
                assert second.acknowledged() == (2, 20)
                assert second.finished() == 20
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:20])


@pytest.mark.parametrize("mismatch", ["count", "checksum"])
def test_a_finish_that_disagrees_discards_the_upload(
    mismatch: str, service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """Producer and service do not have the same elements, so both start over, under the same name if they like."""
    packed = hashed(ELEMENTS[:10], shape.seed)
    last = finish(9, packed) if mismatch == "count" else finish(10, packed[8:])
    with RawUpload(stub, open_upload(set_name, "u"), digest_batch(1, packed), last) as stream:
        failure = stream.failure()
        assert (failure.code, failure.reason) == ("ABORTED", "UPLOAD_MISMATCH")
        assert failure.metadata == {"field": mismatch}
    refuse_publishing(stub, set_name)
    with RawUpload(stub, open_upload(set_name, "u"), digest_batch(1, packed), finish(10, packed)) as stream:
        assert stream.opened().sequence == 0
        assert stream.acknowledged() == (1, 10)
        assert stream.finished() == 10
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:10])


def test_a_checksum_is_asked_of_streams_that_send_digests(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """It covers the whole upload where it is given; a stream that only resumes, with raw elements or none, may do without."""
    first, rest = ELEMENTS[:500], ELEMENTS[500:]
    packed = hashed(first, shape.seed)
    for upload_id, more in (("raw", rest), ("none", [])):
        with RawUpload(stub, open_upload(set_name, upload_id), digest_batch(1, packed), finish(500)) as stream:
            stream.opened()
            assert stream.acknowledged() == (1, 500)
            refusal = stream.failure()
            assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "INVALID_INPUT")
            assert "checksum" in refusal.message
        with RawUpload(stub, open_upload(set_name, upload_id)) as stream:
            assert stream.opened().elements == 500
            if more:
                stream.send(raw_batch(2, more))
                assert stream.acknowledged() == (2, 1000)
            stream.send(finish(500 + len(more)))
            assert stream.finished() == 500 + len(more)
    wrong = finish(1000, packed)  # of its first half
    with RawUpload(stub, open_upload(set_name, "wrong"), digest_batch(1, packed)) as stream:
        stream.opened()
        assert stream.acknowledged() == (1, 500)
    with RawUpload(stub, open_upload(set_name, "wrong"), raw_batch(2, rest), wrong) as stream:
        stream.opened()
        assert stream.acknowledged() == (2, 1000)
        assert stream.failure().reason == "UPLOAD_MISMATCH"
    with service.connect() as connection:
        shape = shape_of_set(connection.get_set(set_name))
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS)


def test_a_producer_whose_elements_fail_leaves_nothing(service: ServiceProcess, set_name: str) -> None:
    """The library tells the producer's own error; what it had sent is not used, and can be gone on with."""

    def elements(end: int) -> Iterator[str]:
        yield from (str(number) for number in range(end))
        if end < 100_000:
            raise LookupError("the database went away")

    with service.connect() as connection:
        shape = create(connection, set_name, 100_000)
        with pytest.raises(LookupError, match="database"):
            connection.add(set_name, elements(90_000), upload_id="u")
        with pytest.raises(InvalidInput):
            connection.add(set_name, [*elements(100_000), ""], upload_id="v")
        assert not any(raw_vector(service.state, set_name))
        result = connection.add(set_name, elements(100_000), upload_id="u")
        assert (result.elements, result.resumed) == (100_000, BATCH)
        again = connection.add(set_name, elements(100_000), upload_id="u")
        assert (again.elements, again.resumed) == (100_000, 100_000)
    expected = expected_vector(shape, [str(number).encode() for number in range(100_000)])
    assert raw_vector(service.state, set_name) == expected


def test_a_producer_that_comes_back_with_other_elements_is_refused(service: ServiceProcess, set_name: str) -> None:
    """Resuming needs the same elements in the same order; the checksum tells."""
    with service.connect() as connection:
        create(connection, set_name)
        with service.stub() as stub, RawUpload(stub, open_upload(set_name, "u"), raw_batch(1, ELEMENTS[:9])) as stream:
            stream.opened()
            stream.acknowledged()
        with pytest.raises(UploadMismatch):
            connection.add(set_name, reversed(ELEMENTS), upload_id="u")
        assert not any(raw_vector(service.state, set_name))


@pytest.mark.parametrize("lazy", [False, True], ids=["a list", "an iterator"])
@pytest.mark.parametrize("number", [0, 1, 999, 1001, 3000])
def test_a_finished_upload_is_not_taken_for_other_elements(
    service: ServiceProcess, set_name: str, number: int, lazy: bool
) -> None:
    """They would be lost without a word: the library counts them. The same elements again are what a resume sends."""
    elements = [b"other %d" % index for index in range(number)]
    with service.connect() as connection:
        shape = create(connection, set_name)
        connection.add(set_name, ELEMENTS, upload_id="nightly")
        with pytest.raises(AlreadyExists, match="finished with other elements") as refused:
            connection.add(set_name, iter(elements) if lazy else elements, upload_id="nightly")
        assert refused.value.details["field"] == "upload_id"
        assert connection.add(set_name, iter(ELEMENTS), upload_id="nightly").elements == 1000
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS)


def test_a_killed_service_loses_nothing_acknowledged(start_service: Callable[..., ServiceProcess]) -> None:
    """The library goes on by itself once the service is back; so does a bare stream, from what was acknowledged."""
    service = start_service(port=unused_port())
    killed: list[int] = []

    def elements() -> Iterator[str]:
        for number in range(2 * BATCH):
            if number == BATCH + 77:
                killed.append(number)
                service.kill()
                service.start()
            yield str(number)

    with service.connect() as connection:
        shape = create(connection, "set", 200_000)
        with service.stub() as stub, RawUpload(stub, open_upload("set", "raw"), raw_batch(1, ELEMENTS)) as stream:
            stream.opened()
            assert stream.acknowledged() == (1, 1000)
            result = connection.add("set", elements())
            assert result.elements == 2 * BATCH
            assert killed == [BATCH + 77]
        with service.stub() as stub, RawUpload(stub, open_upload("set", "raw"), finish(1000)) as stream:
            assert stream.opened().sequence == 1
            assert stream.finished() == 1000
    expected = [*(str(number).encode() for number in range(2 * BATCH)), *ELEMENTS]
    assert raw_vector(service.state, "set") == expected_vector(shape, expected)


def test_a_silent_stream_is_ended_and_can_be_resumed(start_service: Callable[..., ServiceProcess]) -> None:
    """Whether it falls silent before its first message, after opening, or after a batch."""
    service = start_service("--idle-seconds", "1")
    with service.connect() as connection, service.stub() as stub, ExitStack() as stack:
        create(connection, "set")
        beginnings = [[], [open_upload("set", "a")], [open_upload("set", "b"), raw_batch(1, ELEMENTS[:5])]]
        for stream in [stack.enter_context(RawUpload(stub, *messages)) for messages in beginnings]:
            failure = stream.failure()
            assert (failure.code, failure.reason) == ("UNAVAILABLE", "UNAVAILABLE")
            assert failure.metadata == {"kind": "IDLE"}
        with RawUpload(stub, open_upload("set", "b"), finish(5)) as stream:
            assert stream.opened().sequence == 1
            assert stream.finished() == 5
