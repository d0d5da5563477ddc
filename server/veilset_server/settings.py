"""All settings of the service, as one frozen record, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from veilset._service.endpoint import bare_host, is_loopback
from veilset.core.params import MAX_BITS, MIN_BITS
from veilset.errors import must_be
from veilset_server.limits import Limits
from veilset_server.principals import AuthMode


@dataclass(frozen=True, slots=True)
class Settings:
    """state: folder of ledger, runs, artefacts and key. anchor: file that remembers charges outside it (default:
    beside it, STATE.anchor). redis: URL, or None for an embedded Valkey in the state
    folder. tls_cert, tls_key: PEM files for TLS; client_ca: authority of the certificates that clients then have to show.
    shutdown_delay_seconds: how long SIGTERM goes on serving once health says no. All times are seconds; max_bits caps one
    set's vector."""

    state: Path
    host: str = "127.0.0.1"
    port: int = 50051
    redis: str | None = None
    anchor: Path | None = None
    embedded_port: int = 0
    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    redis_timeout_seconds: float = 10.0
    replicas: int = 0
    keep_releases: int = 2
    grace_seconds: int = 600
    reconcile_seconds: float = 10.0
    idle_seconds: float = 60.0
    drain_seconds: float = 10.0
    shutdown_delay_seconds: float = 0.0
    publish_wait_seconds: float = 30.0
    abandoned_upload_hours: float = 24.0
    max_bits: int = 1 << 35
    max_sets: int = 10_000
    workers: int = 16
    log_level: str = "info"
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_max_sets: int = 200
    otlp_endpoint: str | None = None
    allow_core_dumps: bool = False
    auth: str = AuthMode.AUTO
    identities: Path | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("host", "metrics_host"):  # an IPv6 address may come in brackets
            object.__setattr__(self, name, bare_host(getattr(self, name)))
        ranges: dict[str, tuple[float, float]] = {
            "port": (0, 65535),
            "embedded_port": (0, 65535),
            "redis_timeout_seconds": (0.1, 600),
            "replicas": (0, 100),
            "keep_releases": (1, 1000),
            "grace_seconds": (1, 10**7),
            "reconcile_seconds": (0.1, 10**6),
            "idle_seconds": (0.1, 86_400),
            "drain_seconds": (0, 3600),
            "shutdown_delay_seconds": (0, 3600),
            "publish_wait_seconds": (0, 3600),
            "abandoned_upload_hours": (0.0001, 10**5),
            "max_bits": (MIN_BITS, MAX_BITS),
            "max_sets": (1, 10**6),
            "workers": (2, 256),
            "metrics_port": (0, 65535),
            "metrics_max_sets": (0, 10_000),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise must_be(name, f"a number in [{low:g}, {high:g}]", value)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise must_be("tls-key" if self.tls_key is None else "tls-cert", "given where the other of the two is")
        if self.client_ca is not None and self.tls_cert is None:
            raise must_be("client-ca", "used with tls-cert and tls-key", str(self.client_ca))
        if not (self.tls_cert or self.insecure or is_loopback(self.host)):
            raise must_be(
                "host", "a loopback address, since traffic is plain text, or used with tls-cert, or insecure", self.host
            )
        if self.auth not in list(AuthMode):
            raise must_be("auth", f"one of {', '.join(AuthMode)}", self.auth)
        if self.identities is not None and (self.client_ca is None or self.auth == AuthMode.NONE):
            raise must_be("identities", "used with client-ca, and not with auth none", str(self.identities))
        self._check_monitoring()

    def _check_monitoring(self) -> None:
        """Metrics and traces name sets and tell budgets: the rule of plain text is theirs too."""
        if not (self.metrics_port is None or self.tls_cert or self.insecure or is_loopback(self.metrics_host)):
            raise must_be("metrics_host", "a loopback address, or used with tls-cert, or insecure", self.metrics_host)
        if self.otlp_endpoint is None:
            return
        url = urlsplit(self.otlp_endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.path.strip("/"):
            raise must_be("otlp_endpoint", "a URL such as https://host:4317")  # not shown: it may hold a password
        if url.scheme == "http" and not (self.insecure or is_loopback(url.hostname)):
            raise must_be("otlp_endpoint", "an https:// URL unless on this machine, or used with insecure")
