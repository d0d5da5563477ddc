"""What is read when Prometheus asks: the process, its disk, and the certificate. Nothing here depends on what was uploaded.

The standard collector of prometheus_client reveals too much: processor seconds grow with every hashed element, and resident
memory counts pages of mapped files. So memory is anonymous memory only, which does not hold vectors; there is no processor
time; and of the disk, which fills with uploads, only whether it is nearly full.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

NEARLY_FULL = 0.9
"""Share of the state folder's file system in use from which the disk counts as nearly full."""


class ProcessCollector(Collector):
    """A prometheus_client collector. state: the state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._began = time.time()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Metrics of the process and the state disk, as they are now."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        disk = os.statvfs(self._state)
        nearly_full = disk.f_bavail < (1 - NEARLY_FULL) * disk.f_blocks
        return [
            _gauge("veilset_process_start_timestamp_seconds", "When the service started.", self._began),
            _gauge(
                "veilset_process_anonymous_memory_bytes",
                "Memory of the process without mapped files.",
                int(status["RssAnon"].split()[0]) << 10,
            ),
            _gauge("veilset_process_threads", "Threads.", int(status["Threads"])),
            _gauge("veilset_process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - counted, not read
            _gauge("veilset_state_disk_nearly_full", "1 if less than a tenth of the disk is free.", int(nearly_full)),
        ]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


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
