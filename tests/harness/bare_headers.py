"""Headers of releases that have no bits, for what is computed from a header alone."""

from __future__ import annotations

from harness.shapes import FilterParameters
from veilset.core.encodings.bloom.parameters import BloomParameters
from veilset.core.params import Adjacency, Normalization, PrivacyParameters
from veilset.core.release.header import NoisyCount, ReleaseHeader


def header(shape: FilterParameters, threshold: int, count: NoisyCount | None = None) -> ReleaseHeader:
    """Of a set of this shape; threshold: 2^64 times the flip probability."""
    return ReleaseHeader(
        set_name="s",
        sequence=1,
        hashing=shape.hashing,
        encoding=BloomParameters(shape.bits, shape.hashes, threshold, 1),
        privacy=PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE),
        normalization=Normalization.NONE,
        capacity=1,
        created_at_us=0,
        chunk_sha256=(b"\0" * 32,),
        total_nano_epsilon=1,
        total_delta="0",
        limit_nano_epsilon=1,
        limit_delta="0",
        count=count,
    )
