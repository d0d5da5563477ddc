"""Spans as a collector gets them: what they say, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.programs import Finished
from harness.raw_calls import RawUpload, fails, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.span_receiver import SpanReceiver, attributes
from veilset.v1 import membership_pb2 as pb

SERVICE = "veilset.v1.MembershipService"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAID = {"rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code", "veilset.set"}


def test_calls_become_spans(start_service: Callable[..., ServiceProcess]) -> None:
    """Method, status, the set once it is known to exist, under the caller's own span; nothing else."""
    with SpanReceiver() as receiver:
        service = start_service("--otlp-endpoint", receiver.endpoint)
        with service.connect() as connection:
            connection.create_set("s", size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
            connection.add("s", ["one", "two"])
        with service.stub() as stub:
            answer = stub.GetSet.with_call(
                pb.GetSetRequest(name="s"), metadata=(("traceparent", PARENT), ("tracestate", "a=free-text"))
            )
            assert answer[0].set.name == "s"
            for nonsense in (
                "",
                "00-" + 32 * "0" + "-b7ad6b7169203331-01",
                PARENT[:-1],
                "x" * 2000,
                PARENT + "-" + PARENT,
            ):
                stub.GetSet(pb.GetSetRequest(name="s"), metadata=(("traceparent", nonsense), ("traceparent", PARENT)))
            assert fails(stub.GetSet, pb.GetSetRequest(name="typed-by-mistake")).code == "NOT_FOUND"
            assert fails(stub.PublishRelease, pb.PublishReleaseRequest(set_name="s")).code == "INVALID_ARGUMENT"
        service.stop()
    spans = {
        (s.name, attributes(s)["rpc.grpc.status_code"]): s for s in reversed(receiver.spans)
    }  # the first of a kind
    assert "observer failed" not in service.log_path.read_text()
    created, uploaded = spans[f"{SERVICE}/CreateSet", 0], spans[f"{SERVICE}/AddElements", 0]
    assert attributes(created)["veilset.set"] == attributes(uploaded)["veilset.set"] == "s"
    assert uploaded.end_time_unix_nano == uploaded.start_time_unix_nano  # its length would tell how much it brought
    parents = [(s.trace_id.hex(), s.parent_span_id.hex()) for s in receiver.spans if s.name == f"{SERVICE}/GetSet"]
    _, trace_id, span_id, _ = PARENT.split("-")
    assert parents[1] == (trace_id, span_id)  # behind the library's own call before an upload, which has none
    assert "veilset.set" not in attributes(spans[f"{SERVICE}/GetSet", 5])
    assert attributes(spans[f"{SERVICE}/PublishRelease", 3])["veilset.set"] == "s"  # confirmed before
    for span in receiver.spans:
        assert set(attributes(span)) <= SAID
        assert (list(span.events), list(span.links), span.trace_state, span.status.message) == ([], [], "", "")
    assert b"typed-by-mistake" not in b"".join(request.SerializeToString() for request in receiver.requests)


def test_the_span_of_an_upload_ends_when_it_is_opened(start_service: Callable[..., ServiceProcess]) -> None:
    """It came while the upload was still open, so its length says nothing of the upload's."""
    with SpanReceiver() as receiver:
        service = start_service("--otlp-endpoint", receiver.endpoint)
        with service.connect() as connection:
            connection.create_set("s", size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
        with service.stub() as stub, RawUpload(stub, open_upload("s", "u"), raw_batch(1, [b"a"])) as upload:
            upload.opened()
            upload.acknowledged()
            receiver.wait_for(f"{SERVICE}/AddElements")
        service.stop()
    (span,) = [span for span in receiver.spans if span.name == f"{SERVICE}/AddElements"]
    assert span.end_time_unix_nano == span.start_time_unix_nano


def test_a_collector_that_is_not_there_stops_nothing(start_service: Callable[..., ServiceProcess]) -> None:
    """Calls are answered, the service ends well, and the log stays one of JSON lines without the library's texts."""
    service = start_service("--otlp-endpoint", "http://127.0.0.1:9")
    with service.connect() as connection:
        connection.create_set("s", size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
    service.stop()
    assert "127.0.0.1:9" not in service.log_path.read_text()


@pytest.mark.parametrize(
    "endpoint", ["collector:4317", "http://collector:4317", "https://name:hush@collector:4317", "ftp://127.0.0.1:1", ""]
)
def test_an_endpoint_that_cannot_be_right_is_refused(
    endpoint: str, tmp_path: Path, veilset_here: Callable[..., Finished]
) -> None:
    """Plain text to another machine included; the message does not repeat what may hold a password."""
    done = veilset_here("serve", "--state", tmp_path / "state", "--otlp-endpoint", endpoint)
    assert done.code == 2
    assert "otlp" in done.complaint()
    assert "hush" not in done.err
    assert not (tmp_path / "state").exists()
