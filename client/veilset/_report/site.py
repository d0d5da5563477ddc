"""A release as a static web page that answers in the browser's memory; any web server, bucket or CDN can hold the folder.

FOLDER/index.html, page.css, page.js     the page; index.html holds the set's name and the keys to trust
FOLDER/reader.js, LICENSES.txt           client/js in one file, and the licenses of what is in it
FOLDER/releases/<sequence>-<hash>.veilset    the releases of the generation, each a file that never changes
FOLDER/releases.json                     names them; written last, so that a page which reads it finds all of them
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from veilset._reader.fetching import CheckedRelease
from veilset._reader.sources import write_release
from veilset._reader.view import View
from veilset._report.facts import describe_part
from veilset.core.privacy.statement import accuracy_text
from veilset.core.release.signing import valid_signers
from veilset.errors import InvalidInput

INDEX = "releases.json"
_OWN_NAME = re.compile(r"[0-9]+-[0-9a-f]{16}\.veilset")


def write_site(view: View, folder: Path, public_keys: Collection[str] = ()) -> list[str]:
    """Write the page of a view into a folder, or bring one of the same set up to date; returns the files that were written.

    public_keys: those that the page trusts, hexadecimal; with none it takes the keys that signed, and says that nothing vouches
    for them. Parts that are there are left alone; those that neither the new index names nor the one before are removed.
    Raises InvalidInput for a folder that holds another page, and OSError.
    """
    name, front = view.header.set_name, folder / "index.html"
    mark = f'data-set="{escape(name)}"'
    if front.exists() and mark not in front.read_text("utf-8", "replace"):
        raise InvalidInput("out", f"out holds an index.html that is not the page of {name}; give another folder")
    parts = {_file_name(part): part for part in view.parts}
    promise = view.statement
    index = {
        "set": name,
        "statement": asdict(promise),
        "words": str(promise).splitlines(),
        "guesses": [
            (
                "this generation" if promise.increments else "this release",
                accuracy_text(promise.epsilon, promise.delta),
            ),
            ("all so far", accuracy_text(promise.total_epsilon, promise.total_delta)),
            ("if all is spent", accuracy_text(promise.limit_epsilon, promise.limit_delta)),
        ],
        "parts": [{"file": file, **describe_part(part.header)} for file, part in parts.items()],
    }
    signers = [key.hex() for part in view.parts for key in valid_signers(part.manifest)]
    report = files("veilset._report")
    source = report.joinpath("site")
    page = Template(source.joinpath("index.html").read_text("utf-8")).substitute(
        set=escape(name), keys=" ".join(public_keys or dict.fromkeys(signers)), trusted="yes" if public_keys else "no"
    )
    named = {*parts, *_named_before(folder)}
    (folder / "releases").mkdir(parents=True, exist_ok=True)
    written = [file for file, part in parts.items() if _write(folder / file, _release_file(part))]
    contents = {"page.css": report.joinpath("page.css").read_bytes(), "index.html": page.encode()}
    contents |= {file: source.joinpath(file).read_bytes() for file in ("reader.js", "page.js", "LICENSES.txt")}
    contents[INDEX] = json.dumps(index, indent=1).encode()
    written += [file for file, content in contents.items() if _write(folder / file, content)]
    for path in (folder / "releases").iterdir():
        if _OWN_NAME.fullmatch(path.name) and f"releases/{path.name}" not in named:
            path.unlink()
    return written


def _file_name(part: CheckedRelease) -> str:
    """Other bytes have another name, so that what a cache holds is never old."""
    return f"releases/{part.header.sequence}-{hashlib.sha256(part.manifest).hexdigest()[:16]}.veilset"


def _release_file(part: CheckedRelease) -> bytes:
    file = io.BytesIO()
    write_release(file, part.manifest, [part.vector.tobytes()])
    return file.getvalue()


def _named_before(folder: Path) -> list[str]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return [part["file"] for part in json.loads((folder / INDEX).read_bytes())["parts"]]
    return []


def _write(path: Path, content: bytes) -> bool:
    """Whether it was not there already. A web server never sees half of a file."""
    if path.is_file() and path.read_bytes() == content:
        return False
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)
    return True
