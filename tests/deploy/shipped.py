"""What deploy/ ships, as the tests read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "helm" / "veilset" / "alerts.yaml"
CHART = DEPLOY / "helm" / "veilset"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
UNIT = DEPLOY / "systemd" / "veilset.service"


def read_yaml(path: Path) -> Any:
    """One document."""
    return yaml.safe_load(path.read_text())


def alerts() -> list[dict[str, Any]]:
    """All alert rules."""
    return [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "veilset.json").read_text())
    return found


def panel_queries() -> dict[str, list[str]]:
    """Panel title → its PromQL."""
    return {
        panel["title"]: [t["expr"] for t in panel["targets"]] for panel in dashboard()["panels"] if "targets" in panel
    }


def metrics_in(text: str) -> set[str]:
    """Names of veilset's metrics in a query, endings of histograms taken off."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bveilset_[a-z_]+", text)}


def documented_metrics() -> set[str]:
    """The rows of deploy/METRICS.md, which tests/e2e/test_metrics.py holds against what a service tells."""
    return set(re.findall(r"^\| `(veilset_\w+)`", (DEPLOY / "METRICS.md").read_text(), flags=re.MULTILINE))
