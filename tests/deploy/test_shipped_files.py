"""The files in deploy/ name only what there is: metrics, options, alerts that the runbook explains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from shipped import (
    ALERTS,
    CHART,
    COMPOSE,
    DEPLOY,
    ROOT,
    UNIT,
    alerts,
    dashboard,
    documented_metrics,
    metrics_in,
    read_yaml,
)
from shipped import panel_queries as queries

from veilset.cli.main import cli
from veilset_server.cli.serve import serve

RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text()


def test_alerts_name_metrics_that_there_are() -> None:
    """Each asks for at least one."""
    for rule in alerts():
        assert metrics_in(rule["expr"]), rule["alert"]
        assert metrics_in(rule["expr"]) <= documented_metrics(), rule["alert"]


def test_the_dashboard_names_metrics_that_there_are() -> None:
    """In every panel, and in its variables; and it shows most of them."""
    shown: set[str] = set()
    for title, found in queries().items():
        assert found, title
        for query in found:
            assert metrics_in(query), title
            shown |= metrics_in(query)
    shown |= metrics_in(json.dumps(dashboard()["templating"]))
    assert shown <= documented_metrics()
    assert documented_metrics() - shown <= {"veilset_sets_left_out"}


def test_the_dashboard_is_one() -> None:
    """Panels have ids and places of their own."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_runbook_explains_every_alert() -> None:
    """Under its name, and no other."""
    headings = re.findall(r"^### (Veilset\w+)", RUNBOOK, flags=re.MULTILINE)
    assert sorted(headings) == sorted(rule["alert"] for rule in alerts())


def commands_in(text: str) -> list[tuple[str, list[str]]]:
    """(command, its flags) of every ``veilset …`` between backticks, and at the end of a shell line."""
    lines = re.findall(r"`veilset ([^`]+)`|(?:^|-- )veilset (.+)$", text.replace("\\\n", " "), flags=re.MULTILINE)
    found = []
    for line in (quoted or typed for quoted, typed in lines):
        first, *rest = line.split()
        names = rest[:1] if first in ("token", "keys") and re.fullmatch("[a-z]+", "".join(rest[:1])) else []
        found.append((" ".join([first, *names]), re.findall(r"(?<=\s)--[a-z-]+", line)))
    return found


@pytest.mark.parametrize(("document", "least"), [("RUNBOOK.md", 10), ("helm/veilset/templates/NOTES.txt", 2)])
def test_commands_that_are_told_are_there(document: str, least: int) -> None:
    """With the options that are told beside them."""
    told = commands_in((DEPLOY / document).read_text())
    assert len(told) >= least
    for name, flags in told:
        command: click.Command | None = cli
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None, name
        assert set(flags) <= {option for parameter in command.params for option in parameter.opts}, name


def test_every_alert_is_seen_to_fire() -> None:
    """In the cases that promtool plays; and, in the first of them, to keep quiet."""
    quiet, *cases = read_yaml(Path(__file__).with_name("alerts_test.yaml"))["tests"]
    known = {rule["alert"] for rule in alerts()}
    assert {test["alertname"] for test in quiet["alert_rule_test"]} == known
    assert {test["alertname"] for case in cases for test in case["alert_rule_test"] if "exp_alerts" in test} == known


def test_alerts_are_where_prometheus_users_look() -> None:
    """One file, by two names."""
    assert (DEPLOY / "prometheus" / "alerts.yaml").resolve() == ALERTS


GIVEN = {
    "compose.yaml": " ".join(read_yaml(COMPOSE)["services"]["veilset"]["command"]),
    "the chart": (CHART / "templates" / "_helpers.tpl").read_text(),
    "the unit": UNIT.read_text(),
    "the image": (DEPLOY / "Dockerfile").read_text().partition("ENV ")[2],
}


@pytest.mark.parametrize("where", GIVEN)
def test_options_that_are_given_are_options_of_serve(where: str) -> None:
    """As flags and as variables. The unit's comments tell of other commands' flags too."""
    told = re.sub(r"^#.*$", "", GIVEN[where], flags=re.MULTILINE).partition("HEALTHCHECK")[0]
    flags = set(re.findall(r"(?<=\s)--[a-z][a-z-]+", told))
    assert flags <= {option for parameter in serve.params for option in parameter.opts}
    names = {str(parameter.name).upper() for parameter in serve.params}
    variables = set(re.findall(r"VEILSET_SERVE_([A-Z_]+)=", told))
    assert variables <= names
    assert flags | variables


def test_the_image_is_built_from_what_is_let_through() -> None:
    """Each COPY from the context is allowed by .dockerignore, which allows nothing else."""
    allowed = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE))
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    copied = {name for line in copies for name in line.split()}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_compose_shuts_its_services_in() -> None:
    """Read-only root, no rights, no root user, a health check or an image that has one, ports on this machine only."""
    found = read_yaml(COMPOSE)
    for name, service in found["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service["user"].startswith(("0", "root")), name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert set(service["secrets"]) <= set(found["secrets"]), name


def test_the_unit_starts_again_what_a_reload_ended() -> None:
    """SIGHUP before Python is up ends the process, and systemd takes that for a clean end unless told otherwise."""
    lines = UNIT.read_text().splitlines()
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines
    assert "RestartForceExitStatus=SIGHUP" in lines
