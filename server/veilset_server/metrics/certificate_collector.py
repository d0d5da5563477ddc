"""When the service's certificate runs out; from then on clients refuse it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class CertificateCollector(Collector):
    """A prometheus_client collector. certificate: the PEM file that --tls-cert names; its first certificate counts."""

    def __init__(self, certificate: Path) -> None:
        self._certificate = certificate

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One gauge; 0 for a file that cannot be read, which no new connection could be served from."""
        try:
            (found, *_) = x509.load_pem_x509_certificates(self._certificate.read_bytes())
            expires = found.not_valid_after_utc.timestamp()
        except (OSError, ValueError):
            expires = 0.0
        yield GaugeMetricFamily(
            "veilset_tls_certificate_expiry_timestamp_seconds",
            "When the certificate in the file of --tls-cert runs out; only with TLS.",
            value=expires,
        )
