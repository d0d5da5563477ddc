"""Enumerations and parameter records ↔ their protobuf messages. The records themselves refuse values out of range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from veilset.core.encodings import ENCODINGS, find_encoding, parameters_of
from veilset.core.encodings.interface import Parameters
from veilset.core.params import (
    Adjacency,
    Calibration,
    HashParameters,
    HashScheme,
    Normalization,
    Operation,
    PrivacyParameters,
)
from veilset.errors import InvalidInput, must_be
from veilset.v1 import membership_pb2
from veilset.v1 import parameters_pb2 as pb

_OTHER = "other"
_FAMILIES = set(pb.Encoding.DESCRIPTOR.fields_by_name) - {_OTHER}

Value = TypeVar("Value", Adjacency, Calibration, HashScheme, Normalization, Operation)

ADJACENCY: dict[int, Adjacency] = {
    pb.ADJACENCY_ADD_REMOVE: Adjacency.ADD_REMOVE,
    pb.ADJACENCY_REPLACE_ONE: Adjacency.REPLACE_ONE,
}
CALIBRATION: dict[int, Calibration] = {
    pb.CALIBRATION_W_QUANTILE: Calibration.W_QUANTILE,
    pb.CALIBRATION_EXACT: Calibration.EXACT,
    pb.CALIBRATION_WORST_CASE: Calibration.WORST_CASE,
}
HASH_SCHEME: dict[int, HashScheme] = {
    pb.HASH_SCHEME_MMH3_V1: HashScheme.MMH3,
    pb.HASH_SCHEME_BLAKE2B_V1: HashScheme.BLAKE2B,
}
NORMALIZATION: dict[int, Normalization] = {
    pb.NORMALIZATION_NONE: Normalization.NONE,
    pb.NORMALIZATION_TRIM_CASEFOLD_V1: Normalization.TRIM_CASEFOLD,
    pb.NORMALIZATION_NFC_V1: Normalization.NFC,
    pb.NORMALIZATION_EMAIL_V1: Normalization.EMAIL,
}
OPERATION: dict[int, Operation] = {
    membership_pb2.OPERATION_ADD: Operation.ADD,
    membership_pb2.OPERATION_REMOVE: Operation.REMOVE,
    membership_pb2.OPERATION_REPLACE: Operation.REPLACE,
}


def to_number(table: dict[int, Value], value: Value) -> int:
    """The protobuf number of an enumeration's value."""
    return next(number for number, known in table.items() if known is value)


def from_number(field: str, table: dict[int, Value], number: int, default: Value | None = None) -> Value:
    """The value of a protobuf number; 0 gives ``default``. Raises InvalidInput naming ``field`` and the choices."""
    value = table.get(number, default if number == 0 else None)
    if value is None:
        got = "nothing" if number == 0 else number
        raise must_be(field, "one of " + ", ".join(table.values()), got)
    return value


def hashing_to_proto(parameters: HashParameters) -> pb.HashParameters:
    """The message of hash parameters."""
    return pb.HashParameters(
        scheme=to_number(HASH_SCHEME, parameters.scheme),  # type: ignore[arg-type]
        seed=parameters.seed,
        key_check=bytes.fromhex(parameters.key_check),
    )


def hashing_from_proto(message: pb.HashParameters) -> HashParameters:
    """The hash parameters of a message. Raises InvalidInput."""
    scheme = from_number("scheme", HASH_SCHEME, message.scheme, HashScheme.MMH3)
    return HashParameters(scheme, message.seed, message.key_check.hex())


def encoding_to_proto(parameters: Parameters) -> pb.Encoding:
    """The message of an encoding's parameters; of its generic kind if the contract has none for the family."""
    return dimensions_to_proto(parameters.encoding, parameters.fields())


def encoding_from_proto(message: pb.Encoding) -> Parameters:
    """The parameters of a message. Raises InvalidInput, also for a family that is not known here."""
    name, fields = _fields(message)
    return parameters_of(name, fields)


def dimensions_to_proto(name: str, fields: Mapping[str, int]) -> pb.Encoding:
    """The message of some fields of an encoding; those that are left out stay 0."""
    message = pb.Encoding()
    if name in _FAMILIES:
        own = getattr(message, name)
        own.SetInParent()
        for field, value in fields.items():
            setattr(own, field, value)
    else:
        message.other.family = name
        message.other.fields.update(fields)
    return message


def dimensions_from_proto(message: pb.Encoding) -> tuple[str, dict[str, int]]:
    """The family's name and the dimensions that are not 0; "" for no family. Raises InvalidInput for a family that is not known
    here, and for noise that is not 0."""
    if message.WhichOneof("family") is None:
        return "", {}
    name, fields = _fields(message)
    given = {field: value for field, value in fields.items() if value}
    for field in given:
        if field not in find_encoding(name).DIMENSIONS:
            raise InvalidInput(field, f"{field} is noise, which follows from the promise; leave it out")
    find_encoding(name)
    return name, given


def _fields(message: pb.Encoding) -> tuple[str, dict[str, int]]:
    name = message.WhichOneof("family")
    if name is None:
        raise must_be("encoding", "one of " + ", ".join(ENCODINGS), "nothing")
    own = getattr(message, name)
    if name == _OTHER:
        return own.family, dict(own.fields)
    return name, {field.name: getattr(own, field.name) for field in own.DESCRIPTOR.fields}


def privacy_to_proto(parameters: PrivacyParameters) -> pb.PrivacyParameters:
    """The message of privacy parameters."""
    return pb.PrivacyParameters(
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        adjacency=to_number(ADJACENCY, parameters.adjacency),  # type: ignore[arg-type]
        calibration=to_number(CALIBRATION, parameters.calibration),  # type: ignore[arg-type]
        elements_per_user=parameters.elements_per_user,
        min_size=parameters.min_size,
    )


def privacy_from_proto(
    message: pb.PrivacyParameters, default_calibration: Calibration = Calibration.W_QUANTILE
) -> PrivacyParameters:
    """The privacy parameters of a message; the neighbouring relation has no default. Raises InvalidInput."""
    return PrivacyParameters(
        epsilon=message.epsilon,
        delta=message.delta,
        adjacency=from_number("adjacency", ADJACENCY, message.adjacency),
        calibration=from_number("calibration", CALIBRATION, message.calibration, default_calibration),
        elements_per_user=message.elements_per_user or 1,
        min_size=message.min_size or 1,
    )
