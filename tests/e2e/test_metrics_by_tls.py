"""The metrics on an address that is not loopback: by TLS only, with the service's certificate, which is exchanged as that is."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.error import URLError

import pytest
from cryptography import x509

from harness.certificates import Authority
from harness.metrics import samples, value
from harness.programs import Finished, wait_until
from harness.service_process import ServiceProcess

EXPIRES = "veilset_tls_certificate_expiry_timestamp_seconds"


def scrape_by_tls(port: str, authority: Path) -> str:
    """The answer to somebody who trusts ``authority``."""
    context = ssl.create_default_context(cafile=authority)
    with urllib.request.urlopen(f"https://localhost:{port}/metrics", timeout=30, context=context) as answer:
        return str(answer.read().decode())


def expiry(certificate: Path) -> float:
    """When it runs out, as seconds since 1970."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()


def test_metrics_are_told_by_tls(start_service: Callable[..., ServiceProcess], tmp_path: Path) -> None:
    """Not in plain text; a client that says nothing keeps nobody waiting; a new certificate is there after SIGHUP."""
    authority = Authority(tmp_path)
    made = authority.issue()
    options = ["--metrics-port", "0", "--metrics-host", "0.0.0.0"]  # noqa: S104 - behind TLS
    service = start_service("--tls-cert", made.certificate, "--tls-key", made.key, *options)
    port = service.metrics.rpartition(":")[2]
    with socket.create_connection(("127.0.0.1", int(port))):
        found = samples(scrape_by_tls(port, made.authority))
    assert value(found, EXPIRES) == expiry(made.certificate)
    with pytest.raises((URLError, ConnectionError)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).close()
    for _ in range(10):  # a signal that is noticed now and then only would pass once
        before = served_certificate(port)
        authority.issue(lifetime=timedelta(days=3))  # in the place of the last
        os.kill(service.pid, signal.SIGHUP)
        wait_until(lambda last=before: served_certificate(port) != last)  # type: ignore[misc]
    assert value(samples(scrape_by_tls(port, made.authority)), EXPIRES) == expiry(made.certificate)


def served_certificate(port: str) -> str:
    """What the listener shows, in PEM form."""
    return ssl.get_server_certificate(("127.0.0.1", int(port)))


def test_metrics_in_plain_text_are_for_loopback(tmp_path: Path, veilset_here: Callable[..., Finished]) -> None:
    """As all of the service is."""
    options = ["--metrics-port", "0", "--metrics-host", "0.0.0.0"]  # noqa: S104 - refused
    done = veilset_here("serve", "--state", tmp_path / "state", *options)
    assert "metrics_host" in done.complaint().replace("-", "_")
    assert not (tmp_path / "state").exists()
