"""The command line's own list of commands, each command's help, and the table of docs/commands.md say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from harness.programs import Finished
from veilset.cli.main import COMMANDS, SERVER_COMMANDS, cli

DOCUMENT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
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


def leaves(name: str) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, each with all its words."""
    found = command(name)
    if isinstance(found, click.Group):
        yield from ((f"{name} {word}", part) for word, part in found.commands.items())
    else:
        yield name, found


@pytest.mark.parametrize("name", SHORT_HELP)
def test_every_option_can_be_given_in_the_environment_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """VEILSET_<COMMAND>_<OPTION>, whatever the function's argument is called; where the option is known by a shorter variable
    everywhere (VEILSET_SERVER), by both."""
    for words, leaf in leaves(name):
        prefix = f"VEILSET_{re.sub('[ -]', '_', words).upper()}"
        context = click.Context(leaf, info_name=words, auto_envvar_prefix=prefix)
        for option in leaf.params:
            if isinstance(option, click.Option):
                long = next(text for text in option.opts if text.startswith("--"))
                variable = f"{prefix}_{long.removeprefix('--').replace('-', '_').upper()}"
                monkeypatch.setenv(variable, "given")
                assert option.resolve_envvar_value(context) == "given", variable
                monkeypatch.delenv(variable)


def test_an_option_from_the_environment_is_taken(veilset_here: Callable[..., Finished]) -> None:
    """A flag too, by the whole command line."""
    plan = ("plan", "--size", "1000", "--epsilon", "4", "--delta", "1e-9", "--adjacency", "add-remove")
    assert veilset_here(*plan, settings={"VEILSET_PLAN_JSON": "1"}).json()["bytes"] > 0


def test_the_server_commands_are_the_entry_points() -> None:
    """The client finds them without importing the server."""
    assert {found.name for found in entry_points(group="veilset.commands")} == set(SERVER_COMMANDS)


def test_the_document_names_every_command() -> None:
    """And no other."""
    rows = re.findall(r"^\| (`[a-z`, -]+`) \|", DOCUMENT, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named) == sorted(SHORT_HELP)
