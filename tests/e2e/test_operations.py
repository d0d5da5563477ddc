"""Adding, removing, replacing, in streams, in one call and in parts, through the library and the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.programs import veilset
from harness.service_process import ServiceProcess
from harness.vectors import held_digests
from veilset._service.service import Service
from veilset._service.upload import UploadPart
from veilset.core.elements.hashing import digests
from veilset.errors import AlreadyExists, FailedPrecondition, InvalidInput, UploadMismatch

MANY = [f"element {number}" for number in range(10_000)]  # more than one call takes


def create(connection: Service, name: str, **more: Any) -> Callable[[list[str]], set[int]]:
    """Make a set; returns how its elements become digests."""
    made = connection.create_set(name, size=10_000, epsilon=4, adjacency="add-remove", allow_poor_utility=True, **more)
    return lambda elements: set(digests([e.encode() for e in elements], seed=made.hashing.seed).tolist())


def test_operations_apply_in_order_of_finish(service: ServiceProcess, set_name: str) -> None:
    """Streams and single calls alike; an element that is added again is back; a replacement may be empty."""
    with service.connect() as connection:
        hashed = create(connection, set_name)

        def held() -> set[int]:
            return held_digests(service.state, set_name)

        assert connection.add(set_name, MANY).elements == 10_000
        assert connection.add(set_name, ["a", "b", "a"]).elements == 3
        assert held() == hashed([*MANY, "a", "b"])
        assert connection.remove(set_name, ["a", MANY[0], "never there"]).elements == 3
        assert held() == hashed([*MANY[1:], "b"])
        connection.remove(set_name, MANY)
        connection.add(set_name, [MANY[7]])
        assert held() == hashed([MANY[7], "b"])
        connection.replace(set_name, ["c", "d"])
        assert held() == hashed(["c", "d"])
        connection.replace(set_name, MANY[:6000])
        assert held() == hashed(MANY[:6000])
        assert connection.replace(set_name, []).elements == 0
        assert held() == set()


@pytest.mark.parametrize("size", [3, 5000], ids=["one call", "a stream"])
def test_an_id_used_again_is_compared(service: ServiceProcess, set_name: str, size: int) -> None:
    """The same elements are answered, and nothing is done again; others, as many or not, and another operation are refused."""
    with service.connect() as connection:
        hashed = create(connection, set_name)
        given = MANY[:size]
        assert connection.add(set_name, given, upload_id="u").elements == size
        connection.remove(set_name, given[:1])
        assert connection.add(set_name, given, upload_id="u").elements == size
        for other in ([*given[:-1], "another"], given[:-1], [*given, "more"], given[::-1], MANY[:4097]):
            with pytest.raises(AlreadyExists, match="other elements") as refused:
                connection.add(set_name, other, upload_id="u")
            assert refused.value.details["field"] == "upload_id"
        with pytest.raises(FailedPrecondition, match="operation"):
            connection.remove(set_name, given, upload_id="u")
        assert held_digests(service.state, set_name) == hashed(given[1:])


def test_a_set_made_anew_is_hashed_anew(service: ServiceProcess, set_name: str) -> None:
    """A connection that remembers how the old set hashed must not bring its digests into the new one."""
    with service.connect() as connection, service.connect() as other:
        create(connection, set_name)
        connection.add(set_name, ["a"])
        other.delete_set(set_name)
        hashed = create(other, set_name, normalization="trim-casefold")
        connection.add(set_name, ["  A "])
        assert held_digests(service.state, set_name) == hashed(["a"])


def test_parts_are_committed_together(service: ServiceProcess, set_name: str) -> None:
    """Sealed parts are nothing until finish lists them all; a list that disagrees commits none; a repetition changes nothing."""
    with service.connect() as connection:
        hashed = create(connection, set_name)
        connection.add(set_name, ["old"])
        pieces = np.array_split(np.array(MANY), 5)
        sent = [
            connection.upload_part("replace", set_name, p.tolist(), n + 1, upload_id="u") for n, p in enumerate(pieces)
        ]
        assert [part.elements for part in sent] == [2000] * 5
        again = connection.upload_part("replace", set_name, pieces[2].tolist(), 3, upload_id="u")
        assert again == sent[2]
        assert held_digests(service.state, set_name) == hashed(["old"])
        wrong = UploadPart(5, 2000, bytes(16))
        for listed in (sent[:4], [*sent[:4], wrong], [*sent, UploadPart(6, 1, bytes(16))]):
            with pytest.raises(UploadMismatch, match="parts") as refused:
                connection.finish_upload("replace", set_name, listed, upload_id="u")
            assert refused.value.details["field"] == "parts"
        assert held_digests(service.state, set_name) == hashed(["old"])
        for _ in range(2):
            result = connection.finish_upload("replace", set_name, sent[::-1], upload_id="u")
            assert (result.upload_id, result.elements) == ("u", 10_000)
        assert held_digests(service.state, set_name) == hashed(MANY)
        with pytest.raises(AlreadyExists):
            connection.finish_upload("replace", set_name, sent[:4], upload_id="u")
        with pytest.raises(AlreadyExists):
            connection.replace(set_name, MANY[:5000], upload_id="u")
        assert connection.upload_part("replace", set_name, pieces[2].tolist(), 3, upload_id="u") == sent[2]
        assert held_digests(service.state, set_name) == hashed(MANY)


def test_parts_that_cannot_be_are_refused(service: ServiceProcess, set_name: str) -> None:
    """Before anything is sent."""
    with service.connect() as connection:
        create(connection, set_name)
        for part in (0, 10_001, -1):
            with pytest.raises(InvalidInput, match="part"):
                connection.upload_part("add", set_name, ["a"], part, upload_id="u")
        with pytest.raises(InvalidInput, match="upload_id"):
            connection.upload_part("add", set_name, ["a"], 1)
        with pytest.raises(InvalidInput, match="operation"):
            connection.upload("drop", set_name, ["a"])


def test_the_command_line_removes_and_replaces(service: ServiceProcess, set_name: str) -> None:
    """With the options of add; the sentences say what was done."""
    run = partial(veilset, settings={"VEILSET_SERVER": service.address})
    with service.connect() as connection:
        hashed = create(connection, set_name)
    assert run("add", set_name, "-", stdin=b"a\nb\nc\n").out == f"added 3 elements to {set_name}, duplicates included\n"
    removed = run("remove", set_name, "-", stdin=b"b\nx\n")
    assert (removed.code, removed.err) == (0, "")
    assert removed.out == f"removed 2 elements from {set_name}, duplicates included\n"
    assert held_digests(service.state, set_name) == hashed(["a", "c"])
    told = run("replace", set_name, "-", "--upload-id", "new", "--json", stdin=b"d\nd\n").json()
    assert told == {
        "set": set_name,
        "operation": "replace",
        "upload_id": "new",
        "elements": 2,
        "resumed": 0,
        "invalid": 0,
    }
    assert held_digests(service.state, set_name) == hashed(["d"])
    other = run("replace", set_name, "-", "--upload-id", "new", stdin=b"d\ne\n")
    assert other.code == 1
    assert "finished with other elements" in other.err
