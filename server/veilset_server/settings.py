"""All settings of the service, as one frozen record, checked when made."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from veilset.core.params import MAX_BITS, MIN_BITS
from veilset.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Settings:
    """state: folder of ledger, raw vectors, artefacts and key. anchor: file that remembers charges outside it (default:
    beside it, STATE.anchor). redis: URL, or None for an embedded Valkey in the state
    folder. All times are seconds; max_bits caps one set's vector."""

    state: Path
    host: str = "127.0.0.1"
    port: int = 50051
    redis: str | None = None
    anchor: Path | None = None
    embedded_port: int = 0
    insecure: bool = False
    redis_timeout_seconds: float = 10.0
    replicas: int = 0
    keep_releases: int = 2
    grace_seconds: int = 600
    reconcile_seconds: float = 10.0
    idle_seconds: float = 60.0
    drain_seconds: float = 10.0
    publish_wait_seconds: float = 30.0
    abandoned_upload_hours: float = 24.0
    max_bits: int = 1 << 35
    max_sets: int = 10_000
    workers: int = 16
    log_level: str = "info"

    def __post_init__(self) -> None:
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
            "publish_wait_seconds": (0, 3600),
            "abandoned_upload_hours": (0.0001, 10**5),
            "max_bits": (MIN_BITS, MAX_BITS),
            "max_sets": (1, 10**6),
            "workers": (2, 256),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidInput(name, f"a number in [{low:g}, {high:g}]", value)
        if not self.insecure and not _is_loopback(self.host):
            raise InvalidInput(
                "host", "a loopback address, since traffic is plain text, or used with insecure", self.host
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
