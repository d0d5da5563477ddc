"""Sets whose vectors have several chunks, and parts of them."""

from __future__ import annotations

from veilset import PartialVector
from veilset._service.service import Service
from veilset.core.params import FilterParameters

ELEMENTS = [b"element %d" % number for number in range(1000)]
BITS = (3 << 23) + 13  # three chunks and a last one of two bytes, with padding


def create(connection: Service, name: str, **more: object) -> FilterParameters:
    """A set whose vector has four chunks."""
    settings = {"size": 1000, "bits": BITS, "hashes": 3, "allow_poor_utility": True} | more
    return connection.create_set(name, epsilon=2, adjacency="add-remove", **settings).filter  # type: ignore[arg-type]


def part(shape: FilterParameters, elements: list[bytes]) -> PartialVector:
    """The partial vector of some elements."""
    found = PartialVector(shape)
    assert found.add(elements) == len(elements)
    return found
