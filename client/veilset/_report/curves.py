"""The two charts of a release: its ROC curve under the limit of (ε, δ), and what an answer does to a prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilset._report.chart import Curve, unit_chart
from veilset.core.encodings.decoder import Decoder, posterior_rows
from veilset.core.privacy.budget import amount_text
from veilset.core.privacy.limits import true_positive_limit

_GRID = [round(step / 100, 2) for step in range(101)]


def roc_chart(facts: dict[str, Any]) -> str:
    """Every test, the one in use, the limit, a coin."""
    rates = np.unique(np.concatenate([np.linspace(0.0, 1.0, 101), np.geomspace(1e-4, 1.0, 60)]))
    limit = true_positive_limit(facts["epsilon"], facts["delta"], rates)
    points = [(point["false_positive_rate"], point["true_positive_rate"]) for point in facts["roc"]]
    in_use = (facts["false_positive_rate"], facts["true_positive_rate"])
    name = f"ε = {amount_text(facts['epsilon'])}, δ = {amount_text(facts['delta'])}"
    return unit_chart(
        "ROC curve: true against false positive rate",
        "false positive rate",
        "true positive rate",
        [
            Curve("a coin", "even", [(0.0, 0.0), (1.0, 1.0)]),
            Curve("this release, every test", "series-1", points, dots=True),
            Curve(f"limit of any test under {name}", "limit", list(zip(rates.tolist(), limit.tolist(), strict=True))),
            Curve("in use", "series-2", [in_use], line=False, dots=True, dot_size=6.5),
        ],
    )


def posterior_chart(facts: dict[str, Any], decoder: Decoder) -> str:
    """Posterior against prior, after a yes and after a no; and how far ε lets any observation move it."""
    moved = posterior_rows(decoder, _GRID)
    odds = float(np.exp(facts["epsilon"]))
    raised = [(prior, prior * odds / (prior * odds + 1.0 - prior)) for prior in _GRID]
    lowered = [(prior, prior / (prior + (1.0 - prior) * odds)) for prior in _GRID]
    return unit_chart(
        "Posterior against prior probability of membership",
        "probability before asking",
        "probability after the answer",
        [
            Curve("nothing learned", "even", [(0.0, 0.0), (1.0, 1.0)]),
            Curve("after a yes", "series-1", [(row.prior, row.after_yes) for row in moved]),
            Curve("after a no", "series-2", [(row.prior, row.after_no) for row in moved]),
            Curve(f"limit: odds times or divided by e^{facts['epsilon']:g} (δ aside)", "limit", raised),
            Curve("", "limit", lowered),
        ],
    )
