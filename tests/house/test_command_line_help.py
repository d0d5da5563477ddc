"""The command line's own list of commands, each command's help, and the README's table say the same."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from veilset.cli.main import COMMANDS, SERVER_COMMANDS, cli

README = (Path(__file__).parents[2] / "README.md").read_text()
SHORT_HELP = {name: line for name, (_, _, line) in COMMANDS.items()} | SERVER_COMMANDS


def command(name: str) -> click.Command:
    """The command of that name, loaded."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SHORT_HELP)
def test_the_list_tells_what_the_command_tells(name: str) -> None:
    """The list stands in main.py so that ``--help`` loads nothing."""
    found = command(name)
    assert found.name == name
    assert found.short_help == SHORT_HELP[name]
    assert found.help


@pytest.mark.parametrize("name", SHORT_HELP)
def test_every_command_speaks_json_and_explains_its_options(name: str) -> None:
    """Every option has a help text, but those whose choices say it; of a group, those of each of its commands."""
    found = command(name)
    for leaf in found.commands.values() if isinstance(found, click.Group) else [found]:
        assert leaf.help
        options = [parameter for parameter in leaf.params if isinstance(parameter, click.Option)]
        assert "--json" in [text for option in options for text in option.opts]
        unexplained = [o.opts[0] for o in options if not o.help and not isinstance(o.type, click.Choice)]
        assert unexplained == []


def test_the_server_commands_are_the_entry_points() -> None:
    """The client finds them without importing the server."""
    assert {found.name for found in entry_points(group="veilset.commands")} == set(SERVER_COMMANDS)


def test_the_readme_names_every_command() -> None:
    """And no other."""
    rows = re.findall(r"^\| (`[a-z`, -]+`) \|", README, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named) == sorted(SHORT_HELP)
