"""All settings of the service and its limits: frozen records, checked when they are made. `veilset serve` derives its options
from them, help texts and ranges included."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from veilset._service.endpoint import bare_host, is_loopback
from veilset.core.params import MAX_BITS, MIN_BITS
from veilset.errors import InvalidInput, LimitExceeded, must_be
from veilset_server.principals import AuthMode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def setting(default: Any, text: str, low: float | None = None, high: float | None = None, **option: Any) -> Any:
    """A field of a dataclass of settings, with the help text, the range and further attributes of its command-line option."""
    return field(default=default, metadata={"help": text, "range": (low, high), "option": option})


def check_ranges(settings: DataclassInstance) -> None:
    """Raises InvalidInput naming the first field that is out of its range."""
    for item in fields(settings):
        low, high = item.metadata.get("range", (None, None))
        value = getattr(settings, item.name)
        if low is not None and value is not None and not low <= value <= high:
            raise must_be(item.name, f"a number in [{low:g}, {high:g}]", value)


@dataclass(frozen=True, slots=True)
class Limits:
    """A principal is who the credentials name. Where authentication is off, calls are counted by address, and all uploads and
    sets count as one principal's.

    A sixteenth of ``max_calls`` is kept in addition for calls that are no streams. Twice ``requests_per_second`` may come
    at once. Open uploads are those that were begun and not finished, with or without a stream.
    """

    max_calls: int = setting(1024, "Calls open at a time, streams and others.", 1, 100_000)
    max_calls_per_principal: int = setting(
        128, "The same of one principal, or of one address without authentication.", 1, 100_000
    )
    requests_per_second: int = setting(10_000, "Calls begun a second, on average.", 1, 1e6)
    requests_per_second_per_principal: int = setting(2_000, "The same of one principal.", 1, 1e6)
    max_open_uploads: int = setting(10_000, "Uploads begun and not finished.", 1, 1_000_000)
    max_open_uploads_per_principal: int = setting(1_000, "The same of one principal.", 1, 1_000_000)
    max_sets_per_principal: int = setting(1_000, "Sets that one principal may have created.", 1, 1_000_000)
    max_message_bytes: int = setting(2 << 20, "Longest message of a call, in bytes.", 1 << 16, 1 << 26)
    failed_attempts_per_minute: int = setting(20, "Calls without valid credentials that one address may make.", 1, 1000)

    @property
    def reserved_calls(self) -> int:
        """Places beyond ``max_calls`` that streams cannot take."""
        return self.max_calls // 16

    def __post_init__(self) -> None:
        check_ranges(self)


def exceeded(what: str, setting: str, limit: float) -> LimitExceeded:
    """The refusal that names a limit. what: the sentence, such as "calls: 128 are open"."""
    return LimitExceeded(f"{what} (limit {setting} = {limit:g})", setting=setting, limit=f"{limit:g}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is an option of ``veilset serve``, with its default, help text and range."""

    state: Path = setting(Path("veilset-state"), "State folder: ledger, sets, releases, signing key.", file_okay=False)
    host: str = setting("127.0.0.1", "Address to listen on; without TLS only a loopback one.")
    port: int = setting(50051, "gRPC port; 0 takes a free one.", 0, 65535)
    redis: str | None = setting(
        None,
        "Redis or Valkey: redis://, rediss://, unix://, redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/NAME. Default: "
        "an embedded Valkey.",
        metavar="URL",
    )
    anchor: Path | None = setting(
        None,
        "File that remembers charges, outside the state folder, in a folder that exists, best on another volume; default: "
        "STATE.anchor.",
    )
    embedded_port: int = setting(
        0, "Port of the embedded Valkey; default: the one it had, or a free one.", 0, 65535, show_default=False
    )
    tls_cert: Path | None = setting(
        None, "Certificate chain (PEM) for TLS; read again on SIGHUP, or once it is another file."
    )
    tls_key: Path | None = setting(None, "Its private key (PEM).")
    client_ca: Path | None = setting(
        None,
        "Authority (PEM) of clients' certificates (mTLS): every client then has to show a certificate that it signed.",
    )
    insecure: bool = setting(False, "Allow plain text on an address that is not loopback.")
    replicas: int = setting(0, "Redis replicas that must hold a release before it becomes visible.", 0, 100)
    keep_releases: int = setting(2, "Releases of a set that stay in Redis.", 1, 1000)
    grace_seconds: int = setting(600, "How long an older release stays for readers in mid-download.", 1, 10**7)
    reconcile_seconds: float = setting(10.0, "How often Redis is compared with the ledger.", 0.1, 10**6)
    idle_seconds: float = setting(
        60.0, "After how long an upload stream without messages ends; it can be resumed.", 0.1, 86_400
    )
    drain_seconds: float = setting(10.0, "How long SIGTERM lets calls finish.", 0, 3600)
    shutdown_delay_seconds: float = setting(
        0.0,
        "How long calls are served after SIGTERM while health says NOT_SERVING, for load balancers.",
        0,
        3600,
    )
    publish_wait_seconds: float = setting(
        30.0,
        "How long a publish waits for Redis to show its charged release before it answers PENDING; with Redis down beforehand "
        "it fails at once and charges nothing.",
        0,
        3600,
    )
    redis_timeout_seconds: float = setting(
        10.0, "How long Redis may take for a command before it counts as unavailable.", 0.1, 600
    )
    abandoned_upload_hours: float = setting(
        24.0, "Unfinished uploads that nothing was sent to for so long are dropped.", 0.0001, 10**5
    )
    max_bits: int = setting(1 << 35, "Longest vector of a set, in bits.", MIN_BITS, MAX_BITS)
    max_sets: int = setting(10_000, "Number of sets.", 1, 10**6)
    workers: int = setting(
        16, "Calls processed at a time, and as many uploads; at most half of them of one caller.", 2, 256
    )
    log_level: str = setting("info", "", choices=("debug", "info", "warning", "error"))
    auth: str = setting(
        AuthMode.AUTO,
        "Whether callers have to show credentials; auto: once there is a token (veilset token) or --identities.",
        choices=tuple(AuthMode),
    )
    identities: Path | None = setting(
        None, "TOML file that gives names in client certificates their roles and sets; with --client-ca."
    )
    limits: Limits = field(default_factory=Limits)
    metrics_port: int | None = setting(
        None, "Port for Prometheus (GET /metrics); 0 takes a free one.  [default: off]", 0, 65535
    )
    metrics_host: str = setting("127.0.0.1", "Address of the metrics' own listener.")
    metrics_max_sets: int = setting(
        200, "Sets that get metrics of their own: budget, release age and sequence.", 0, 10_000
    )
    otlp_endpoint: str | None = setting(
        None,
        "OpenTelemetry collector (OTLP over gRPC) for traces: https://host:4317; needs the extra 'tracing'.",
        metavar="URL",
    )
    allow_core_dumps: bool = setting(False, "Let a crash write the process's memory, elements included, to a file.")

    def __post_init__(self) -> None:
        for name in ("host", "metrics_host"):  # an IPv6 address may come in brackets
            object.__setattr__(self, name, bare_host(getattr(self, name)))
        check_ranges(self)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing, given = ("tls-key", "tls-cert") if self.tls_key is None else ("tls-cert", "tls-key")
            raise InvalidInput(missing, f"{missing} is missing: {given} was given, and TLS needs both")
        if self.client_ca is not None and self.tls_cert is None:
            raise InvalidInput("client-ca", "client-ca needs TLS: give tls-cert and tls-key too")
        if not (self.tls_cert or self.insecure or is_loopback(self.host)):
            raise InvalidInput(
                "host",
                f"host {self.host!r} can be reached by other machines, and traffic would be plain text: give tls-cert and "
                "tls-key, or insecure, or use a loopback address",
            )
        if self.auth not in list(AuthMode):
            raise must_be("auth", f"one of {', '.join(AuthMode)}", self.auth)
        if self.identities is not None and (self.client_ca is None or self.auth == AuthMode.NONE):
            raise InvalidInput("identities", "identities needs client-ca, and does not work with auth none")
        self._check_monitoring()

    def _check_monitoring(self) -> None:
        """Metrics and traces hold names of sets and budgets: they too leave this machine by TLS only."""
        if not (self.metrics_port is None or self.tls_cert or self.insecure or is_loopback(self.metrics_host)):
            raise InvalidInput(
                "metrics_host",
                f"metrics_host {self.metrics_host!r} can be reached by other machines, and metrics would be plain text: give "
                "tls-cert and tls-key, or insecure, or use a loopback address",
            )
        if self.otlp_endpoint is None:
            return
        url = urlsplit(self.otlp_endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.path.strip("/"):
            raise must_be("otlp_endpoint", "a URL such as https://host:4317")  # not shown: it may hold a password
        if url.scheme == "http" and not (self.insecure or is_loopback(url.hostname)):
            raise InvalidInput(
                "otlp_endpoint",
                "otlp_endpoint sends traces to another machine in plain text: use an https:// URL, or give insecure",
            )
