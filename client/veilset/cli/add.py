"""``veilset add``, ``remove`` and ``replace``: one command with three operations."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from veilset._input.files import FileForm, read_files
from veilset._input.text import Tally
from veilset.cli import input_options, options
from veilset.cli.output import emit, progress
from veilset.cli.server import Server
from veilset.core.elements.packed import PackedElements, PackedStream
from veilset.core.params import Operation
from veilset.errors import InvalidInput, Unavailable

_FILES = """
    Files have one element a line, or a column; gzip, bzip2, xz and zstd are unpacked; - is standard input. Elements are
    hashed here; only digests are sent. Nothing counts until the whole upload is finished. Missing values, empty lines and
    empty cells are skipped and counted. A --column that is a number means a CSV file without a header, unless --header is
    given.
"""


def _some(elements: PackedStream) -> PackedStream:
    """The same; raises InvalidInput at the end where there were none."""

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
    """meaning: what the operation does, for its help. doing, done: templates of what is told."""

    @click.command(str(operation), short_help=short_help, help=meaning + _FILES)
    @options.set_name
    @click.argument("files", nargs=-1, required=True, metavar="FILE...")
    @input_options.file_form
    @input_options.skip_invalid
    @click.option(
        "--upload-id",
        help="Name of this upload; the same again, with the same files, resumes it after a cut. Other elements need another.",
    )
    @click.option(
        "--retry-seconds",
        type=float,
        help="How long to go on trying, without progress, where the service is away or restarts; default: 30.",
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
            if tally.files:  # else the service never answered, and there is nothing to resume
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
    """Add the elements of FILEs to SET. They are in every later base release, and in the next increment if they are new.
    Whether an element was there before is never told. Adding costs no budget; releases do.
    """,
    "adding to {}",
    "added {} elements to {}",
)
remove = _command(
    Operation.REMOVE,
    "Remove the elements of files.",
    """Remove the elements of FILEs from SET. This takes effect in the next base release: a release that is out is not changed,
    what it cost stays charged, and nothing is refunded. Whether an element was in the set is never confirmed. An element that is
    added again later is in the set again.
    """,
    "removing from {}",
    "removed {} elements from {}",
)
replace = _command(
    Operation.REPLACE,
    "Replace a set's content by files.",
    """Make the elements of FILEs the whole content of SET. The old content stays until all of the new one is held. This
    takes effect in the next base release: a release that is out is not changed, what it cost stays charged, and nothing is
    refunded. Which elements left or stayed is never confirmed.
    """,
    "replacing {}",
    "{} elements are the content of {} now",
)
