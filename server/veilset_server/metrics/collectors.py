"""What is read when Prometheus asks: the process, its disk, the certificate, and the ledger's budgets, releases and sets.
Nothing here depends on what was uploaded.

The standard collector of prometheus_client reveals too much: processor seconds grow with every hashed element, and resident
memory counts pages of mapped files. So memory is anonymous memory only, which does not hold vectors; there is no processor
time; and of the disk, which fills with uploads, only whether it is nearly full.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from veilset.core.release.signing import open_manifest
from veilset.errors import ReleaseRejected, VeilsetError
from veilset_server.records import ReleaseState, StoredRelease, StoredSet
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger

NEARLY_FULL = 0.9
"""Share of the state folder's file system in use from which the disk counts as nearly full."""

FRESH_SECONDS = 1.0
"""How long an answer is given again, so that asking often costs nothing."""


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


class LedgerCollector(Collector):
    """A prometheus_client collector. max_sets: how many sets, by name, get lines of their own; so many accounts at most."""

    def __init__(self, ledger: SqliteLedger, max_sets: int) -> None:
        self._ledger = ledger
        self._max_sets = max_sets
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._families: list[GaugeMetricFamily] = []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families; only ``veilset_ledger_readable 0`` where the ledger does not answer."""
        with self._lock:
            if time.monotonic() - self._read_at > FRESH_SECONDS:
                readable = GaugeMetricFamily("veilset_ledger_readable", "Whether the ledger could be read just now.")
                try:
                    self._families = self._read()
                    readable.add_metric([], 1)
                except VeilsetError:
                    self._families = []
                    readable.add_metric([], 0)
                self._families.append(readable)
                self._read_at = time.monotonic()
            return list(self._families)

    def _read(self) -> list[GaugeMetricFamily]:
        sets = self._ledger.list_sets("", self._max_sets + 1)
        shown, more = sets[: self._max_sets], len(sets) > self._max_sets
        published = self._ledger.releases_in_state(ReleaseState.PUBLISHED)  # oldest first
        newest = {release.set_name: release for release in published}
        pending = GaugeMetricFamily("veilset_releases_pending", "Releases that are charged and not yet in Redis.")
        pending.add_metric([], len(self._ledger.releases_in_state(ReleaseState.PENDING)))
        left_out = GaugeMetricFamily("veilset_sets_left_out", "1 if there are more sets than get lines of their own.")
        left_out.add_metric([], int(more))
        made = {(release.set_name, release.sequence): release for release in published}
        return [*_sets(shown, newest), *self._generations(shown, made), *self._budgets(shown), pending, left_out]

    def _generations(
        self, shown: list[StoredSet], published: dict[tuple[str, int], StoredRelease]
    ) -> list[GaugeMetricFamily]:
        """Of the sets whose base release plans increments."""
        labels = ["set"]
        base = GaugeMetricFamily(
            "veilset_generation", "Sequence of the base release of the set's generation.", labels=labels
        )
        left = GaugeMetricFamily(
            "veilset_generation_increments_left", "Increments that may follow at no further charge.", labels=labels
        )
        created = GaugeMetricFamily(
            "veilset_generation_created_timestamp_seconds", "When the base release was made.", labels=labels
        )
        for stored in shown:
            name, generation = stored.description.name, self._ledger.generation(stored.set_id)
            if generation is None:
                continue
            base.add_metric([name], generation.base)
            left.add_metric([name], generation.planned - generation.made)
            if (name, generation.base) in published:
                with suppress(ReleaseRejected):
                    manifest = published[name, generation.base].manifest
                    created.add_metric([name], open_manifest(manifest).created_at_us / 1e6)
        return [base, left, created]

    def _budgets(self, shown: list[StoredSet]) -> list[GaugeMetricFamily]:
        labels = ["account"]
        epsilon = GaugeMetricFamily("veilset_budget_epsilon", "Total ε of a budget account.", labels=labels)
        epsilon_left = GaugeMetricFamily("veilset_budget_epsilon_left", "ε that is not spent.", labels=labels)
        delta = GaugeMetricFamily("veilset_budget_delta", "Total δ of a budget account.", labels=labels)
        delta_left = GaugeMetricFamily("veilset_budget_delta_left", "δ that is not spent.", labels=labels)
        for name in sorted({stored.description.account for stored in shown}):
            account = self._ledger.get_account(name)
            epsilon.add_metric([name], account.total_nano_epsilon / 1e9)
            epsilon_left.add_metric([name], (account.total_nano_epsilon - account.spent_nano_epsilon) / 1e9)
            delta.add_metric([name], float(account.total_delta))
            delta_left.add_metric([name], float(account.total_delta - account.spent_delta))
        return [epsilon, epsilon_left, delta, delta_left]


def _sets(shown: list[StoredSet], newest: dict[str, StoredRelease]) -> list[GaugeMetricFamily]:
    labels = ["set", "account"]
    epsilon = GaugeMetricFamily(
        "veilset_set_release_epsilon", "ε that a release of the set costs its account.", labels=labels
    )
    delta = GaugeMetricFamily("veilset_set_release_delta", "δ that a release of the set costs it.", labels=labels)
    sequence = GaugeMetricFamily(
        "veilset_release_sequence", "Sequence of the newest release that readers find.", labels=["set"]
    )
    created = GaugeMetricFamily(
        "veilset_release_created_timestamp_seconds", "When that release was made.", labels=["set"]
    )
    for stored in shown:
        name = stored.description.name
        epsilon.add_metric([name, stored.description.account], stored.description.privacy.epsilon)
        delta.add_metric([name, stored.description.account], stored.description.privacy.delta)
        if name in newest:
            sequence.add_metric([name], newest[name].sequence)
            with suppress(ReleaseRejected):  # damaged; the delivery reports it
                created.add_metric([name], open_manifest(newest[name].manifest).created_at_us / 1e6)
    return [epsilon, delta, sequence, created]
