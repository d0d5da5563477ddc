"""What Prometheus would read from the service."""

from __future__ import annotations

import urllib.request
from urllib.error import HTTPError

from prometheus_client.parser import text_string_to_metric_families

from harness.patience import SECONDS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""(name, labels in order) → value."""


def scrape_text(address: str, path: str = "/metrics") -> str:
    """The answer to GET, as text."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=SECONDS) as answer:
        return str(answer.read().decode())


def refused(address: str, path: str = "/metrics", method: str = "GET") -> int:
    """The HTTP status of a request, which has to fail."""
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    try:
        urllib.request.urlopen(request, timeout=SECONDS).close()  # noqa: S310
    except HTTPError as error:
        with error:
            return error.code
    raise AssertionError(f"{method} {path} was answered")


def samples(text: str) -> Samples:
    """Every sample of a scrape."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(address: str) -> Samples:
    """Every sample there is now."""
    return samples(scrape_text(address))


def value(found: Samples, name: str, **labels: str) -> float:
    """One sample; 0.0 if it is not there, as for what has not happened yet."""
    return found.get((name, tuple(sorted(labels.items()))), 0.0)


def family_names(text: str) -> set[str]:
    """Names as dashboards use them: of counters and histograms with their endings."""
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
