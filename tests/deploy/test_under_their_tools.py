"""deploy/ under the tools that read it: Helm (as a library), hadolint, a Compose linter and parser, promtool, systemd-analyze.

A tool that is not there is skipped and named; `make deploy-check` installs those that are wheels.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from shipped import ALERTS, CHART, COMPOSE, DEPLOY, UNIT, panel_queries

pytestmark = pytest.mark.deploy

EVERYTHING: dict[str, Any] = {
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"a": "b"}}, "rules": {"enabled": True}},
    "redis": {"caSecret": {"name": "redis-ca"}},
    "serve": {"identitiesConfigMap": "who", "extraArgs": ["--max-sets", "3"], "preStopSeconds": 0},
    "tls": {"clientCertificates": True},
    "publishing": {
        "jobs": [{"set": "customers", "schedule": "0 3 1 * *"}],
    },
    "tracing": {"endpoint": "https://collector:4317"},
    "serviceAccount": {"name": "mine"},
    "nodeSelector": {"a": "b"},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "tolerations": [{"key": "a"}],
    "affinity": {"nodeAffinity": {}},
    "imagePullSecrets": [{"name": "a"}],
    "persistence": {"state": {"storageClass": "fast"}},
    "networkPolicy": {"redis": {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
}
NOTHING: dict[str, Any] = {
    "insecure": True,
    "metrics": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
VALUES: dict[str, dict[str, Any]] = {"as shipped": {}, "everything": EVERYTHING, "nothing": NOTHING}


def tool(name: str) -> str:
    """Where it is, beside this Python or on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str | Path) -> str:
    """Its output; it has to end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rendered(values: dict[str, Any]) -> dict[str, Any]:
    """The chart's objects by kind and name, as `helm template` gives them."""
    helm = pytest.importorskip("helm_python.chart")
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values=values, name="demo", namespace="ns")
    documents = [d for name, text in files.items() if name.endswith(".yaml") for d in yaml.safe_load_all(text) if d]
    return {f"{document['kind']} {document['metadata']['name']}": document for document in documents}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_lint(values: dict[str, Any]) -> None:
    """No error and no warning, schema included."""
    helm = pytest.importorskip("helm_python.chart")
    found = helm.lint(CHART, values, strict=True)
    assert found["errors"] == []
    assert [m for m in found["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicaCount": 2},
        {"tls": {"secret": "x"}},
        {"serve": {"drainSeconds": "long"}},
        {"persistence": {"state": {"accessModes": ["ReadWriteMany"]}}},
        {"podDisruptionBudget": {"maxUnavailable": 2}},
        {"tracing": {"endpoint": "collector:4317"}},
    ],
    ids=str,
)
def test_values_that_cannot_be_right_are_refused(wrong: dict[str, Any]) -> None:
    """Misspelt ones too."""
    helm = pytest.importorskip("helm_python")
    with helm.chart.Chart.load(CHART) as chart, pytest.raises(helm.HelmError):
        chart.render(values=wrong, name="demo", namespace="ns")


def test_the_chart_as_shipped() -> None:
    """One pod that may do nothing but its work, keeps its state, and is let go in order."""
    objects = rendered({})
    assert sorted(objects) == [
        "NetworkPolicy demo-veilset",
        "PodDisruptionBudget demo-veilset",
        "Service demo-veilset",
        "Service demo-veilset-metrics",
        "ServiceAccount demo-veilset",
        "StatefulSet demo-veilset",
    ]
    spec = objects["StatefulSet demo-veilset"]["spec"]
    assert spec["replicas"] == 1
    assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["anchor", "state"]
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = [container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert all(probe["exec"]["command"] == ["veilset", "health"] for probe in probes)
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]
    assert pod["terminationGracePeriodSeconds"] > 3 + 3 + 20
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | {"state", "anchor"}
    assert not any("insecure" in argument for argument in container["args"])


def test_the_chart_with_everything_and_with_nothing() -> None:
    """What can be turned on and off is."""
    everything, nothing = rendered(EVERYTHING), rendered(NOTHING)
    assert {"ServiceMonitor demo-veilset", "PrometheusRule demo-veilset"} <= set(everything)
    commands = {
        name: job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
        for name, job in everything.items()
        if job["kind"] == "CronJob"
    }
    assert commands == {"CronJob demo-veilset-publish-customers": ["publish", "customers"]}
    assert everything["PrometheusRule demo-veilset"]["spec"] == yaml.safe_load(ALERTS.read_text())
    (endpoint,) = everything["ServiceMonitor demo-veilset"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    container = everything["StatefulSet demo-veilset"]["spec"]["template"]["spec"]["containers"][0]
    assert "--client-ca=/etc/veilset/tls/ca.crt" in container["args"]
    assert container["args"][-2:] == ["--max-sets", "3"]
    assert "lifecycle" not in container
    assert sorted(nothing) == ["Service demo-veilset", "ServiceAccount demo-veilset", "StatefulSet demo-veilset"]
    container = nothing["StatefulSet demo-veilset"]["spec"]["template"]["spec"]["containers"][0]
    assert container["readinessProbe"]["grpc"] == {"port": 50051}
    assert "--insecure" in container["args"]


def test_hadolint() -> None:
    """No warning."""
    run(tool("hadolint"), "--failure-threshold", "warning", DEPLOY / "Dockerfile")


def test_compose_is_linted_and_parsed() -> None:
    """Nothing that is rated high; and Compose itself reads it, where it is installed."""
    run(tool("compose-lint"), COMPOSE)
    if shutil.which("docker-compose"):
        run("docker-compose", "-f", COMPOSE, "config", "--quiet")


def test_promtool_reads_alerts_and_dashboard(tmp_path: Path) -> None:
    """Rules as they are; each panel's query as a rule."""
    promtool = tool("promtool")
    run(promtool, "check", "rules", ALERTS)
    queries = [query for found in panel_queries().values() for query in found]
    rules = [
        {"record": f"panel:query{number}", "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for number, query in enumerate(queries)
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(promtool, "check", "rules", path)


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """promtool plays series of numbers; tests/deploy/alerts_test.yaml says what has to come of them, and what must not."""
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yaml"), tmp_path)
    assert "SUCCESS" in run(tool("promtool"), "test", "rules", tmp_path / "alerts_test.yaml")


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """Without a complaint, and rates it as little exposed."""
    analyze = tool("systemd-analyze")
    unit = tmp_path / "veilset.service"
    unit.write_text(
        UNIT.read_text().replace("/opt/veilset/bin/veilset", str(Path(sys.executable).with_name("veilset")))
    )
    assert run(analyze, "verify", unit) == ""
    rating = run(analyze, "security", "--offline=true", unit)
    exposure = re.search(r"Overall exposure level for veilset.service: ([0-9.]+)", rating)
    assert exposure is not None
    assert float(exposure[1]) < 2.0
