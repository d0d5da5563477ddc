"""The state folder's format file: which layout the folder has.

The file is JSON with exactly the keys of `FolderFormat`. Anything else in it is refused, never guessed at.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from veilset.errors import StateCorrupted
from veilset_server.state.durability import new_file, write_all
from veilset_server.state.files import read_regular

FORMAT_NAME = "format.json"
FORMAT_VERSION = 1
_FOLDER_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


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
    if version != FORMAT_VERSION:
        raise StateCorrupted(f"{path}: version {version}, this server knows {FORMAT_VERSION}", file=FORMAT_NAME)
    return FolderFormat(version, folder_id, ready)


def write_format(folder: Path, form: FolderFormat) -> None:
    """Put ``form`` in place, durably, in one step. Raises StorageFull."""
    with new_file(folder / FORMAT_NAME) as descriptor:
        write_all(descriptor, json.dumps(asdict(form)).encode("ascii") + b"\n")
