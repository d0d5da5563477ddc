"""The command group. Commands load when they are called, so that ``veilset --help`` starts at once."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Any

import click

from veilset.cli.output import EXIT_FAILED, complain
from veilset.errors import InvalidInput, VeilsetError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Name → (module, attribute, one line of help). A test holds the help lines against the commands' own.
COMMANDS = {
    "plan": ("veilset.cli.plan", "plan", "Find the best encoding and its dimensions for a size and a promise."),
    "demo": ("veilset.cli.demo", "demo", "Show the whole job on a real list."),
    "create": ("veilset.cli.sets", "create", "Create a set."),
    "spec": ("veilset.cli.spec", "spec", "Agree on parameters with partners."),
    "secret": ("veilset.cli.admin", "secret", "Make the secret of a keyed scheme."),
    "sets": ("veilset.cli.sets", "sets", "List the sets."),
    "add": ("veilset.cli.add", "add", "Add elements from files."),
    "remove": ("veilset.cli.add", "remove", "Remove the elements of files."),
    "replace": ("veilset.cli.add", "replace", "Replace a set's content by files."),
    "publish": ("veilset.cli.releases", "publish", "Publish a noisy release."),
    "query": ("veilset.cli.query", "query", "Ask a release about elements."),
    "overlap": ("veilset.cli.overlap", "overlap", "Estimate what a list or two sets have in common."),
    "count": ("veilset.cli.inspect", "count", "Estimate how many elements a set holds."),
    "inspect": ("veilset.cli.inspect", "inspect", "Show what a release says of itself."),
    "page": ("veilset.cli.page", "page", "Write a web page that asks a release in the browser."),
    "verify": ("veilset.cli.inspect", "verify", "Check a release, its noise included."),
    "fetch": ("veilset.cli.releases", "fetch", "Save a checked release to a file."),
    "releases": ("veilset.cli.releases", "releases", "List the releases of a set."),
    "budget": ("veilset.cli.admin", "budget", "Show or raise a privacy budget."),
    "health": ("veilset.cli.admin", "health", "Ask whether the service is ready."),
    "reconcile": ("veilset.cli.releases", "reconcile", "Restore what Redis lost."),
    "confirm-loss": ("veilset.cli.admin", "confirm_loss", "Charge what a restored ledger forgot."),
    "delete": ("veilset.cli.sets", "delete", "Delete a set; its charges stay."),
}
SERVER_COMMANDS = {
    "serve": "Run the service.",
    "keys": "Show and rotate the signing keys.",
    "token": "Make, list and revoke access tokens.",
}


OTHER_NAMES = {
    "key": "key_file",
    "max_age_seconds": "max_age",
    "max_false_positive_rate": "threshold_fpr",
    "min_true_positive_rate": "threshold_tpr",
    "prior": "posterior",
    "token": "token_file",
}
"""Field of the library → option of the command line, where their names differ."""


class LazyGroup(click.Group):
    """Imports a command when it is called; the server's commands come from entry points."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; errors of the library name its option where that is written differently."""
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            for parameter in command.params if command is not None else ():
                if parameter.name == OTHER_NAMES.get(error.field, error.field) != parameter.name.replace("_", "-"):
                    _name_option(error, parameter)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*SERVER_COMMANDS, *COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in COMMANDS:
            module, attribute, _ = COMMANDS[cmd_name]
            command = getattr(import_module(module), attribute)
        elif cmd_name in SERVER_COMMANDS:
            command = _server_command(cmd_name)
        else:
            return None
        assert isinstance(command, click.Command)
        _take_environment(command, f"VEILSET_{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        rows = [*SERVER_COMMANDS.items(), *((name, line) for name, (_, _, line) in COMMANDS.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _take_environment(command: click.Command, prefix: str) -> None:
    """Name the environment variables of every option: its own, by the option's name and not, as click does, by that of the
    function's argument; then the one that many commands share, such as VEILSET_SERVER."""
    for parameter in command.params:
        long = next((text for text in parameter.opts if text.startswith("--")), "")
        if isinstance(parameter, click.Option) and long:
            own = f"{prefix}_{long.removeprefix('--')}".replace("-", "_").upper()
            parameter.envvar = [own, *(name for name in _variables(parameter) if name != own)]
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        _take_environment(part, f"{prefix}_{name}")


def _variables(option: click.Option) -> list[str]:
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())


def _name_option(error: InvalidInput, parameter: click.Parameter) -> None:
    if isinstance(parameter, click.Option) and error.message.startswith((f"{error.field}: ", f"{error.field} ")):
        variable = "".join(f" ({name})" for name in _variables(parameter)[1:])
        error.message = parameter.opts[0] + variable + error.message.removeprefix(error.field)
        error.args = (error.message,)


def _server_command(name: str) -> click.Command:
    from importlib.metadata import entry_points  # slow to import, and only the server's commands need it

    found = entry_points(group="veilset.commands", name=name)
    try:
        command = next(iter(found)).load()
    except (ImportError, StopIteration):
        raise click.ClickException("the server is not installed; pip install 'veilset[server,embedded]'") from None
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "VEILSET", "max_content_width": 110},
)
@click.version_option(package_name="veilset")
def cli() -> None:
    """Private membership sets: differentially private Bloom filters over gRPC and Redis.

    Every option can be given in the environment as VEILSET_<COMMAND>_<OPTION>; the service's address and the Redis URL
    also as VEILSET_SERVER and VEILSET_REDIS. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 a release that is charged and
    that Redis has not accepted yet.
    """


def main() -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else gRPC writes lines of its own
    # Nothing here multiplies matrices, and numpy's threads for it take a tenth of a second of processor time to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):  # either is None where it is closed
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Abort:
        _complain("interrupted", EXIT_INTERRUPTED)
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)  # a thread may be reading standard input, and Python would wait for it and crash
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        code = _complain(error.format_message() + hint, error.exit_code)
    except InvalidInput as error:
        code = _complain(error.message, EXIT_USAGE)
    except VeilsetError as error:
        code = _complain(error.message, EXIT_FAILED)
    except BrokenPipeError:
        sys.stdout = None
        code = EXIT_FAILED
    except OSError as error:  # a file that cannot be written, a folder that cannot be made
        where = f"{error.filename}: " if error.filename else ""
        code = _complain(f"{where}{error.strerror or type(error).__name__}", EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    """Write a message as one line to standard error; returns the exit code."""
    complain(message)
    return code


if __name__ == "__main__":
    main()
