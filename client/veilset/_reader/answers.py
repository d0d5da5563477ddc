"""Answers about elements from the vectors of a generation, wherever these are; with the test that decides them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._display import Displayed
from veilset._reader.fetching import CheckedRelease
from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Decoder, Law
from veilset.core.encodings.generation import make_generation_decoder
from veilset.core.encodings.interface import MemoryVector, Parameters, Readings, Vector
from veilset.core.estimates.releases import name_of
from veilset.core.privacy.limits import true_positive_limit
from veilset.core.release.header import ReleaseHeader
from veilset.errors import PoorUtility


class Answers(Displayed, ABC):
    """Answers about elements. decoder: which readings are accepted as members', and the predicted error rates."""

    decoder: Decoder

    @abstractmethod
    def _read(self, elements: Iterable[Element]) -> Iterator[Readings]:
        """The readings of the elements, batch by batch, so that memory does not grow with the input."""

    def __contains__(self, element: Element) -> bool:
        return bool(self.contains_many([element])[0])

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """Whether each element is answered yes; bool, shape (n,). Raises InvalidInput for what is no element."""
        found = [self.decoder.decide(readings) for readings in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)

    def scores(self, elements: Iterable[Element]) -> NDArray[np.float64]:
        """Log-likelihood ratio (nats) of each element being a member; float64, shape (n,)."""
        found = [self.decoder.scores(readings) for readings in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)

    def posteriors(self, elements: Iterable[Element], prior: float) -> NDArray[np.float64]:
        """Probability of each element being a member, given the prior probability; float64, shape (n,)."""
        found = [self.decoder.posteriors(readings, prior) for readings in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)


def generation_vectors(parts: Sequence[CheckedRelease]) -> list[tuple[Parameters, MemoryVector]]:
    """The vectors of a generation in the order of its readings: those of all releases, then those of removed elements."""
    removed = [part.tombstones for part in parts]
    return [(part.header.encoding, part.main) for part in parts] + [found for found in removed if found is not None]


def read_all(vectors: Sequence[tuple[Parameters, Vector]], hashed: NDArray[np.uint64]) -> Readings:
    """The readings of digests (n,) in each vector: (n,) for one vector, else (n, vectors)."""
    if len(vectors) == 1:
        ((encoding, vector),) = vectors
        return encoding.read(vector, hashed)
    return np.stack([encoding.read(vector, hashed).astype(np.int64) for encoding, vector in vectors], axis=1)


def decoder_of(headers: Sequence[ReleaseHeader], laws: Sequence[Law], **decision: Any) -> Decoder:
    """`make_generation_decoder` for the releases of a generation; a refusal names the newest, and what no release under its
    promise could do. laws: as `generation_vectors`."""
    header = headers[-1]
    capacities = [part.capacity for part in headers]
    try:
        return make_generation_decoder(laws[: len(headers)], laws[len(headers) :], capacities, **decision)
    except PoorUtility as refused:
        message, details = refused.message.replace("this release", name_of(header)), dict(refused.details)
        limit = decision.get("max_false_positive_rate")
        if limit is not None:
            privacy = header.privacy
            most = float(true_positive_limit(privacy.epsilon, privacy.delta, limit))
            details["true_positive_limit"] = f"{most:.4g}"
            message += (
                f". At epsilon {privacy.epsilon:g} no release of any size finds more than {most:.3%} of the members so"
            )
        raise PoorUtility(message, **details) from None
