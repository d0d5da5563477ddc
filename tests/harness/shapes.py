"""Bloom filters by their numbers, as tests like to write them."""

from __future__ import annotations

from dataclasses import dataclass

from veilset._service.records import SetInfo
from veilset.core.encodings import planning
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.encodings.decoder import Rule
from veilset.core.encodings.planning import Plan, PlanRequest, objective_of
from veilset.core.params import Adjacency, HashParameters, HashScheme, PrivacyParameters
from veilset.core.release import wire
from veilset.v1 import parameters_pb2


@dataclass(frozen=True, slots=True)
class FilterParameters:
    """Dimensions of a Bloom filter, and the hashing of its elements."""

    bits: int
    hashes: int
    scheme: HashScheme = HashScheme.MMH3
    seed: int = 0
    key_check: str = ""

    @property
    def vector_bytes(self) -> int:
        """Length of the packed vector."""
        return (self.bits + 7) // 8

    @property
    def hashing(self) -> HashParameters:
        """How elements become digests."""
        return HashParameters(self.scheme, self.seed, self.key_check)


PURE = PrivacyParameters(3.0, 0.0, Adjacency.ADD_REMOVE)


def bloom(bits: int, hashes: int) -> parameters_pb2.Encoding:
    """What a request says of an encoding with these dimensions; 0 leaves one out."""
    return wire.dimensions_to_proto("bloom", {"bits": bits, "hashes": hashes})


def parameters(bits: int, hashes: int, privacy: PrivacyParameters = PURE) -> BloomParameters:
    """Calibrated parameters."""
    return BloomParameters.calibrate(privacy, {"bits": bits, "hashes": hashes})


def shape_of(encoding: object, hashing: object) -> FilterParameters:
    """Dimensions and hashing of a set together, from its records or messages."""
    if isinstance(encoding, parameters_pb2.Encoding):
        assert isinstance(hashing, parameters_pb2.HashParameters)
        encoding, hashing = wire.encoding_from_proto(encoding), wire.hashing_from_proto(hashing)
    assert isinstance(encoding, BloomParameters)
    return FilterParameters(encoding.bits, encoding.hashes, hashing.scheme, hashing.seed, hashing.key_check)  # type: ignore[attr-defined]


def evaluate(
    size: int,
    privacy: PrivacyParameters,
    bits: int,
    hashes: int,
    *,
    rule: Rule = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
) -> Plan:
    """An explicit setting priced."""
    objective = objective_of(max_false_positive_rate or 0.0, min_true_positive_rate or 0.0)
    request = PlanRequest(size, privacy, rule=rule, objective=objective)
    return planning.evaluate(parameters(bits, hashes, privacy), request)


def own(plan: Plan) -> BloomParameters:
    """The parameters of a plan of Bloom filters."""
    assert isinstance(plan.parameters, BloomParameters)
    return plan.parameters


def shape_of_set(found: SetInfo) -> FilterParameters:
    """The same of what a service says of a set."""
    return shape_of(found.encoding, found.hashing)
