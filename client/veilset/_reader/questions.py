"""The questions of a `View`, for anyone who holds one that may be exchanged for a newer: each call asks one release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilset._reader.view import View
from veilset.core.elements.normalization import Element
from veilset.core.estimates.results import Check, Overlap


class Questions(ABC):
    """Asks ``view``, which is read once for each call. Besides what the view raises: what reading ``view`` raises."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The release to ask; take it for several questions that must agree."""

    def __contains__(self, element: Element) -> bool:
        return element in self.view

    def contains_many(self, elements: Iterable[Element]) -> NDArray[np.bool_]:
        """As `View.contains_many`."""
        return self.view.contains_many(elements)

    def scores(self, elements: Iterable[Element]) -> NDArray[np.float64]:
        """As `View.scores`."""
        return self.view.scores(elements)

    def posteriors(self, elements: Iterable[Element], prior: float) -> NDArray[np.float64]:
        """As `View.posteriors`."""
        return self.view.posteriors(elements, prior)

    def filter(self, candidates: Any, max_false_positive_rate: float | None = None) -> Any:
        """As `View.filter`."""
        return self.view.filter(candidates, max_false_positive_rate)

    def check(
        self, element: Element, prior: float, cost_false_positive: float = 1.0, cost_false_negative: float = 1.0
    ) -> Check:
        """As `View.check`."""
        return self.view.check(element, prior, cost_false_positive, cost_false_negative)

    def overlap(self, elements: Iterable[Element], confidence: float = 0.95) -> Overlap:
        """As `View.overlap`."""
        return self.view.overlap(elements, confidence)
