"""The signing keys of a state folder: one PEM file, newest key first, readable by its owner only, replaced as a whole.

Any 32 bytes are some private key, so a damaged key would pass for another one. Therefore the first line of the file holds the
checksum of the rest, as explanatory text, which PEM allows outside its blocks. Another such line stands before each key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import MAX_SIGNATURES, key_id, sign_header
from veilset.errors import FailedPrecondition, NotFound, StateCorrupted, must_be
from veilset_server.ports import Clock
from veilset_server.state.durability import locked_folder, read_regular, write_file

MAX_OVERLAP_SECONDS = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key. public: raw, 32 bytes. private: None once it was destroyed. since_us: when it was made, 0 if that was not written
    down; retires_us: when it stops signing, None for never. Times are microseconds since the Unix epoch."""

    public: bytes
    private: Ed25519PrivateKey | None
    since_us: int
    retires_us: int | None = None

    @property
    def key_id(self) -> str:
        """Its name in manifests, 16 hex digits."""
        return key_id(self.public)

    def signs(self, now_us: int) -> bool:
        """Whether releases of this moment are signed with it."""
        return self.private is not None and (self.retires_us is None or now_us < self.retires_us)

    def state(self, now_us: int) -> str:
        """signing, retiring (signs for a while yet) or retired."""
        if not self.signs(now_us):
            return "retired"
        return "signing" if self.retires_us is None else "retiring"


def new_key(now_us: int) -> SigningKey:
    """A fresh key that signs from now on."""
    private = Ed25519PrivateKey.generate()
    return SigningKey(private.public_key().public_bytes_raw(), private, now_us)


def rotate(keys: Sequence[SigningKey], added: SigningKey, now_us: int, overlap_seconds: float) -> list[SigningKey]:
    """``keys``, newest first, with ``added`` in front; the others stop signing after the overlap, or earlier if they were to.

    Private keys whose time is over are destroyed. Raises InvalidInput, FailedPrecondition (too many sign at once).
    """
    if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
        raise must_be("overlap", f"0 to {MAX_OVERLAP_SECONDS // 86_400} days", overlap_seconds)
    end_us = now_us + int(overlap_seconds * 1e6)
    older = [_ended_by(key, end_us) for key in keys]
    found = destroy_retired([added, *older], now_us)
    if sum(key.signs(now_us) for key in found) > MAX_SIGNATURES:
        raise FailedPrecondition(
            f"keys: {MAX_SIGNATURES} sign already, the most a release may carry; retire one before the next rotation"
        )
    return found


def retire(keys: Sequence[SigningKey], named: str, now_us: int) -> list[SigningKey]:
    """``keys`` with the one of that id retired at once and its private half destroyed.

    Raises NotFound; FailedPrecondition for the newest, since nothing would replace it: rotate with overlap 0 instead.
    """
    if named not in {key.key_id for key in keys}:
        raise NotFound(f"keys: no key has the id {named!r}", field="key_id")
    if keys[0].key_id == named:
        raise FailedPrecondition(
            "keys: the newest key cannot be retired; rotate with --overlap 0 puts another in its place"
        )
    ended = [_ended_by(key, now_us) if key.key_id == named else key for key in keys]
    return destroy_retired(ended, now_us)


def _ended_by(key: SigningKey, end_us: int) -> SigningKey:
    """The key, no longer signing from then on, or from earlier if it was to."""
    return replace(key, retires_us=end_us if key.retires_us is None else min(key.retires_us, end_us))


def destroy_retired(keys: Sequence[SigningKey], now_us: int) -> list[SigningKey]:
    """Without the private halves of keys that no longer sign: what is not there cannot be stolen."""
    return [key if key.signs(now_us) else replace(key, private=None) for key in keys]


FILE_NAME = "signing.pem"

_ENTRY = re.compile(
    rb"(?:key (?P<id>[0-9a-f]{16}) since (?P<since>\d{1,18}) retires (?P<retires>\d{1,18}|never)\n)?"
    rb"(?P<pem>-----BEGIN (?P<kind>PRIVATE|PUBLIC) KEY-----\n[A-Za-z0-9+/=\n]+-----END (?P=kind) KEY-----\n)"
)


def load_or_make_keys(folder: Path, now_us: int, *, may_make: bool) -> list[SigningKey]:
    """The keys in ``folder``, newest first; one is made if there is none and ``may_make``.

    may_make: whether the state is new; readers pin keys, so a state in use that lost its own gets no other silently.
    Raises StateCorrupted if the file is missing then, or does not hold what was written; StorageFull.
    """
    path = folder / FILE_NAME
    if not path.exists():
        if not may_make:
            raise StateCorrupted(f"{path}: missing, though the state folder is in use; restore it", file=FILE_NAME)
        write_file(path, _file([new_key(now_us)]), for_service=True)
    return read_keys(folder)


def read_keys(folder: Path) -> list[SigningKey]:
    """The keys in ``folder``, newest first. Raises NotFound if there is no file, StateCorrupted if it is damaged."""
    path = folder / FILE_NAME
    try:
        first_line, _, rest = read_regular(path).partition(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: this file is missing; is this the state folder of a service?", field="state") from None
    if first_line != _first_line(rest):
        raise StateCorrupted(f"{path}: damaged (the checksum in its first line is of another content)", file=FILE_NAME)
    try:
        return _parse(rest)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StateCorrupted(
            f"{path}: not Ed25519 keys in PEM form, the newest a private one", file=FILE_NAME
        ) from None


def change_keys(folder: Path, change: Callable[[list[SigningKey]], list[SigningKey]]) -> list[SigningKey]:
    """Put what ``change`` makes of the keys in their place, durably, in one step; returns it. One change at a time.

    Raises NotFound, StateCorrupted, StorageFull, and what ``change`` raises; the file is as it was then.
    """
    with locked_folder(folder):
        changed = change(read_keys(folder))
        write_file(folder / FILE_NAME, _file(changed), for_service=True)
        return changed


def _parse(rest: bytes) -> list[SigningKey]:
    keys, end = [], 0
    for entry in _ENTRY.finditer(rest):
        if entry.start() != end:
            raise ValueError("text between keys")
        end = entry.end()
        private = None
        if entry["kind"] == b"PRIVATE":
            found = load_pem_private_key(entry["pem"], password=None)
            if not isinstance(found, Ed25519PrivateKey):
                raise ValueError("kind of key")
            private, public = found, found.public_key()
        else:
            other = load_pem_public_key(entry["pem"])
            if not isinstance(other, Ed25519PublicKey):
                raise ValueError("kind of key")
            public = other
        retires = entry["retires"] or b"never"
        key = SigningKey(
            public.public_bytes_raw(), private, int(entry["since"] or 0), None if retires == b"never" else int(retires)
        )
        if entry["id"] not in (None, key.key_id.encode()):
            raise ValueError("id of key")
        keys.append(key)
    if end != len(rest) or not keys or keys[0].private is None or keys[0].retires_us is not None:
        raise ValueError("no key that signs")
    return keys


def _first_line(rest: bytes) -> bytes:
    return f"veilset signing key; the rest of this file has SHA-256 {hashlib.sha256(rest).hexdigest()}".encode("ascii")


def _file(keys: Sequence[SigningKey]) -> bytes:
    rest = b"".join(map(_entry, keys))
    return _first_line(rest) + b"\n" + rest


def _entry(key: SigningKey) -> bytes:
    retires = "never" if key.retires_us is None else str(key.retires_us)
    line = f"key {key.key_id} since {key.since_us} retires {retires}\n".encode("ascii")
    return line + (_private_pem(key.private) if key.private is not None else public_pem(key.public))


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(public: bytes) -> bytes:
    """A raw public key in PEM form."""
    return Ed25519PublicKey.from_public_bytes(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


log = structlog.get_logger(__name__)


class SigningKeys:
    """The keys of one state folder. Thread-safe."""

    def __init__(self, folder: Path, clock: Clock, *, may_make: bool) -> None:
        """Reads the keys; makes the first if ``may_make``. Raises StateCorrupted, StorageFull."""
        self._folder = folder
        self._clock = clock
        self._keys = load_or_make_keys(folder, clock.now_us(), may_make=may_make)

    @property
    def newest(self) -> SigningKey:
        """The key for readers to pin."""
        return self._keys[0]

    def sign(self, header: ReleaseHeader) -> bytes:
        """A manifest with the signatures of all keys that sign now, the newest first."""
        now_us = self._clock.now_us()
        return sign_header(header, [key.private for key in self._keys if key.private and key.signs(now_us)])

    def public_keys(self) -> Collection[bytes]:
        """Raw public keys of all that ever signed, retired ones too."""
        return {key.public for key in self._keys}

    def reload(self) -> bool:
        """Take up what ``veilset keys`` wrote; whether that could be done. A damaged file is logged, and the keys stay."""
        try:
            found = read_keys(self._folder)
        except (NotFound, StateCorrupted, OSError) as error:
            log.error("signing keys could not be read; the old ones stay", kind=type(error).__name__, why=str(error))  # noqa: TRY400 - by its name, not its trace
            return False
        self._keys = found
        now_us = self._clock.now_us()
        log.info("signing keys read again", keys={key.key_id: key.state(now_us) for key in found})
        return True
