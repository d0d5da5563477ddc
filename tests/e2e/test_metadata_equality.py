"""Two data sets, one element apart, or empty and full: whatever the service tells beside the bits is the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.message import Message

from harness.metrics import Samples, scrape
from harness.raw_calls import Failure, RawUpload, fails, finish, open_upload, raw_batch, upload
from harness.service_process import ServiceProcess, running
from harness.vectors import redis_content
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2, release_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub

# What may differ between two releases of the same data, and so tells nothing of it.
OF_EACH_RELEASE = ("chunk_sha256", "created_at_us")
SEED = 20_240_229
ELEMENTS = [b"element %d" % number for number in range(2000)]
PAIRS = {
    "one element more": (ELEMENTS[:-1], ELEMENTS),
    "empty and full": ([], ELEMENTS),
}


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that a service on one data set told a reader or an owner, but for the bits."""

    answers: dict[str, Message]
    lengths: dict[str, int]
    failure: Failure
    redis: dict[str, int]
    header: release_pb2.ReleaseHeader
    log: list[dict[str, Any]]
    metrics: Samples


def tell(service: ServiceProcess, data: Sequence[bytes]) -> Told:
    """Run the whole job on ``data`` in a service that has seen nothing else, until the budget ends."""
    promise = parameters_pb2.PrivacyParameters(
        epsilon=2.0,
        delta=1e-9,
        adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE,
        calibration=parameters_pb2.CALIBRATION_W_QUANTILE,
    )
    with service.stub() as stub:
        stub.CreateSet(pb.CreateSetRequest(name="set", size=2000, privacy=promise, seed=SEED, budget_epsilon=2.0))
        upload(stub, "set", [data] if data else [], "upload")
        publish = pb.PublishReleaseRequest(set_name="set", request_id="one")
        answers: dict[str, Message] = {
            "publish": stub.PublishRelease(publish),
            "publish again": stub.PublishRelease(publish),
            "release": stub.GetRelease(pb.GetReleaseRequest(set_name="set")),
            "releases": stub.ListReleases(pb.ListReleasesRequest(set_name="set")),
            "set": stub.GetSet(pb.GetSetRequest(name="set")),
            "sets": stub.ListSets(pb.ListSetsRequest()),
            "budget": (budget := stub.GetBudget(pb.GetBudgetRequest(set_name="set"))),
            "reconcile": stub.ReconcileReleases(pb.ReconcileReleasesRequest()),
        }
        budget.changes[0].ClearField("at_us")
        failure = fails(stub.PublishRelease, pb.PublishReleaseRequest(set_name="set", request_id="two"))
        manifest = stub.GetRelease(pb.GetReleaseRequest(set_name="set")).release.manifest
    header = release_pb2.ReleaseHeader.FromString(manifest.header)
    for field in OF_EACH_RELEASE:
        header.ClearField(field)  # type: ignore[arg-type]
    metrics = told_metrics(scrape(service.metrics))
    stored = {name: len(value) for name, value in redis_content(service.redis).items()}
    lengths = {name: answer.ByteSize() for name, answer in answers.items()}
    service.stop()
    return Told(answers, lengths, failure, stored, header, service.log_records(), metrics)


def told_metrics(found: Samples) -> Samples:
    """All metrics; of those that a clock or the machine makes, that they are there."""
    of_clocks = re.compile(r"seconds(_sum|_bucket)?$|_process_|redis_operation|reconcile_passes")
    return {key: 0.0 if of_clocks.search(key[0]) else value for key, value in found.items()}


def without_times(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log, but for when and where."""
    return [{key: value for key, value in record.items() if key not in ("timestamp", "port")} for record in records]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Told]:
    """What services on 0, 1999 and 2000 elements told."""
    found = {}
    for size in (0, 1999, 2000):
        with running(ServiceProcess(tmp_path_factory.mktemp("equality") / "state", ["--metrics-port", "0"])) as service:
            found[size] = tell(service, ELEMENTS[:size])
    return found


@pytest.mark.parametrize("pair", PAIRS)
def test_two_data_sets_look_alike(pair: str, told: dict[int, Told]) -> None:
    """Headers field by field, answers by their length, errors, key names and lengths in Redis, the log, and metrics."""
    one, other = (told[len(data)] for data in PAIRS[pair])
    assert one.header == other.header
    assert one.lengths == other.lengths
    assert one.failure == other.failure
    assert one.redis == other.redis
    assert without_times(one.log) == without_times(other.log)
    assert one.metrics == other.metrics
    for name in ("budget", "reconcile"):
        assert one.answers[name] == other.answers[name]


def test_the_headers_do_differ_where_they_may(told: dict[int, Told]) -> None:
    """Else the comparison would not see what it compares."""
    one, other = told[1999].answers["release"], told[2000].answers["release"]
    assert one.SerializeToString() != other.SerializeToString()
    assert one.ByteSize() == other.ByteSize()


def test_acknowledgements_tell_of_their_own_upload_only(stub: MembershipServiceStub, set_name: str) -> None:
    """The same upload into an empty set, and into one that holds some, all, or others: the same answers."""
    promise = parameters_pb2.PrivacyParameters(epsilon=2.0, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE)
    stub.CreateSet(pb.CreateSetRequest(name=set_name, size=2000, privacy=promise))
    uploads = [ELEMENTS[:500], ELEMENTS[:500], [*ELEMENTS[250:500], *ELEMENTS[:250]], ELEMENTS[500:1000]]
    messages = []
    for number, elements in enumerate(uploads):
        batches = [raw_batch(1, elements[:400]), raw_batch(2, elements[400:])]
        with RawUpload(stub, open_upload(set_name, f"upload {number}"), *batches, finish(500)) as stream:
            messages.append([stream.receive() for _ in range(4)])
    assert messages[0][1].acknowledged == pb.UploadAcknowledged(sequence=1, elements=400)
    assert messages[0][3].finished == pb.UploadFinished(elements=500)
    assert all(answers == messages[0] for answers in messages[1:])
