"""MergeVector, message by message: a vector comes in whole or not at all, whatever is cut, repeated or wrong on the way."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import pytest
from merged_sets import BITS, ELEMENTS, create

from harness.raw_calls import Failure, RawUpload, finish, open_upload, raw_batch, refuse_publishing, upload
from harness.raw_merges import RawMerge, chunk, finish_merge, open_merge
from harness.service_process import ServiceProcess
from harness.vectors import expected_vector, raw_vector
from veilset.core.params import FilterParameters, HashScheme, Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import merge_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


@pytest.fixture
def shape(service: ServiceProcess, set_name: str) -> FilterParameters:
    """An empty set under ``set_name``."""
    with service.connect() as connection:
        return create(connection, set_name)


def failing(stub: MembershipServiceStub, *messages: merge_pb2.MergeVectorRequest) -> Failure:
    """How a stream of these messages fails."""
    with RawMerge(stub, *messages) as stream:
        return stream.failure()


# What is refused


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bits": BITS + 1}, "bits"),
        ({"hashes": 4}, "hashes"),
        ({"seed": 1}, "seed"),
        ({"scheme": HashScheme.BLAKE2B}, "scheme"),
        ({}, "normalization"),
    ],
)
def test_a_vector_of_other_parameters_is_refused(
    changes: dict[str, object], field: str, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """Its bits would mean other elements; the refusal says which parameter differs, and leaves no upload behind."""
    profile = Normalization.NFC if field == "normalization" else Normalization.NONE
    other = dataclasses.replace(shape, **changes)  # type: ignore[arg-type]
    failure = failing(stub, open_merge(set_name, "u", other, profile))
    assert (failure.code, failure.reason) == ("FAILED_PRECONDITION", "FAILED_PRECONDITION")
    assert failure.metadata == {"field": field}
    refuse_publishing(stub, set_name)


BAD_CHUNKS = {
    "an index behind the end": (4, bytes(CHUNK_BYTES), "index"),
    "a far index": (1 << 63, bytes(CHUNK_BYTES), "index"),
    "a chunk too short": (1, bytes(CHUNK_BYTES - 1), "bits"),
    "a chunk too long": (1, bytes(CHUNK_BYTES + 1), "bits"),
    "an empty chunk": (0, b"", "bits"),
    "a last chunk too long": (3, bytes(3), "bits"),
    "padding that is not zero": (3, b"\x00\x04", "bits"),
}


@pytest.mark.parametrize("case", BAD_CHUNKS)
def test_a_chunk_that_is_none_of_the_vectors_is_refused(
    case: str, service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """By name; what was held before stays for a resume."""
    index, bits, field = BAD_CHUNKS[case]
    vector = expected_vector(shape, ELEMENTS)
    bad = merge_pb2.MergeVectorRequest(chunk=merge_pb2.VectorChunk(index=index, bits=bits))
    with RawMerge(stub, open_merge(set_name, "u", shape)) as stream:
        stream.opened()
        if index > 0:
            stream.send(chunk(vector, 0))
            assert stream.acknowledged() == 1
        stream.send(bad)
        failure = stream.failure()
    assert (failure.code, failure.fields) == ("INVALID_ARGUMENT", [field])
    rest = [chunk(vector, number) for number in range(4)]
    with RawMerge(stub, open_merge(set_name, "u", shape), *rest, finish_merge(vector)) as stream:
        assert stream.opened().chunks == (1 if index > 0 else 0)
        assert [stream.acknowledged() for _ in rest] == [1, 2, 3, 4]
        assert stream.finished() == len(vector)
    assert raw_vector(service.state, set_name) == vector


def test_a_stream_out_of_order_is_refused(stub: MembershipServiceStub, set_name: str, shape: FilterParameters) -> None:
    """Chunks before open, open twice, no filter, an empty or overlong id."""
    vector = bytes(shape.vector_bytes)
    opening = open_merge(set_name, "u", shape)
    assert failing(stub, chunk(vector, 0)).reason == "OUT_OF_SEQUENCE"
    assert failing(stub, opening, opening).reason == "OUT_OF_SEQUENCE"
    without_filter = merge_pb2.MergeVectorRequest(open=merge_pb2.OpenMerge(set_name=set_name, upload_id="u"))
    assert failing(stub, without_filter).fields == ["filter"]
    for upload_id in ("", "x" * 129):
        assert failing(stub, open_merge(set_name, upload_id, shape)).fields == ["upload_id"]
    assert failing(stub, open_merge("no-such-set", "u", shape)).code == "NOT_FOUND"


@pytest.mark.parametrize("mismatch", ["length", "sha256", "missing chunk"])
def test_a_finish_that_disagrees_discards_the_merge(
    mismatch: str, service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """Producer and service do not have the same vector, so both start over, under the same name if they like."""
    vector = expected_vector(shape, ELEMENTS)
    last = {
        "length": finish_merge(vector, len(vector) - 1),
        "sha256": finish_merge(vector[::-1]),
        "missing chunk": finish_merge(vector),
    }[mismatch]
    sent = [chunk(vector, index) for index in range(3 if mismatch == "missing chunk" else 4)]
    if mismatch == "missing chunk":
        del sent[1]
    failure = failing(stub, open_merge(set_name, "u", shape), *sent, last)
    assert (failure.code, failure.reason) == ("ABORTED", "UPLOAD_MISMATCH")
    assert failure.metadata == {"field": "length" if mismatch == "length" else "sha256"}
    refuse_publishing(stub, set_name)
    assert not any(raw_vector(service.state, set_name))
    rest = [chunk(vector, index) for index in range(4)]
    with RawMerge(stub, open_merge(set_name, "u", shape), *rest, finish_merge(vector)) as stream:
        assert stream.opened().chunks == 0
        assert [stream.acknowledged() for _ in rest] == [1, 2, 3, 4]
        assert stream.finished() == len(vector)
    assert raw_vector(service.state, set_name) == vector


def test_a_finish_needs_its_checksum(stub: MembershipServiceStub, set_name: str, shape: FilterParameters) -> None:
    """And one of the right length; the merge stays for a better one."""
    vector = expected_vector(shape, ELEMENTS)
    for sha256 in (b"", b"short"):
        bad = merge_pb2.MergeVectorRequest(finish=merge_pb2.FinishMerge(length=len(vector), sha256=sha256))
        failure = failing(stub, open_merge(set_name, "u", shape), chunk(vector, 0), bad)
        assert (failure.code, failure.fields) == ("INVALID_ARGUMENT", ["sha256"])
    with RawMerge(stub, open_merge(set_name, "u", shape)) as stream:
        assert stream.opened().chunks == 1
    refuse_publishing(stub, set_name)


# Cuts


@pytest.mark.parametrize("end", ["reset", "half-close", "mistake"])
def test_a_cut_merge_goes_on_from_its_last_acknowledgement(
    end: str, service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """However the stream ended; what it held is neither lost nor used before finish, and a replay changes nothing."""
    vector = expected_vector(shape, ELEMENTS)
    with RawMerge(stub, open_merge(set_name, "u", shape), chunk(vector, 0), chunk(vector, 2)) as stream:
        stream.opened()
        assert [stream.acknowledged(), stream.acknowledged()] == [1, 3]
        if end == "half-close":
            stream.half_close()
            assert stream.failure().metadata == {"field": "finish"}
        elif end == "mistake":
            stream.send(chunk(vector[:-1], 3))
            assert stream.failure().fields == ["bits"]
    refuse_publishing(stub, set_name)
    assert not any(raw_vector(service.state, set_name))
    left_out = vector[:CHUNK_BYTES] + bytes(CHUNK_BYTES) + vector[2 * CHUNK_BYTES :]
    again = [chunk(bytes(len(vector)), 0), chunk(vector, 1), chunk(vector, 3)]
    with RawMerge(stub, open_merge(set_name, "u", shape), *again, finish_merge(left_out)) as stream:
        assert stream.opened().chunks == 3
        assert [stream.acknowledged() for _ in again] == [3, 3, 4]
        assert stream.finished() == len(vector)
    assert raw_vector(service.state, set_name) == left_out
    with RawMerge(stub, open_merge(set_name, "u", shape)) as stream:
        assert stream.opened().finished


def test_a_second_stream_takes_the_merge_over(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """The first one, a cut connection that nobody noticed yet, can neither add nor finish any more."""
    vector = expected_vector(shape, ELEMENTS)
    rest = [chunk(vector, index) for index in range(1, 4)]
    for last_word in (chunk(vector, 1), finish_merge(vector)):
        upload_id = str(last_word.WhichOneof("message"))
        opening = open_merge(set_name, upload_id, shape)
        with RawMerge(stub, opening, chunk(vector, 0)) as first:
            first.opened()
            first.acknowledged()
            with RawMerge(stub, opening) as second:
                assert second.opened().chunks == 1
                first.send(last_word)
                failure = first.failure()
                assert (failure.code, failure.reason) == ("ABORTED", "OUT_OF_SEQUENCE")
                second.send(*rest, finish_merge(vector))
                assert [second.acknowledged() for _ in rest] == [2, 3, 4]
                assert second.finished() == len(vector)
    assert raw_vector(service.state, set_name) == vector


def test_merges_and_uploads_have_names_of_their_own(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """The same id names one of each; an upload cannot take a merge's place in the ledger."""
    vector = expected_vector(shape, ELEMENTS[:10])
    chunks = [chunk(vector, index) for index in range(4)]
    with RawMerge(stub, open_merge(set_name, "u", shape), *chunks[:2]) as merge:
        merge.opened()
        upload(stub, set_name, [ELEMENTS[500:510]], "u")
        merge.send(*chunks[2:], finish_merge(vector))
        assert [merge.acknowledged() for _ in chunks] == [1, 2, 3, 4]
        assert merge.finished() == len(vector)
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:10] + ELEMENTS[500:510])
    for upload_id in ("vector/u", "vector//u", "/u", "\0u"):
        with RawUpload(stub, open_upload(set_name, upload_id), raw_batch(1, ELEMENTS[:3]), finish(3)) as stream:
            assert not stream.opened().finished
            assert stream.acknowledged() == (1, 3)
            assert stream.finished() == 3


def test_publishing_uses_finished_merges_only(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """While one is open the set is published without it; the open one goes on."""
    vector = expected_vector(shape, ELEMENTS)
    with RawMerge(stub, open_merge(set_name, "u", shape), chunk(vector, 0)) as stream:
        stream.opened()
        assert stream.acknowledged() == 1
        upload(stub, set_name, [ELEMENTS[:5]], "other")
        released = stub.PublishRelease(pb.PublishReleaseRequest(set_name=set_name, request_id="r")).release
        assert released.state == pb.RELEASE_STATE_PUBLISHED
        assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:5])
        stream.send(*(chunk(vector, index) for index in range(1, 4)), finish_merge(vector))
        assert [stream.acknowledged() for _ in range(3)] == [2, 3, 4]
        assert stream.finished() == len(vector)
    assert raw_vector(service.state, set_name) == vector


def test_two_merges_at_once_are_both_in(service: ServiceProcess, stub: MembershipServiceStub, set_name: str) -> None:
    """Chunk by chunk in turn, finished one right after the other."""
    with service.connect() as connection:
        shape = create(connection, set_name)
    halves = [expected_vector(shape, ELEMENTS[::2]), expected_vector(shape, ELEMENTS[1::2])]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(RawMerge(stub, open_merge(set_name, f"half {number}", shape))) for number in range(2)
        ]
        for stream in streams:
            stream.opened()
        for index in range(4):
            for stream, half in zip(streams, halves, strict=True):
                stream.send(chunk(half, index))
        for stream, half in zip(streams, halves, strict=True):
            stream.send(finish_merge(half))
        for stream in streams:
            assert [stream.acknowledged() for _ in range(4)] == [1, 2, 3, 4]
            assert stream.finished() == shape.vector_bytes
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS)
