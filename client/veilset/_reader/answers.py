"""Answers about elements from what their positions read, wherever the bits are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from veilset.core.elements.normalization import Element
from veilset.core.encodings.bloom.decoding import Decoder

Reading = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ones and distinct positions of each element of a batch, int64 (n,) each."""


class Answers(ABC):
    """Whoever reads bits answers by ``decoder``: the threshold, and the predicted error rates of the answers."""

    decoder: Decoder

    @abstractmethod
    def _read(self, elements: Iterable[Element]) -> Iterator[Reading]:
        """What each element reads, batch by batch, so that memory does not grow with the input."""

    def __contains__(self, element: Element) -> bool:
        return bool(self.contains_many([element])[0])

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """Whether each element is taken for a member; bool, shape (n,). Raises InvalidInput for what is no element."""
        found = [self.decoder.decide(ones, distinct) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.bool_)

    def scores(self, elements: Iterable[Element]) -> NDArray[np.float64]:
        """Log-likelihood ratio (nats) of each element being a member; float64, shape (n,)."""
        found = [self.decoder.scores(ones, distinct) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)

    def posteriors(self, elements: Iterable[Element], prior: float) -> NDArray[np.float64]:
        """Probability of each element being a member, given the prior probability; float64, shape (n,)."""
        found = [self.decoder.posteriors(ones, distinct, prior) for ones, distinct in self._read(elements)]
        return np.concatenate(found) if found else np.zeros(0)
