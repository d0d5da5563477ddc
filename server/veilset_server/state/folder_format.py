"""The state folder's format file: which layout the folder has, and how an older layout becomes the present one.

The file is JSON with exactly the keys of `FolderFormat`. Anything else in it is refused, never guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.state.durability import new_file, write_all
from veilset_server.state.files import read_regular
from veilset_server.state.raw_vectors import RawVectors

FORMAT_NAME = "format.json"
FORMAT_VERSION = 2
_FOLDER_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)

Migration = Callable[[Path], None]
"""Brings a folder from one version to the next. A crash may interrupt it anywhere, and then it runs again, so it has to
be idempotent. The version in the format file rises only behind it."""


def _add_vector_sums(folder: Path) -> None:
    """Version 2: checksums beside the raw vectors. What the vectors hold now is taken for sound; nothing tells otherwise."""
    if (folder / "vectors").is_dir():
        RawVectors(folder / "vectors").add_sums()


MIGRATIONS: Mapping[int, Migration] = {1: _add_vector_sums}
"""By the version they start from."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """version: of the layout. folder_id: random, also in the ledger, so that files of two folders cannot be mixed.

    ready: false until the folder was completed for the first time; before that nothing in it was ever acknowledged.
    """

    version: int
    folder_id: str
    ready: bool


def read_format(folder: Path) -> FolderFormat | None:
    """The folder's format, or None if there is no format file. Raises StateCorrupted."""
    path = folder / FORMAT_NAME
    try:
        fields = json.loads(read_regular(path).decode("ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME) from None
    if not isinstance(fields, dict) or fields.keys() != {"version", "folder_id", "ready"}:
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME)
    version, folder_id, ready = fields["version"], fields["folder_id"], fields["ready"]
    if type(version) is not int or type(ready) is not bool or not _FOLDER_ID.fullmatch(str(folder_id)):
        raise StateCorrupted(f"{path}: not a format file of veilset", file=FORMAT_NAME)
    return FolderFormat(version, folder_id, ready)


def write_format(folder: Path, form: FolderFormat) -> None:
    """Put ``form`` in place, durably, in one step. Raises StorageFull."""
    with new_file(folder / FORMAT_NAME) as descriptor:
        write_all(descriptor, json.dumps(asdict(form)).encode("ascii") + b"\n")


def migrate_folder(folder: Path, form: FolderFormat, migrations: Mapping[int, Migration], version: int) -> FolderFormat:
    """Bring the folder forward to ``version``, step by step. Raises StateCorrupted if it is later, or no way leads on."""
    if form.version > version:
        raise StateCorrupted(
            f"{folder / FORMAT_NAME}: version {form.version} is later than {version}, the latest this server knows",
            file=FORMAT_NAME,
        )
    while form.version < version:
        if form.version not in migrations:
            raise StateCorrupted(
                f"{folder / FORMAT_NAME}: no migration leads on from version {form.version}", file=FORMAT_NAME
            )
        migrations[form.version](folder)
        form = FolderFormat(form.version + 1, form.folder_id, form.ready)
        write_format(folder, form)
    return form
