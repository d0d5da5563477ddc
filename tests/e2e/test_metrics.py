"""GET /metrics of a real service: what is there, what it says after a job, and who may ask."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest

from harness.metrics import Samples, family_names, refused, scrape, scrape_text, value
from harness.programs import wait_until
from harness.raw_calls import RawUpload, open_upload
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess, running
from veilset.errors import BudgetExceeded, NotFound
from veilset_server.rpc.call import label_of
from veilset_server.rpc.server import served_methods

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
DOCUMENT = Path(__file__).parents[2] / "deploy" / "METRICS.md"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with metrics, and a set ``s`` whose budget two publishes have spent."""
    options = ["--metrics-port", "0", "--metrics-max-sets", "2"]
    with running(ServiceProcess(tmp_path_factory.mktemp("measured") / "state", options)) as service:
        with service.connect() as connection:
            connection.create_set(
                "s",
                size=1000,
                epsilon=1.5,
                delta=1e-9,
                adjacency="add-remove",
                calibration="exact",  # which spends its delta
                budget_epsilon=4,
                account="a",
            )
            connection.add("s", [f"element {number}" for number in range(1000)])
            for request_id in ("one", "two", "two"):
                connection.publish("s", request_id=request_id)
            with pytest.raises(BudgetExceeded):
                connection.publish("s", request_id="three")
            with pytest.raises(NotFound):
                connection.get_set("absent")
        yield service


def test_calls_are_counted_by_method_and_status(measured: ServiceProcess) -> None:
    """What succeeded, what was refused, and what no service has."""
    with grpc.insecure_channel(measured.address) as channel:
        unknown: Any = channel.unary_unary("/veilset.v1.MembershipService/secret-text")
        with pytest.raises(grpc.RpcError):
            unknown(b"")
    found = scrape(measured.metrics)
    assert value(found, "veilset_rpc_handled_total", method="PublishRelease", code="OK") == 3
    assert value(found, "veilset_rpc_handled_total", method="PublishRelease", code="FAILED_PRECONDITION") == 1
    assert value(found, "veilset_rpc_handled_total", method="GetSet", code="NOT_FOUND") >= 1
    assert value(found, "veilset_rpc_handled_total", method="other", code="UNIMPLEMENTED") == 1
    assert value(found, "veilset_rpc_started_total", method="AddElements") == 1
    assert value(found, "veilset_rpc_duration_seconds_count", method="CreateSet") == 1
    assert value(found, "veilset_rpc_duration_seconds_sum", method="CreateSet") > 0
    assert "secret-text" not in scrape_text(measured.metrics)


def test_publishes_are_counted_by_what_became_of_them(measured: ServiceProcess) -> None:
    """Which refusal it was is not told."""
    found = scrape(measured.metrics)
    outcomes = {dict(labels)["outcome"]: v for (name, labels), v in found.items() if name == "veilset_publish_total"}
    assert outcomes == {"charged": 2, "repeated": 1, "refused": 1, "unavailable": 0, "failed": 0}


def test_budgets_and_releases_are_as_the_ledger_has_them(measured: ServiceProcess) -> None:
    """Budget, what is left, price, newest release and when it was made."""
    found = scrape(measured.metrics)
    assert value(found, "veilset_budget_epsilon", account="a") == 4.0
    assert value(found, "veilset_budget_epsilon_left", account="a") == 1.0
    assert value(found, "veilset_budget_delta_left", account="a") == pytest.approx(0.0, abs=1e-12)
    assert value(found, "veilset_set_release_epsilon", set="s", account="a") == 1.5
    assert value(found, "veilset_set_release_delta", set="s", account="a") == 1e-9
    assert value(found, "veilset_release_sequence", set="s") == 2
    assert 0 <= time.time() - value(found, "veilset_release_created_timestamp_seconds", set="s") < 3600
    assert value(found, "veilset_releases_pending") == 0
    assert value(found, "veilset_ledger_readable") == 1


def test_an_open_upload_is_an_open_stream(measured: ServiceProcess) -> None:
    """While it is open; how long it was open is not told."""

    def streams() -> float:
        return value(scrape(measured.metrics), "veilset_rpc_open_streams", method="AddElements")

    assert streams() == 0
    with measured.stub() as stub, RawUpload(stub, open_upload("s", "open")) as upload:
        upload.opened()
        assert streams() == 1
    wait_until(lambda: streams() == 0)
    assert not [
        labels for name, labels in scrape(measured.metrics) if "duration" in name and "AddElements" in str(labels)
    ]


def test_only_so_many_sets_get_lines_of_their_own(start_service: Callable[..., ServiceProcess]) -> None:
    """By name; that there are more is told."""
    service = start_service("--metrics-port", "0", "--metrics-max-sets", "2")
    with service.connect() as connection:
        for name in ("c", "a", "d", "b"):
            connection.create_set(name, size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
    found = scrape(service.metrics)
    assert labels_of(found, "veilset_set_release_epsilon", "set") == {"a", "b"}
    assert labels_of(found, "veilset_budget_epsilon_left", "account") == {"a", "b"}
    assert value(found, "veilset_sets_left_out") == 1


def labels_of(found: Samples, name: str, label: str) -> set[str]:
    """All values of one label."""
    return {dict(labels)[label] for sample, labels in found if sample == name}


def test_a_lost_redis_shows(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer]
) -> None:
    """Down while it is gone, with failures and passes counted, and up again; what it lost is counted as restored."""
    redis = start_redis()
    service = start_service("--metrics-port", "0", "--redis", redis.url, "--reconcile-seconds", "0.2")
    with service.connect() as connection:
        connection.create_set("s", size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
        connection.add("s", ["a"])
        connection.publish("s")
    redis.stop()
    wait_until(lambda: value(scrape(service.metrics), "veilset_redis_up") == 0)
    found = scrape(service.metrics)
    assert sum(v for (name, _), v in found.items() if name == "veilset_redis_failures_total") >= 1
    assert value(found, "veilset_reconcile_passes_total", outcome="failed") >= 1
    redis.start()
    wait_until(lambda: value(scrape(service.metrics), "veilset_reconcile_restored_keys_total") >= 2)
    found = scrape(service.metrics)
    assert value(found, "veilset_redis_up") == 1
    assert value(found, "veilset_reconcile_last_success_timestamp_seconds") > 0


def test_the_listener_answers_one_path(measured: ServiceProcess) -> None:
    """And one method."""
    assert refused(measured.metrics, "/") == 404
    assert refused(measured.metrics, "/metrics/s") == 404
    assert refused(measured.metrics, method="POST") == 405


def test_every_metric_is_argued_for_and_every_argument_is_for_a_metric(measured: ServiceProcess) -> None:
    """deploy/METRICS.md has a row for each; nothing comes out that has none."""
    named = set(re.findall(r"^\| `(veilset_\w+)`", DOCUMENT.read_text(), flags=re.MULTILINE))
    ends = ("_bucket", "_sum", "_count")
    shown = {re.sub(rf"({'|'.join(ends)})$", "", name) for name in family_names(scrape_text(measured.metrics))}
    declared = set(re.findall(r"^# TYPE (\w+)", scrape_text(measured.metrics), flags=re.MULTILINE))
    assert named == declared | {"veilset_tls_certificate_expiry_timestamp_seconds"}  # in test_metrics_by_tls.py
    assert shown <= named


def test_what_an_alert_counts_is_there_before_it_happens(measured: ServiceProcess) -> None:
    """Prometheus sees no increase in a series that begins at 1: each selector of an alert that counts finds its series in a
    service to which none of this has happened, and every method's series."""
    selectors = set(re.findall(r"increase\((veilset_\w+)(?:\{([^}]*)\})?\[", ALERTS.read_text()))
    assert len(selectors) >= 5
    found = scrape(measured.metrics)
    for name, conditions in selectors:
        wanted = {label: options.split("|") for label, options in re.findall(r'(\w+)=~?"([^"]*)"', conditions)}
        methods = (
            [{"method": label_of(method.rpartition("/")[2])} for method in served_methods()]
            if "code" in wanted
            else [{}]
        )
        for labels in (
            {**method, **dict(zip(wanted, values, strict=True))}
            for method in methods
            for values in product(*wanted.values())
        ):
            assert (name, tuple(sorted(labels.items()))) in found, labels


def test_what_is_not_asked_for_is_not_imported() -> None:
    """Starting without metrics and traces costs nothing of theirs. (redis-py imports a part of OpenTelemetry if it is there.)"""
    script = (
        "import sys, pathlib, veilset_server.cli.serve, veilset_server.app; "
        "from veilset_server.metrics.monitoring import Monitoring; "
        "from veilset_server.settings import Settings; "
        "Monitoring(Settings(state=pathlib.Path('.')), ledger=None, methods=()).__enter__(); "
        "print(sorted({'prometheus_client', 'opentelemetry.exporter', 'veilset_server.metrics.tracing'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
