"""Bearer tokens: ``vst_<id>_<secret>``. The id says which one; 256 random bits of secret say that it is the one.

Only the SHA-256 of a token is kept. A secret that long needs neither salt nor a slow hash: nobody tries 2^256.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from veilset_server.principals import EVERYBODY, Principal

ID_BYTES = 6
SECRET_BYTES = 32
TOKEN = re.compile(r"vst_([0-9a-f]{12})_[0-9a-f]{64}")


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
        """valid, expired or revoked."""
        if self.revoked_at_us is not None:
            return "revoked"
        return "expired" if self.expires_at_us is not None and self.expires_at_us <= now_us else "valid"


_NOBODY = TokenRecord("", EVERYBODY, bytes(32), 0, 0)
"""What a token of no known id is compared with: 2^-256 is the chance of the hash that fits, and it has expired."""


def make_token_id() -> str:
    """A fresh id."""
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

        Whatever the text, it is hashed and compared at full length: the time tells nothing of how much of a secret is right.
        """
        match = TOKEN.fullmatch(token)
        record = self._records.get(match.group(1) if match else "", _NOBODY)
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
