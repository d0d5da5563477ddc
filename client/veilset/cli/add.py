"""``veilset add``, ``remove`` and ``replace``: one command with three operations."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from veilset._display import progress
from veilset._input.files import FileForm, read_files
from veilset._input.text import Tally
from veilset.cli import input_options, options
from veilset.cli.options import Server
from veilset.cli.output import emit
from veilset.core.elements.packed import PackedElements, PackedStream
from veilset.core.params import Operation
from veilset.errors import InvalidInput, Unavailable

_FILES = """
    Files have one element per line, or a column; gzip, bzip2, xz and zstd are unpacked; - is standard input. Elements are
    hashed here; only digests are sent. Nothing counts until the whole upload is finished. Missing values, empty lines and
    empty cells are skipped and counted. A --column that is a number means a CSV file without a header, unless --header is
    given.
"""


def _some(elements: PackedStream) -> PackedStream:
    """The elements, unchanged; raises InvalidInput at their end if there were none."""

    def blocks() -> Iterator[PackedElements]:
        empty = True
        for block in elements.blocks():
            empty = False
            yield block
        if empty:
            raise InvalidInput(
                "files", "files hold no element, and replace would empty the set; --allow-empty permits it"
            )

    return PackedStream(blocks)


_allow_empty = click.option("--allow-empty", is_flag=True, help="Let files without an element empty the set.")


def _command(operation: Operation, short_help: str, meaning: str, doing: str, done: str) -> click.Command:
    """The command of an operation. meaning: what it does, for its help. doing, done: templates of its messages."""

    @click.command(str(operation), short_help=short_help, help=meaning + _FILES)
    @options.set_name
    @click.argument("files", nargs=-1, required=True, metavar="FILE...")
    @input_options.file_form
    @input_options.skip_invalid
    @click.option(
        "--upload-id",
        help="Name of this upload; the same name with the same files resumes it. Other elements need another name.",
    )
    @click.option(
        "--retry-seconds",
        type=float,
        help="How long to keep trying without progress while the service is away or restarts; default: 30.",
    )
    @options.key_file
    @options.server
    @options.as_json
    def command(
        set_name: str,
        files: tuple[str, ...],
        form: FileForm,
        skip_invalid: bool,
        upload_id: str | None,
        retry_seconds: float | None,
        key_file: Path | None,
        server: Server,
        as_json: bool,
        allow_empty: bool = True,
    ) -> None:
        tally = Tally()
        elements = read_files(files, form, tally) if allow_empty else _some(read_files(files, form, tally))
        chosen = upload_id or secrets.token_hex(8)
        try:
            with server.connect() as service, progress(doing.format(set_name)) as show:
                result = service.upload(
                    operation,
                    set_name,
                    elements,
                    upload_id=chosen,
                    key=options.read_key(key_file),
                    on_progress=show,
                    retry_seconds=retry_seconds,
                    skip_invalid=skip_invalid,
                )
        except (Unavailable, KeyboardInterrupt):
            if tally.files:  # else the service never answered, and nothing can be resumed
                click.echo(f"veilset: not finished; the same command with --upload-id {chosen} resumes it", err=True)
            raise
        input_options.report(tally, result.invalid)
        shown = {"set": set_name, "operation": str(operation)} | asdict(result)
        again = f" ({result.resumed} of them in an earlier run)" if result.resumed else ""
        emit(shown, as_json, f"{done.format(result.elements, set_name)}{again}, duplicates included")

    return _allow_empty(command) if operation is Operation.REPLACE else command


add = _command(
    Operation.ADD,
    "Add elements from files.",
    """Add the elements of FILEs to SET. They are in every later base release, and in the next increment if they are new. No
    answer shows whether an element was there before. Adding costs no budget; releases do.
    """,
    "adding to {}",
    "added {} elements to {}",
)
remove = _command(
    Operation.REMOVE,
    "Remove the elements of files.",
    """Remove the elements of FILEs from SET. This takes effect in the next base release: published releases do not change, and
    nothing is refunded. No answer shows whether an element was in the set. An element that is added again later is in the set
    again.
    """,
    "removing from {}",
    "removed {} elements from {}",
)
replace = _command(
    Operation.REPLACE,
    "Replace a set's content by files.",
    """Make the elements of FILEs the whole content of SET. The old content stays until the service holds all of the new one.
    This takes effect in the next base release: published releases do not change, and nothing is refunded. No answer shows which
    elements left or stayed.
    """,
    "replacing {}",
    "{} elements are now the content of {}",
)
