"""Answers about elements from what they read, wherever the vector is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.normalization import Element
from veilset.core.encodings.decoder import Decoder
from veilset.core.encodings.interface import Readings


class Answers(ABC):
    """Answers by ``decoder``: which readings are taken for members', and the predicted error rates of the answers."""

    decoder: Decoder

    @abstractmethod
    def _read(self, elements: Iterable[Element]) -> Iterator[Readings]:
        """What each element reads, batch by batch, so that memory does not grow with the input."""

    def __contains__(self, element: Element) -> bool:
        return bool(self.contains_many([element])[0])

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """Whether each element is taken for a member; bool, shape (n,). Raises InvalidInput for what is no element."""
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
