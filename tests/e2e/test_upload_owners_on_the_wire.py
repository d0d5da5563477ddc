"""Whose an upload is, where names of principals and ids look like each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import creation

from harness.raw_calls import RawUpload, finish, open_upload, raw_batch, upload
from harness.service_process import ServiceProcess
from harness.shapes import shape_of
from harness.tokens import new_token, stub_with
from harness.vectors import expected_vector, raw_vector
from veilset.v1 import membership_pb2 as pb

IDS = ["u", "alice/u", "elements/u", "elements/alice/u"]


@pytest.mark.parametrize("name", ["elements", "crm"])
def test_names_and_ids_that_look_like_others(
    start_service: Callable[..., ServiceProcess], tmp_path: Path, name: str
) -> None:
    """A principal called so, with ids that look like others': its uploads are its own, and the set goes on."""
    state = tmp_path / "state"
    named, other, root = (new_token(state, "admin", name=who) for who in (name, "alice", "root"))
    service = start_service()
    with stub_with(service, root) as admin, stub_with(service, other) as alice, stub_with(service, named) as producer:
        admin.CreateSet(creation("s"))
        made = admin.GetSet(pb.GetSetRequest(name="s")).set
        shape = shape_of(made.encoding, made.hashing)
        with RawUpload(alice, open_upload("s", "u"), raw_batch(1, [b"alice"])) as held:
            held.opened()
            assert held.acknowledged() == (1, 1)
            for upload_id in IDS:
                upload(producer, "s", [[upload_id.encode()]], upload_id)
            held.send(finish(1))  # no other stream took it over
            assert held.finished() == 1
        released = admin.PublishRelease(pb.PublishReleaseRequest(set_name="s", request_id="r")).release
        assert released.state == pb.RELEASE_STATE_PUBLISHED
    assert raw_vector(service.state, "s") == expected_vector(shape, [b"alice", *(given.encode() for given in IDS)])


def test_an_upload_begun_without_authentication_is_nobodys_with_a_token(
    start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    """Though its id looks like a principal's of that name."""
    service = start_service()
    with service.stub() as stub:
        stub.CreateSet(creation("s"))
        for upload_id in ("alice/x", "elements/alice/x"):
            with RawUpload(stub, open_upload("s", upload_id), raw_batch(1, [b"planted"])) as stream:
                stream.opened()
                assert stream.acknowledged() == (1, 1)
    service.stop()
    token = new_token(tmp_path / "state", "producer", name="alice")
    service.start()
    with stub_with(service, token) as stub, RawUpload(stub, open_upload("s", "x"), finish(0)) as stream:
        assert stream.opened().sequence == 0
        assert stream.finished() == 0
    assert not any(raw_vector(service.state, "s"))
