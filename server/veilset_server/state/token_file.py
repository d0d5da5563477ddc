"""The tokens file of a state folder: what ``veilset token`` writes and the running service reads.

It takes the old one's place whole, so a reader needs no lock; writers take turns by a lock on the folder. Its checksum
is no protection from whoever may write the folder, but a damaged file is refused, and so never taken for one with fewer
revocations.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilset.errors import InvalidInput, LimitExceeded, NotFound, StateCorrupted
from veilset_server.principals import make_principal
from veilset_server.state.durability import FOLDER_MODE, new_file, write_all
from veilset_server.state.files import read_regular
from veilset_server.state.tokens import TokenRecord

FILE_NAME = "tokens.json"
VERSION = 1
MAX_TOKENS = 10_000
_LAST_US = 253_402_300_799_000_000  # the end of the year 9999, the last that can be shown


class TokenFile:
    """The tokens file in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / FILE_NAME

    def read(self) -> list[TokenRecord]:
        """All tokens, oldest first; none if there is no file. Raises StateCorrupted, NotFound (no such folder)."""
        try:
            return parse_tokens(read_regular(self.path))
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise self._no_folder() from None
            return []

    def add(self, record: TokenRecord, now_us: int) -> None:
        """Keep one more; makes folder and file if needed. A full file lets go of tokens that ended.

        Raises LimitExceeded, StateCorrupted, StorageFull.
        """
        if not self._folder.exists():
            self._folder.mkdir(mode=FOLDER_MODE, parents=True)
        with self._held():
            records = self.read()
            if len(records) >= MAX_TOKENS:
                records = [known for known in records if known.state(now_us) == "valid"]
            if len(records) >= MAX_TOKENS:
                raise LimitExceeded(f"tokens: at most {MAX_TOKENS}; revoke some", limit=MAX_TOKENS)
            self._write([*records, record])

    def revoke(self, token_id: str, now_us: int) -> TokenRecord:
        """End a token; one that was revoked before keeps that time. Raises NotFound, StateCorrupted, StorageFull."""
        with self._held():
            records = self.read()
            for index, record in enumerate(records):
                if record.token_id == token_id:
                    if record.revoked_at_us is None:
                        records[index] = replace(record, revoked_at_us=now_us)
                        self._write(records)
                    return records[index]
        raise NotFound(f"token: no token has the id {token_id!r}", field="token_id")

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise self._no_folder() from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _no_folder(self) -> NotFound:
        return NotFound(f"state: there is no folder {self._folder}", field="state")

    def _write(self, records: list[TokenRecord]) -> None:
        text = format_tokens(records)
        owner = self._folder.stat()
        with new_file(self.path) as descriptor:
            if os.geteuid() == 0:  # the service, which is not root, has to be able to read it
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            write_all(descriptor, text)


def format_tokens(records: list[TokenRecord]) -> bytes:
    """A tokens file."""
    content = {"version": VERSION, "tokens": [_to_json(record) for record in records]}
    return json.dumps(content | {"sha256": _checksum(content)}, indent=1, sort_keys=True).encode()


def parse_tokens(text: bytes) -> list[TokenRecord]:
    """The records in a tokens file. Raises StateCorrupted, never anything else."""
    try:
        found = json.loads(text)
        checksum = found.pop("sha256")
        if found["version"] != VERSION or checksum != _checksum(found):
            raise ValueError("version or checksum")
        records = [_from_json(token) for token in found["tokens"]]
        if len({record.token_id for record in records}) != len(records):
            raise ValueError("an id twice")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInput):
        raise StateCorrupted(
            f"{FILE_NAME}: damaged, or of a later version; restore it, or remove it and make all tokens anew",
            file=FILE_NAME,
        ) from None
    return records


def _to_json(record: TokenRecord) -> dict[str, Any]:
    return {
        "id": record.token_id,
        "name": record.principal.name,
        "roles": sorted(record.principal.roles),
        "sets": list(record.principal.sets),
        "sha256": record.sha256.hex(),
        "created_at_us": record.created_at_us,
        "expires_at_us": record.expires_at_us,
        "revoked_at_us": record.revoked_at_us,
    }


def _from_json(token: dict[str, Any]) -> TokenRecord:
    sha256 = bytes.fromhex(token["sha256"])
    if len(sha256) != 32:
        raise ValueError("length of a hash")
    return TokenRecord(
        token_id=_text(token["id"]),
        principal=make_principal(token["name"], _texts(token["roles"]), _texts(token["sets"])),
        sha256=sha256,
        created_at_us=_time(token["created_at_us"]),
        expires_at_us=_optional_time(token["expires_at_us"]),
        revoked_at_us=_optional_time(token["revoked_at_us"]),
    )


def _time(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LAST_US:
        raise ValueError("time")
    return value


def _optional_time(value: object) -> int | None:
    return None if value is None else _time(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("list")
    return [_text(item) for item in value]


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
