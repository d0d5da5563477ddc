"""Reading a release: fetch it, check it whole, and make it ready to answer from memory."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilset.core import bitset
from veilset.core.decoding import Rule
from veilset.core.params import check_name
from veilset.core.release import ReleaseHeader, check_chunk
from veilset.core.signing import open_manifest
from veilset.errors import InvalidInput, NotFound, ReleaseRejected
from veilset.sources import ReleaseSource, open_source
from veilset.view import View, make_view

__all__ = ["View", "open_view"]


def open_view(
    target: str | bytes | Path,
    set_name: str | None = None,
    *,
    sequence: int = 0,
    public_keys: Collection[bytes | str] = (),
    min_sequence: int = 0,
    rule: Rule | str = Rule.BEST,
    max_false_positive_rate: float | None = None,
    min_true_positive_rate: float | None = None,
    key: bytes | None = None,
) -> View:
    """Fetch a release, check it whole, and make it ready to answer.

    target: a Redis URL (then set_name is needed), a path, or the bytes of a release file. sequence: 0 for the newest.
    public_keys: raw or hexadecimal Ed25519 keys that the reader trusts; with none the signature shows only that the
    release is whole. min_sequence: refuse older releases, such as one seen before. rule, max_false_positive_rate,
    min_true_positive_rate: how to choose the threshold, see `veilset.core.decoding.make_decoder`. key: the secret of a
    keyed scheme. Raises InvalidInput, NotFound, Unavailable, ReleaseRejected, PoorUtility.
    """
    if set_name is not None:
        check_name("set_name", set_name)
    pinned = [_public_key(public_key) for public_key in public_keys]
    with closing(open_source(target, set_name)) as source:
        header, manifest = _open_header(source, sequence, pinned)
        if set_name not in (None, header.set_name):
            raise ReleaseRejected(f"release: of set {header.set_name}, not {set_name}", check="set_name")
        if header.sequence < min_sequence:
            raise ReleaseRejected(
                f"release {header.set_name}/{header.sequence}: older than {min_sequence}, which was seen",
                check="sequence",
            )
        vector = _fetch(source, header)
    return make_view(
        header,
        manifest,
        vector,
        key,
        rule=rule,
        max_false_positive_rate=max_false_positive_rate,
        min_true_positive_rate=min_true_positive_rate,
    )


def _public_key(value: bytes | str) -> bytes:
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise InvalidInput("public_keys", "Ed25519 public keys: 32 raw bytes or 64 hexadecimal digits")
    return raw


def _open_header(source: ReleaseSource, sequence: int, pinned: list[bytes]) -> tuple[ReleaseHeader, bytes]:
    asked = sequence or source.latest()
    manifest = source.manifest(asked)
    header = open_manifest(manifest, pinned)
    if asked not in (0, header.sequence):
        raise ReleaseRejected(f"release: sequence {header.sequence}, not {asked} as its place says", check="sequence")
    return header, manifest


def _fetch(source: ReleaseSource, header: ReleaseHeader) -> NDArray[np.uint8]:
    """All chunks, each checked before it is used, straight into one array."""
    try:
        vector = np.empty(header.vector_bytes, dtype=np.uint8)
    except MemoryError:
        raise ReleaseRejected(
            f"release {header.set_name}/{header.sequence}: {header.vector_bytes} bytes do not fit into memory",
            check="vector_bytes",
        ) from None
    start = 0
    for index in range(len(header.chunk_sha256)):
        chunk = source.chunk(header.sequence, index)
        if not chunk:
            raise NotFound(
                f"release {header.set_name}/{header.sequence}: chunk {index} is gone; open the set again", check="chunk"
            )
        check_chunk(header, index, chunk)
        vector[start : start + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        start += len(chunk)
    if int(vector[-1]) & ~bitset.last_byte_mask(header.filter.bits):
        raise ReleaseRejected(f"release {header.set_name}/{header.sequence}: padding bits are set", check="padding")
    vector.setflags(write=False)
    return vector
