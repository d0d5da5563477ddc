"""The library's merges of partial vectors: the very bits that an upload would have set, whatever is cut on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from merged_sets import ELEMENTS, create, part

from harness.programs import unused_port
from harness.raw_calls import RawUpload, digest_batch, finish, hashed, open_upload
from harness.raw_merges import RawMerge, chunk, open_merge
from harness.service_process import ServiceProcess
from harness.vectors import expected_vector, raw_vector
from veilset import PartialVector
from veilset.core.params import FilterParameters, HashScheme, Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import FailedPrecondition, InvalidInput, UploadMismatch
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


@pytest.fixture
def shape(service: ServiceProcess, set_name: str) -> FilterParameters:
    """An empty set under ``set_name``."""
    with service.connect() as connection:
        return create(connection, set_name)


def test_parts_make_what_uploads_make(service: ServiceProcess, set_name: str, shape: FilterParameters) -> None:
    """Two parts that overlap and one upload, in any order, are the filter of all elements, bit for bit; then published."""
    with service.connect() as connection:
        first = connection.merge_vector(set_name, part(shape, ELEMENTS[:400]), upload_id="first")
        connection.add(set_name, ELEMENTS[300:700])
        second = part(shape, ELEMENTS[600:900])
        second.unite(part(shape, ELEMENTS[900:]))
        progress: list[float] = []
        connection.merge_vector(set_name, second, on_progress=progress.append)
        assert progress[-1] == 1.0
        assert connection.publish(set_name).state == "published"
    assert (first.upload_id, first.length, first.resumed) == ("first", shape.vector_bytes, 0)
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS)


def test_chunks_without_ones_may_be_left_out(service: ServiceProcess, set_name: str, shape: FilterParameters) -> None:
    """One element touches at most three chunks; none at all is a merge of zeros."""
    with service.connect() as connection:
        one = part(shape, ELEMENTS[:1])
        assert len(list(one.chunks())) < 4
        connection.merge_vector(set_name, one)
        connection.merge_vector(set_name, PartialVector(shape))
    assert raw_vector(service.state, set_name) == expected_vector(shape, ELEMENTS[:1])


def test_a_keyed_normalised_set_takes_parts_of_the_same_kind(service: ServiceProcess, set_name: str) -> None:
    """The library's part and its upload see the same element."""
    key = bytes(range(32))
    with service.connect() as connection:
        shape = create(connection, set_name, scheme=HashScheme.BLAKE2B, key=key, normalization="email")
        built = PartialVector(shape, Normalization.EMAIL, key=key)
        built.add(["  Alice@EXAMPLE.com", "bob@example.org"])
        connection.merge_vector(set_name, built)
        merged = raw_vector(service.state, set_name)
        connection.add(set_name, ["alice@example.com", "BOB@example.org "], key=key)
    assert any(merged)
    assert raw_vector(service.state, set_name) == merged


def test_a_merged_set_proves_its_size_by_its_ones(service: ServiceProcess, set_name: str) -> None:
    """An element sets at most k of them, so 500 elements cannot pass for 900, but do for 400."""
    with service.connect() as connection:
        for name, promised in ((set_name, 400), (f"{set_name}-more", 900)):
            shape = create(connection, name, delta=1e-9, min_size=promised)
            connection.merge_vector(name, part(shape, ELEMENTS[:500]))
        assert connection.publish(set_name).state == "published"
        with pytest.raises(FailedPrecondition, match="min_size"):
            connection.publish(f"{set_name}-more")


class Interrupted:
    """A partial vector whose producer loses the service, or its nerve, before a chunk. ``before``: called with its index."""

    def __init__(self, built: PartialVector, before: Callable[[int], None]) -> None:
        self.filter, self.normalization = built.filter, built.normalization
        self._built, self._before = built, before

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """As those of the vector."""
        for index, bits in self._built.chunks():
            self._before(index)
            yield index, bits


def test_the_library_goes_on_once_a_killed_service_is_back(start_service: Callable[..., ServiceProcess]) -> None:
    """From the last acknowledgement, with chunks that it kept."""
    service = start_service(port=unused_port())
    kills: list[int] = []

    def kill(index: int) -> None:
        if index == 2:
            kills.append(index)
            service.kill()
            service.start()

    with service.connect() as connection:
        shape = create(connection, "set")
        connection.merge_vector("set", Interrupted(part(shape, ELEMENTS), kill))
    assert kills == [2]
    assert raw_vector(service.state, "set") == expected_vector(shape, ELEMENTS)


def test_a_producer_that_died_resumes_with_the_same_vector(
    service: ServiceProcess, stub: MembershipServiceStub, set_name: str, shape: FilterParameters
) -> None:
    """Its own error comes through; what was acknowledged is not sent again; another vector under the same id is refused."""

    def die(index: int) -> None:
        if index == 2:
            raise LookupError("the cluster went away")

    built = part(shape, ELEMENTS)
    vector = expected_vector(shape, ELEMENTS)
    with service.connect() as connection:
        with pytest.raises(LookupError, match="cluster"):
            connection.merge_vector(set_name, Interrupted(built, die), upload_id="u")
        assert not any(raw_vector(service.state, set_name))
        for upload_id in ("u", "v"):
            with RawMerge(stub, open_merge(set_name, upload_id, shape), chunk(vector, 0)) as stream:
                stream.opened()
                assert stream.acknowledged() >= 1
        with pytest.raises(UploadMismatch):
            connection.merge_vector(set_name, part(shape, ELEMENTS[::2]), upload_id="v")
        assert not any(raw_vector(service.state, set_name))
        assert connection.merge_vector(set_name, built, upload_id="u").resumed in (1, 2)
        again = connection.merge_vector(set_name, part(shape, []), upload_id="u")
        assert again.resumed == 4, "it was finished"
    assert raw_vector(service.state, set_name) == vector


def test_the_library_refuses_chunks_that_are_none(
    service: ServiceProcess, set_name: str, shape: FilterParameters
) -> None:
    """Before they are sent, as errors of the caller's iterable are."""

    class Bad:
        filter, normalization = shape, Normalization.NONE

        def __init__(self, *chunks: tuple[int, bytes]) -> None:
            self._chunks = chunks

        def chunks(self) -> Iterator[tuple[int, bytes]]:
            return iter(self._chunks)

    whole = bytes(CHUNK_BYTES)
    with service.connect() as connection:
        for chunks, field in (
            ([(4, whole)], "index"),
            ([(1, whole), (1, whole)], "index"),
            ([(2, whole), (0, whole)], "index"),
            ([(0, whole[:-1])], "bits"),
            ([(3, whole)], "bits"),
        ):
            with pytest.raises(InvalidInput) as refused:
                connection.merge_vector(set_name, Bad(*chunks))
            assert refused.value.field == field


def test_digests_and_vectors_agree(stub: MembershipServiceStub, service: ServiceProcess, set_name: str) -> None:
    """A merge behind an upload of digests of the same elements adds nothing."""
    with service.connect() as connection:
        shape = create(connection, set_name)
        packed = hashed(ELEMENTS, shape.seed)
        messages = [
            digest_batch(1, packed),
            finish(len(ELEMENTS), packed),
        ]
        with RawUpload(stub, open_upload(set_name, "u"), *messages) as stream:
            stream.opened()
            stream.acknowledged()
            stream.finished()
        before = raw_vector(service.state, set_name)
        connection.merge_vector(set_name, part(shape, ELEMENTS))
    assert raw_vector(service.state, set_name) == before
