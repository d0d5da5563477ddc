"""``veilset page``: a release as a folder for a web server."""

from __future__ import annotations

from pathlib import Path

import click

from veilset._report.site import write_site
from veilset.cli import options
from veilset.cli.output import emit
from veilset.cli.source import Source, source, warn_if_useless


@click.command("page", short_help="Write a web page that asks a release in the browser.")
@source
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the page; one that holds it already gets what is new.",
)
@options.as_json
def page(source: Source, out: Path, as_json: bool) -> None:
    """Write a folder for any web server, bucket or CDN: a page that answers which elements are in SET, in the visitor's
    browser. What is asked there is sent nowhere.

    The page checks each release under the keys given by --public-key. Run the command again after each publish: pages
    that are open find the new release and load only what they lack. A secret is never written; visitors choose its
    file.
    """
    view = source.open()
    warn_if_useless(view)
    if not source.public_keys:
        click.echo(
            "veilset: warning: the page trusts the key that signed this release, and says that nothing vouches for it; give "
            "the service's key by --public-key",
            err=True,
        )
    written = write_site(view, out, source.public_keys)
    shown = {"set": source.set_name, "sequence": view.header.sequence, "folder": str(out), "written": written}
    emit(shown, as_json, f"wrote {len(written)} files to {out}, for release {source.set_name}/{view.header.sequence}")
