"""Signer port on the state folder's keys: signs with every key whose time it is, and can be told to read the file again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import structlog

from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import sign_header
from veilset.errors import NotFound, StateCorrupted
from veilset_server.ports import Clock
from veilset_server.state.key_file import load_or_make_keys, read_keys
from veilset_server.state.key_rotation import SigningKey

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
            log.error("signing keys not read, the old ones stay", kind=type(error).__name__, why=str(error))  # noqa: TRY400 - by its name, not its trace
            return False
        self._keys = found
        now_us = self._clock.now_us()
        log.info("signing keys read anew", keys={key.key_id: key.state(now_us) for key in found})
        return True
