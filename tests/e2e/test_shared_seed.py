"""A seed that the caller brings was known before the data were: then no average over seeds is promised unless asked for."""

from __future__ import annotations

import pytest

from harness.service_process import ServiceProcess
from harness.shapes import bloom
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2
from veilset.v1.membership_pb2_grpc import MembershipServiceStub


def creation(set_name: str, **more: int) -> pb.CreateSetRequest:
    """A set whose calibration is left to the service."""
    promise = parameters_pb2.PrivacyParameters(
        epsilon=2.0, delta=1e-6, adjacency=parameters_pb2.ADJACENCY_ADD_REMOVE, min_size=1000
    )
    return pb.CreateSetRequest(name=set_name, size=2000, privacy=promise, encoding=bloom(8000, 3), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 7])
def test_a_shared_seed_is_calibrated_for_the_worst_case(stub: MembershipServiceStub, set_name: str, seed: int) -> None:
    """Whatever credit the promised size would earn; and the set says that the seed was brought along."""
    made = stub.CreateSet(creation(set_name, seed=seed)).set
    assert (made.hashing.seed, made.shared_seed) == (seed, True)
    assert made.privacy.calibration == parameters_pb2.CALIBRATION_WORST_CASE
    assert made.privacy.delta == 0


def test_a_seed_of_the_services_own_is_drawn_anew(stub: MembershipServiceStub, set_name: str) -> None:
    """Then the quantile is the default, and no two sets share a seed but by a chance of 2^-32."""
    made = [stub.CreateSet(creation(f"{set_name}-{number}")).set for number in range(4)]
    assert {found.privacy.calibration for found in made} == {parameters_pb2.CALIBRATION_W_QUANTILE}
    assert not any(found.shared_seed for found in made)
    assert len({found.hashing.seed for found in made}) >= 3


def test_the_library_chooses_alike(service: ServiceProcess, set_name: str) -> None:
    """The same defaults where the client fills them in."""
    with service.connect() as connection:
        for name, seed, wanted in ((set_name, 7, "worst-case"), (f"{set_name}-own", None, "w-quantile")):
            found = connection.create_set(name, size=2000, epsilon=2, delta=1e-6, adjacency="add-remove", seed=seed)
            assert (found.privacy.calibration, found.shared_seed) == (wanted, seed is not None)
