"""Bearer tokens, ``vst_<id>_<secret>``, and the file in the state folder that keeps their hashes.

Only the SHA-256 of a token is kept. A secret of 256 random bits needs neither salt nor a slow hash. ``veilset token`` writes
the file and the running service reads it. It is replaced as a whole, so a reader needs no lock; writers lock the folder. Its
checksum does not protect against people who may write to the folder: it refuses a damaged file, which could lack revocations.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from veilset.errors import InvalidInput, LimitExceeded, NotFound, StateCorrupted
from veilset_server.principals import EVERYBODY, Principal, make_principal
from veilset_server.state.durability import (
    FOLDER_MODE,
    json_with_checksum,
    locked_folder,
    parse_json_with_checksum,
    read_regular,
    write_file,
)

ID_BYTES = 6
SECRET_BYTES = 32
TOKEN = re.compile(r"vst_([0-9a-f]{12})_[0-9a-f]{64}")

FILE_NAME = "tokens.json"
VERSION = 1
MAX_TOKENS = 10_000
_LAST_US = 253_402_300_799_000_000  # the end of the year 9999, the last that can be shown

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What is kept of a token. sha256: of its text, 32 bytes. Times are microseconds since the Unix epoch; None is never."""

    token_id: str
    principal: Principal
    sha256: bytes
    created_at_us: int
    expires_at_us: int | None
    revoked_at_us: int | None = None

    def state(self, now_us: int) -> str:
        """One word for people and scripts: valid, expired or revoked."""
        if self.revoked_at_us is not None:
            return "revoked"
        return "expired" if self.expires_at_us is not None and self.expires_at_us <= now_us else "valid"


_UNKNOWN = TokenRecord("", EVERYBODY, bytes(32), 0, 0)
"""What a token of no known id is compared with: 2^-256 is the chance of the hash that fits, and it has expired."""


def make_token_id() -> str:
    """A random id of 12 hex digits."""
    return secrets.token_hex(ID_BYTES)


def make_token(token_id: str) -> str:
    """A fresh token of that id: the text that its holder keeps."""
    return f"vst_{token_id}_{secrets.token_hex(SECRET_BYTES)}"


def token_hash(token: str) -> bytes:
    """What is kept of it, 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class TokenBook:
    """The tokens of one state of the file."""

    def __init__(self, records: Iterable[TokenRecord]) -> None:
        self._records = {record.token_id: record for record in records}

    def find(self, token: str, now_us: int) -> TokenRecord | None:
        """The valid token's record, or None.

        Whatever the text, it is hashed and compared at full length: so the time does not depend on how much of a secret is right.
        """
        match = TOKEN.fullmatch(token)
        record = self._records.get(match.group(1) if match else "", _UNKNOWN)
        right = hmac.compare_digest(token_hash(token), record.sha256)
        return record if right and record.state(now_us) == "valid" else None

    def why(self, token: str, now_us: int) -> str:
        """Why `find` found nothing, in a word for the service's own log: malformed, unknown, wrong, expired or revoked."""
        match = TOKEN.fullmatch(token)
        if match is None:
            return "malformed"
        record = self._records.get(match.group(1))
        if record is None:
            return "unknown"
        return record.state(now_us) if hmac.compare_digest(token_hash(token), record.sha256) else "wrong"


class TokenFile:
    """The file of tokens in the state folder ``folder``; every read sees it as it is now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / FILE_NAME

    def read(self) -> list[TokenRecord]:
        """All tokens, oldest first; none if there is no file. Raises StateCorrupted, NotFound (no such folder)."""
        try:
            return parse_tokens(read_regular(self.path))
        except FileNotFoundError:
            if not self._folder.is_dir():
                raise NotFound(f"state: there is no folder {self._folder}", field="state") from None
            return []

    def add(self, record: TokenRecord, now_us: int) -> None:
        """Keep one more; makes folder and file if needed. A full file drops tokens that are no longer valid.

        Raises LimitExceeded, StateCorrupted, StorageFull.
        """
        if not self._folder.exists():
            self._folder.mkdir(mode=FOLDER_MODE, parents=True)
        with locked_folder(self._folder):
            records = self.read()
            if len(records) >= MAX_TOKENS:
                records = [known for known in records if known.state(now_us) == "valid"]
            if len(records) >= MAX_TOKENS:
                raise LimitExceeded(f"tokens: at most {MAX_TOKENS}; revoke some", limit=MAX_TOKENS)
            write_file(self.path, format_tokens([*records, record]), for_service=True)

    def revoke(self, token_id: str, now_us: int) -> TokenRecord:
        """End a token; one that was revoked before keeps that time. Raises NotFound, StateCorrupted, StorageFull."""
        with locked_folder(self._folder):
            records = self.read()
            for index, record in enumerate(records):
                if record.token_id == token_id:
                    if record.revoked_at_us is None:
                        records[index] = replace(record, revoked_at_us=now_us)
                        write_file(self.path, format_tokens(records), for_service=True)
                    return records[index]
        raise NotFound(f"token: no token has the id {token_id!r}", field="token_id")


def format_tokens(records: list[TokenRecord]) -> bytes:
    """The bytes of a tokens file that holds ``records``."""
    content = {"version": VERSION, "tokens": [_to_json(record) for record in records]}
    return json_with_checksum(content)


def parse_tokens(text: bytes) -> list[TokenRecord]:
    """The records in a tokens file. Raises StateCorrupted, never anything else."""
    try:
        found = parse_json_with_checksum(text)
        if found["version"] != VERSION:
            raise ValueError("version")
        records = [_from_json(token) for token in found["tokens"]]
        if len({record.token_id for record in records}) != len(records):
            raise ValueError("an id twice")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInput):
        raise StateCorrupted(
            f"{FILE_NAME}: damaged, or of a later version; restore it, or remove it and create all tokens again",
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


class WatchedFile(Generic[Content]):
    """The parsed content of a file. Thread-safe.

    parse: bytes → content; raises a VeilsetError for a damaged file. Costs one stat a question (a microsecond) unless the
    file changed, so that a revocation is in force with the next question.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Content]) -> None:
        self._path = path
        self._parse = parse
        self._seen: tuple[int, int, int, int] | None = None
        self._content: Content | None = None
        self._failure: Exception | None = None
        self._was_there = False
        self._lock = threading.Lock()

    @property
    def ever_there(self) -> bool:
        """Whether the file is there, or was at some time since this object was made."""
        self._was_there = self._was_there or self._path.exists()
        return self._was_there

    def read(self) -> Content:
        """The content now. Raises what ``parse`` raised, or OSError (missing, not readable), until the file is another one."""
        with self._lock:
            status = self._path.stat()
            self._was_there = True
            seen = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._content = self._failure = None
                try:
                    self._content = self._parse(read_regular(self._path))
                except Exception as failure:  # noqa: BLE001 - kept and raised at every question, whatever it is
                    self._failure = failure
                self._seen = seen
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # raised anew, it would grow a longer trace each time
            assert self._content is not None
            return self._content
