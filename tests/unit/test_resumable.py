"""The producer's stream apart from what it sends: cuts, and an iterator that fails just when the line does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from veilset._service.endpoint import make_endpoint
from veilset._service.resumable import WINDOW, Piece, ResumableStream
from veilset.errors import Unavailable, VeilsetError


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the service: how far it holds the upload."""

    kind: str
    number: int = 0

    def WhichOneof(self, _: str) -> str:  # noqa: N802 - protobuf's name
        return self.kind


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

    def __init__(self, answers: Iterator[Answer]) -> None:
        self._answers = answers

    def __iter__(self) -> Iterator[Answer]:
        return self._answers

    def __next__(self) -> Answer:
        return next(self._answers)

    def cancel(self) -> None:
        """As of a gRPC call."""


class Counting(ResumableStream[str, Answer, int]):
    """Sends what ``pieces`` makes; the result is the number in the last answer."""

    def __init__(
        self, service: Callable[[Iterator[str]], Iterator[Answer]], pieces: Iterator[Piece[str] | None]
    ) -> None:
        def method(requests: Iterator[str], **_: Any) -> Call:
            return Call(service(requests))

        super().__init__(method, make_endpoint("localhost:1"), "open")  # type: ignore[arg-type]
        self._given = pieces

    def _begin(self, opened: Answer) -> None:
        pass

    def _number(self, response: Answer) -> int:
        return response.number

    def _earlier_result(self, opened: Answer) -> int | None:
        return None

    def _pieces(self) -> Iterator[Piece[str] | None]:
        return self._given

    def _finish(self) -> str:
        return "finish"

    def _result(self, finished: Answer) -> int:
        return finished.number


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to no pauses between attempts."""
    monkeypatch.setattr("veilset._service.resumable._FIRST_PAUSE", 0.001)


class CuttingService:
    """Takes ``takes`` pieces of each stream, acknowledges all but the last of them, and cuts; the last stream is let through.

    It holds what it took, acknowledged or not, as a service does whose acknowledgement got lost.
    """

    def __init__(self, takes: list[int]) -> None:
        self._takes = takes
        self.held: list[str] = []

    def __call__(self, requests: Iterator[str]) -> Iterator[Answer]:
        takes = self._takes.pop(0) if self._takes else None
        assert next(requests) == "open"
        yield Answer("opened", len(self.held))
        for taken, request in enumerate(requests, start=1):
            if request == "finish":
                yield Answer("finished", len(self.held))
                return
            number = int(request)
            if number == len(self.held) + 1:
                self.held.append(request)
            assert number <= len(self.held), "a piece was left out"
            if taken == takes:
                raise Cut
            yield Answer("acknowledged", len(self.held))


@pytest.mark.parametrize("takes", [[], [1], [3, 1, 5], [1] * 30, [WINDOW, WINDOW + 1, 2 * WINDOW]])
def test_every_piece_arrives_once_and_in_order(takes: list[int]) -> None:
    """However often the line is cut, as long as each stream gets something through."""
    pieces = (None if number % 7 == 0 else Piece(number, str(number)) for number in range(1, 7))
    many = (Piece(number, str(number)) for number in range(7, 101))
    service = CuttingService(list(takes))
    assert Counting(service, iter([*pieces, *many])).run() == 100
    assert service.held == [str(number) for number in range(1, 101)]


def test_a_line_that_stays_cut_is_told() -> None:
    """After more than one attempt without any progress; and at once where no time is given."""
    attempts = []

    def service(requests: Iterator[str]) -> Iterator[Answer]:
        attempts.append(next(requests))
        yield Answer("opened", 0)
        raise Cut

    with pytest.raises(Unavailable):
        Counting(service, iter([Piece(1, "1")])).run(retry_seconds=0.2)
    assert len(attempts) > 1
    with pytest.raises(Unavailable):
        Counting(service, iter([Piece(1, "1")])).run(retry_seconds=0.0)


def test_a_service_that_forgot_is_told() -> None:
    """It holds less than it had acknowledged: going on would lose the rest."""
    opened = [0, 1]

    def service(requests: Iterator[str]) -> Iterator[Answer]:
        next(requests)
        yield Answer("opened", opened.pop(0))
        next(requests)
        next(requests)
        yield Answer("acknowledged", 2)
        raise Cut

    with pytest.raises(VeilsetError, match="lost an upload"):
        Counting(service, (Piece(number, str(number)) for number in range(1, 9))).run()


def test_an_iterator_that_fails_when_the_line_is_cut_is_not_taken_for_its_end() -> None:
    """The thread of the cut stream is still making a piece when the next stream begins: behind its failure the iterator looks
    exhausted, and finishing then would make half an upload publishable."""
    making, may_fail = threading.Event(), threading.Event()
    attempts: list[list[str]] = []

    def pieces() -> Iterator[Piece[str]]:
        yield Piece(1, "1")
        making.set()
        assert may_fail.wait(20)
        raise LookupError("the database went away")

    def service(requests: Iterator[str]) -> Iterator[Answer]:
        seen: list[str] = []
        attempts.append(seen)
        consumer = threading.Thread(target=lambda: seen.extend(requests))  # as gRPC's own
        consumer.start()
        yield Answer("opened", 0)
        if len(attempts) == 1:
            assert making.wait(20)
            raise Cut
        may_fail.set()
        consumer.join(20)
        if "finish" in seen:
            yield Answer("finished", 1)

    with pytest.raises(LookupError, match="database"):
        Counting(service, pieces()).run()
    assert len(attempts) == 2
    assert "finish" not in attempts[0] + attempts[1]
