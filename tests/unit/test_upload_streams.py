"""The producer's stream against a service that cuts it: every batch once and in order, and no end that is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import xxhash

from veilset._input.columns import Batch
from veilset._service import upload
from veilset._service.endpoint import make_endpoint
from veilset._service.upload import WINDOW, Upload, UploadPart, UploadResult
from veilset.core.elements.hashing import digests, pack_digests
from veilset.errors import Unavailable, VeilsetError
from veilset.v1 import membership_pb2 as pb

Requests = Iterator[pb.AddElementsRequest]
Answers = Iterator[pb.AddElementsResponse]


class Cut(grpc.RpcError):
    """What a stub raises when the line goes."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "cut"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Call:
    """What a stub returns: answers, and a cancel that does nothing."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __iter__(self) -> Answers:
        return self._answers

    def __next__(self) -> pb.AddElementsResponse:
        return next(self._answers)

    def cancel(self) -> None:
        """As of a gRPC call."""


class Stub:
    """A stub of a service that is a function."""

    def __init__(self, service: Callable[[Requests], Answers]) -> None:
        self._service = service

    def AddElements(self, requests: Requests, **_: Any) -> Call:  # noqa: N802 - protobuf's name
        return Call(self._service(requests))


def opened(sequence: int, elements: int = 0, finished: bool = False) -> pb.AddElementsResponse:
    return pb.AddElementsResponse(opened=pb.UploadOpened(
        sequence=sequence, elements=elements, finished=finished, normalization=1))  # type: ignore[arg-type]  # fmt: skip


def acknowledged(sequence: int) -> pb.AddElementsResponse:
    return pb.AddElementsResponse(acknowledged=pb.UploadAcknowledged(sequence=sequence))


def finished(elements: int) -> pb.AddElementsResponse:
    return pb.AddElementsResponse(finished=pb.UploadFinished(elements=elements))


def pairs(count: int) -> Iterator[Batch]:
    """Batches of two elements."""
    return ([f"{number}", f"{number}'"] for number in range(count))


def run(service: Callable[[Requests], Answers], given: Iterator[Batch], seconds: float | None = None) -> UploadResult:
    opening = pb.OpenUpload(set_name="s", upload_id="u")
    return Upload(Stub(service), make_endpoint("localhost:1"), opening, given).run(seconds)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to no pauses between attempts, and messages of two elements."""
    monkeypatch.setattr(upload, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(upload, "MESSAGE_ELEMENTS", 2)


class CuttingService:
    """Takes ``takes`` batches of each stream, acknowledges all but the last of them, and cuts; the last stream is let through.

    It holds what it took, acknowledged or not, as a service does whose acknowledgement got lost.
    """

    def __init__(self, takes: list[int], finishes: int = 1) -> None:
        self._takes = takes
        self._finishes = finishes
        self.held: list[bytes] = []
        self.finish: pb.FinishUpload | None = None

    def __call__(self, requests: Requests) -> Answers:
        takes = self._takes.pop(0) if self._takes else None
        assert next(requests).open.upload_id == "u"
        done = self.finish is not None
        yield opened(0 if done else len(self.held), 2 * len(self.held), done)
        for taken, request in enumerate(requests, start=1):
            if request.HasField("finish"):
                self.finish = request.finish
                self._finishes -= 1
                if self._finishes:
                    raise Cut
                yield finished(2 * len(self.held))
                return
            assert not done, "a batch of a finished upload"
            if request.batch.sequence == len(self.held) + 1:
                self.held.append(request.batch.digests)
            assert request.batch.sequence <= len(self.held), "a batch was left out"
            if taken == takes:
                raise Cut
            yield acknowledged(len(self.held))


@pytest.mark.parametrize("takes", [[], [1], [3, 1, 5], [1] * 30, [WINDOW, WINDOW + 1, 2 * WINDOW]])
@pytest.mark.parametrize("finishes", [1, 3])
def test_every_batch_arrives_once_and_in_order(takes: list[int], finishes: int) -> None:
    """However often the line is cut, the answer to finish among what is lost."""
    service = CuttingService(list(takes), finishes)
    assert run(service, pairs(100)) == UploadResult("u", 200, 0)
    everything = pack_digests(digests([f"{n}{end}".encode() for n in range(100) for end in ("", "'")]))
    assert b"".join(service.held) == everything
    assert service.finish is not None
    assert (service.finish.count, service.finish.checksum) == (200, xxhash.xxh3_128_digest(everything))


@pytest.mark.parametrize("held", [1, 3, 100])
def test_what_is_held_is_passed_over_and_summed(held: int) -> None:
    """By another process than the one that sent it; all of it where the upload is finished."""
    whole = CuttingService([])
    run(whole, pairs(100))
    service = CuttingService([])
    service.held = whole.held[:held]
    service.finish = whole.finish if held == 100 else None
    assert run(service, pairs(100)) == UploadResult("u", 200, 2 * held)
    assert service.held == whole.held
    assert service.finish == whole.finish


def test_an_upload_that_another_process_finishes_meanwhile_is_compared() -> None:
    """The rest of what is given is summed, and not sent."""
    streams = []

    def service(requests: Requests) -> Answers:
        streams.append(next(requests))
        yield opened(0, 0 if len(streams) == 1 else 200, len(streams) > 1)
        if len(streams) == 1:
            next(requests)
            raise Cut
        (request,) = requests
        assert request.finish.count == 200
        yield finished(200)

    assert run(service, pairs(100)).elements == 200


def test_a_line_that_stays_cut_is_told() -> None:
    """After more than one attempt without any progress; and at once where no time is given."""
    attempts = []

    def service(requests: Requests) -> Answers:
        attempts.append(next(requests))
        yield opened(0)
        raise Cut

    with pytest.raises(Unavailable):
        run(service, pairs(1), 0.2)
    assert len(attempts) > 1
    with pytest.raises(Unavailable):
        run(service, pairs(1), 0.0)


def test_a_service_that_forgot_is_told() -> None:
    """It holds less than it had acknowledged: going on would lose the rest."""
    sequences = [0, 1]

    def service(requests: Requests) -> Answers:
        next(requests)
        yield opened(sequences.pop(0))
        next(requests)
        next(requests)
        yield acknowledged(2)
        raise Cut

    with pytest.raises(VeilsetError, match="lost an upload"):
        run(service, pairs(8))


def test_an_iterator_that_fails_when_the_line_is_cut_is_not_taken_for_its_end() -> None:
    """The thread of the cut stream is still making a batch when the next stream begins: behind its failure the iterator looks
    exhausted, and finishing then would make half an upload publishable."""
    making, may_fail = threading.Event(), threading.Event()
    attempts: list[list[pb.AddElementsRequest]] = []

    def given() -> Iterator[Batch]:
        yield ["1", "2"]
        making.set()
        assert may_fail.wait(20)
        raise LookupError("the database went away")

    def service(requests: Requests) -> Answers:
        seen: list[pb.AddElementsRequest] = []
        attempts.append(seen)
        consumer = threading.Thread(target=lambda: seen.extend(requests))  # as gRPC's own
        consumer.start()
        yield opened(0)
        if len(attempts) == 1:
            assert making.wait(20)
            raise Cut
        may_fail.set()
        consumer.join(20)
        if any(request.HasField("finish") for request in seen):
            yield finished(1)

    with pytest.raises(LookupError, match="database"):
        run(service, given())
    assert len(attempts) == 2
    assert not any(request.HasField("finish") for request in attempts[0] + attempts[1])


def test_a_part_is_told_by_what_was_sent_and_finish_lists_parts() -> None:
    """Number, elements, checksum; in the finish of part 0 their sum."""
    service = CuttingService([3])
    opening = pb.OpenUpload(set_name="s", upload_id="u", part=7)
    sent = Upload(Stub(service), make_endpoint("localhost:1"), opening, pairs(9))  # type: ignore[arg-type]
    sent.run()
    part = sent.sealed()
    assert part == UploadPart(7, 18, xxhash.xxh3_128_digest(b"".join(service.held)))
    last = CuttingService([])
    opening = pb.OpenUpload(set_name="s", upload_id="u")
    other = UploadPart(8, 2, bytes(16))
    Upload(Stub(last), make_endpoint("localhost:1"), opening, [], parts=[part, other]).run()  # type: ignore[arg-type]
    assert last.finish is not None
    assert (last.finish.count, last.finish.checksum) == (20, b"")
    assert [(p.part, p.count, p.checksum) for p in last.finish.parts] == [(7, 18, part.checksum), (8, 2, bytes(16))]
