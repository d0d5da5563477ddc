"""Looking for what must not come out: elements, their digests, the size of a set and its fill, in whatever form."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from grpc_status import rpc_status

from harness.patience import SECONDS
from veilset.core.elements.hashing import digests
from veilset.core.params import DIGEST_BYTES, HashScheme


@dataclass(slots=True)
class Seen:
    """Everything that came out: words (texts, metadata, messages as text), blobs (bytes), numbers (fields of messages)."""

    words: list[bytes] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    numbers: set[float] = field(default_factory=set)

    def text(self, *texts: str | bytes) -> None:
        """Something in words, or a metadata value."""
        self.words += [text.encode() if isinstance(text, str) else text for text in texts]

    def message(self, message: Message) -> None:
        """An answer, or a part of one."""
        self.blobs.append(message.SerializeToString())
        self.text(str(message))
        self.numbers |= set(_numbers(message))

    def call(self, call: Any) -> None:
        """What surrounds an answer: metadata before and behind it, and the status with its details."""
        for key, value in chain(call.initial_metadata() or (), call.trailing_metadata() or ()):
            self.text(key, value)
        self.text(call.details() or "")
        status = rpc_status.from_call(call)
        if status is not None:
            self.message(status)

    def unary(self, method: Any, request: Message) -> str:
        """Make a unary call and take down all of it, however it ends; returns the name of its status."""
        try:
            answer, call = method.with_call(request, timeout=SECONDS)
        except grpc.RpcError as error:
            self.call(error)
            return str(error.code().name)
        self.message(answer)
        self.call(call)
        return "OK"

    def stream(self, method: Any, *requests: Any) -> str:
        """Make a streaming call and take down all of it, however it ends; returns the name of its status."""
        call = method(iter(requests), timeout=SECONDS)
        try:
            for answer in call:
                self.message(answer)
        except grpc.RpcError:
            pass
        self.call(call)
        return str(call.code().name)

    def find(self, *needles: bytes) -> list[bytes]:
        """The needles that occur as they are, backwards, in hexadecimal, in base64, escaped, or in any case."""
        haystack = b"\0".join(unveiled([*self.words, *self.blobs]))
        lowered = haystack.lower()
        return [
            n
            for n in needles
            if any(f in haystack for f in (n, n[::-1])) or any(f in lowered for f in (n.lower(), n.hex().encode()))
        ]

    def find_digests(self, elements: Sequence[bytes], seed: int) -> list[bytes]:
        """Elements whose digest occurs: as bytes (in base64 or escaped too), in hexadecimal, or as a number in either
        byte order."""
        hashed = digests(elements, HashScheme.MMH3, seed)
        haystack = unveiled([*self.words, *self.blobs])
        windows = _windows(haystack, DIGEST_BYTES)
        texts = _windows([text.lower() for text in haystack], 2 * DIGEST_BYTES)
        numbers = self.numbers | {int(run) for text in self.words for run in re.findall(rb"\d{10,20}", text)}

        def occurs(digest: int) -> bool:
            shapes = (digest.to_bytes(DIGEST_BYTES, "little"), digest.to_bytes(DIGEST_BYTES, "big"))
            return any(
                shape in windows or shape.hex().encode() in texts or int.from_bytes(shape, "little") in numbers
                for shape in shapes
            )

        return [element for element, digest in zip(elements, hashed.tolist(), strict=True) if occurs(digest)]

    def find_number(self, number: float) -> list[str]:
        """Where a number stands: by itself in words, or as a field of a message (within 1e-9 of it)."""
        form = str(number) if isinstance(number, int) else f"{number:.5g}"[:-1]  # the last digit may be rounded
        pattern = re.compile(
            rb"(?<![0-9A-Za-z.\\])"
            + re.escape(form.encode())
            + (rb"(?![0-9A-Za-z])" if isinstance(number, int) else b"")
        )
        told = [repr(text[:200]) for text in self.words if pattern.search(text)]
        return told + [repr(n) for n in self.numbers if abs(n - number) <= 1e-9 * abs(number)]


def _numbers(message: Message) -> Iterator[float]:
    for _, value in message.ListFields():
        for item in value if not isinstance(value, str | bytes | int | float | Message) else [value]:
            if isinstance(item, Message):
                yield from _numbers(item)
            elif isinstance(item, int | float):
                yield item


_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{11,}")
_ESCAPE = re.compile(rb"\\+(?:x|u00)([0-9a-fA-F]{2})|\\+([0-3][0-7]{2})")


def unveiled(texts: Sequence[bytes]) -> list[bytes]:
    """The texts, what their runs of base64 stand for, at every alignment, and what their escapes stand for."""
    found = list(texts)
    for text in texts:
        for run in _BASE64.findall(text):
            found += [_decoded(run[start:]) for start in range(4)]
        if b"\\" in text:
            found.append(_ESCAPE.sub(_unescape, text))
    return found


def _decoded(run: bytes) -> bytes:
    whole = run[: len(run) - (len(run) % 4 == 1)]
    return base64.b64decode(whole + b"=" * (-len(whole) % 4), altchars=b"-_" if set(whole) & set(b"-_") else None)


def _unescape(escape: re.Match[bytes]) -> bytes:
    hexadecimal, octal = escape.groups()
    return bytes([int(hexadecimal, 16) if hexadecimal else int(octal, 8)])


def _windows(texts: Collection[bytes], length: int) -> set[bytes]:
    return {text[start : start + length] for text in texts for start in range(len(text) - length + 1)}


def shared_windows(secret: bytes, public: Collection[bytes], length: int = 64, least_ones: int = 8) -> list[int]:
    """Offsets in ``secret`` of windows of ``length`` bytes, ``least_ones`` ones in them, that stand anywhere in ``public``."""
    ones = np.bitwise_count(np.frombuffer(secret, dtype=np.uint8)).astype(np.int64)
    sums = np.convolve(ones, np.ones(length, dtype=np.int64), "valid")
    known = _windows(public, length)
    return [int(start) for start in np.flatnonzero(sums >= least_ones) if secret[start : start + length] in known]
