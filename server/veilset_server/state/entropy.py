"""The operating system's randomness, stretched by AES-256 in counter mode.

os.urandom alone gives a fifth of a gigabyte a second; a key and a counter block drawn from it anew for every stream give
several, and telling the stream from uniform bits means breaking AES-256. Nothing here can be seeded.
"""

from __future__ import annotations

import os
import time

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_ZEROS = bytes(1 << 20)


class OsEntropy:
    """Random numbers from the operating system; the entropy of every release."""

    def seed32(self) -> int:
        """A uniform 32-bit integer."""
        return int.from_bytes(os.urandom(4), "little")

    def keystream(self) -> AesKeyStream:
        """A new stream with a key of its own."""
        return AesKeyStream()


class AesKeyStream:
    """A stream of uniform bytes, keyed when made. Not shared between threads."""

    def __init__(self) -> None:
        self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def __call__(self, length: int, /) -> bytes:
        """The next ``length`` bytes."""
        zeros = memoryview(_ZEROS)[:length] if length <= len(_ZEROS) else bytes(length)
        return self._cipher.update(zeros)


class SystemClock:
    """The wall clock of this machine."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000
