"""MergeVector: chunks of a partial vector into the merge's spool.

A producer's vector is taken at its word, as its digests are: one that is all ones makes the set answer "yes" to everybody,
which a producer of elements can bring about as well. What is checked is what keeps the set well formed: parameters, lengths,
padding.
"""

from __future__ import annotations

from dataclasses import fields

from veilset.core.encodings.bitset import last_byte_mask
from veilset.core.params import FilterParameters, Normalization
from veilset.core.release.header import CHUNK_BYTES
from veilset.errors import FailedPrecondition, InvalidInput
from veilset_server.ports import VectorSpool
from veilset_server.records import SetDescription
from veilset_server.usecases.upload_ids import UploadContent
from veilset_server.usecases.upload_session import UploadSession, mismatch


class VectorSession(UploadSession[VectorSpool]):
    """One stream's hold on a merge."""

    content = UploadContent.VECTOR
    total = "length"

    @property
    def chunks(self) -> int:
        """Chunks below this index are held or were left out; 0 once finished."""
        return self._spool.chunks if self._spool else 0

    def add_chunk(self, index: int, bits: bytes) -> int:
        """Hold a chunk; returns `chunks`. Raises InvalidInput, OutOfSequence, StorageFull."""
        parameters = self.stored.description.filter
        last = (parameters.vector_bytes - 1) // CHUNK_BYTES
        if not 0 <= index <= last:
            raise InvalidInput("index", f"in [0, {last}], as the vector has {last + 1} chunks", index)
        expected = min(CHUNK_BYTES, parameters.vector_bytes - index * CHUNK_BYTES)
        if len(bits) != expected:
            raise InvalidInput("bits", f"{expected} bytes long in chunk {index}", len(bits))
        if index == last and bits[-1] & ~last_byte_mask(parameters.bits):
            raise InvalidInput("bits", "zero behind the vector's last bit")
        with self._lock:
            spool = self._require_spool()
            if index >= spool.chunks:  # lower ones are replays of what is held
                spool.append(index, bits)
            return spool.chunks

    def _compare(self, spool: VectorSpool, total: int, sha256: bytes) -> None:
        length = self.stored.description.filter.vector_bytes
        if not sha256:
            raise InvalidInput("sha256", "32 bytes long")
        if total != length:
            raise mismatch("length", f"finish says {total} bytes, the set's vector has {length}")
        if sha256 != spool.sha256(length):
            raise mismatch("sha256", "finish disagrees with the chunks received")


def check_built_with(description: SetDescription, built: FilterParameters, normalization: Normalization) -> None:
    """Raises FailedPrecondition, naming what differs, unless a vector of these parameters is one of the set's."""
    own = description.filter
    pairs = {field.name: (getattr(built, field.name), getattr(own, field.name)) for field in fields(FilterParameters)}
    pairs["normalization"] = normalization, description.normalization
    differences = {name: (theirs, ours) for name, (theirs, ours) in pairs.items() if theirs != ours}
    if differences:
        listed = "; ".join(f"{name}: {a or 'none'}, the set has {b or 'none'}" for name, (a, b) in differences.items())
        raise FailedPrecondition(
            f"vector: built with other parameters than set {description.name} ({listed}); build it as GetSet tells",
            field=next(iter(differences)),
        )
