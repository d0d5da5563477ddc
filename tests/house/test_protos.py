"""The contract: buf's rules, and one request and one answer of its own for every method."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from veilset.v1 import membership_pb2, parameters_pb2, release_pb2

PROTOS = Path(__file__).parents[2] / "protos"
METHODS = membership_pb2.DESCRIPTOR.services_by_name["MembershipService"].methods
REQUIRED = {
    "PlanRelease",
    "CreateSet",
    "GetSet",
    "ListSets",
    "DeleteSet",
    "AddElements",
    "AddBatch",
    "PublishRelease",
    "GetRelease",
    "ListReleases",
    "GetBudget",
}


@pytest.mark.parametrize("arguments", [("lint",), ("format", "--diff", "--exit-code")], ids=["lint", "format"])
def test_buf_has_nothing_to_say(arguments: tuple[str, ...]) -> None:
    """Names, comments, zero values, layout."""
    program = Path(sys.executable).with_name("buf")
    done = subprocess.run([program, *arguments], cwd=PROTOS, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_service_has_its_methods() -> None:
    """Each with messages of its own; only uploads stream."""
    assert {method.name for method in METHODS} >= REQUIRED
    for method in METHODS:
        assert method.input_type.name == f"{method.name}Request"
        assert method.output_type.name == f"{method.name}Response"
        streams = method.name == "AddElements"
        assert (method.client_streaming, method.server_streaming) == (streams, streams)


@pytest.mark.parametrize("module", [membership_pb2, parameters_pb2, release_pb2])
def test_what_was_not_said_is_no_choice(module: object) -> None:
    """Zero is UNSPECIFIED in every enumeration."""
    enumerations = module.DESCRIPTOR.enum_types_by_name.values()  # type: ignore[attr-defined]
    assert all(found.values_by_number[0].name.endswith("_UNSPECIFIED") for found in enumerations)
