"""Every check of a reader, against a real Redis that shows it something else: by `open`, with a cache, by `remote`, by `follow`.

S6: every byte of a 4 KiB release changed. S7: an old release shown again. S8: headers made to hurt.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import veilset
from harness.forged_releases import forge, hostile_releases
from harness.redis_releases import now_us, point_at, publish, put, put_beside
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader import redis_keys as keys
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.errors import NotFound, ReleaseRejected, StaleRelease, VeilsetError

SHAPE = FilterParameters(30_003, 3, seed=11)  # 3,751 bytes and a header: 4 KiB together
MEMBERS = [f"user{number}" for number in range(500)]
PINNED = [PUBLIC_KEY]
OTHER_KEY = Ed25519PrivateKey.generate()


def release(name: str, sequence: int = 2, **more: object) -> bytes:
    """A release file of ``MEMBERS``."""
    return release_bytes(MEMBERS, SHAPE, 4.0, name=name, sequence=sequence, **more)  # type: ignore[arg-type]


Tamper = Callable[[str, str], None]
"""(URL, set) → does something to the set's release 2 in that Redis."""


def _edit(key: Callable[[str], str], change: Callable[[bytes], bytes]) -> Tamper:
    def tamper(url: str, name: str) -> None:
        with redis.Redis.from_url(url) as client:
            value = client.get(key(name))
            assert value is not None
            client.set(key(name), change(value))

    return tamper


def _show(make: Callable[[str], bytes]) -> Tamper:
    return lambda url, name: put_beside(url, name, 2, make(name))


def _untouched(url: str, name: str) -> None:
    """Its pointer will do."""


def _bits(name: str) -> str:
    return keys.chunk(name, 2, 0)


def _manifest(name: str) -> str:
    return keys.manifest(name, 2)


# What is done → what is refused, by which check, and whether `remote`, which sees no hashes, refuses it too.
TAMPERED: dict[str, tuple[Tamper, type[VeilsetError], str | None, bool]] = {
    "another signer": (_show(lambda name: release(name, signer=OTHER_KEY)), ReleaseRejected, "signature", True),
    "another set": (_show(lambda name: release("another")), ReleaseRejected, "set_name", True),
    "another place": (_show(lambda name: release(name, 3)), ReleaseRejected, "sequence", True),
    "a changed header": (_edit(_manifest, lambda v: v[:30] + b"\x01" + v[31:]), ReleaseRejected, "signature", True),
    "no manifest": (_edit(_manifest, lambda v: b"no manifest"), ReleaseRejected, "format", True),
    "an empty manifest": (_edit(_manifest, lambda v: b""), NotFound, None, True),
    "half a manifest": (_edit(_manifest, lambda v: v[: len(v) // 2]), ReleaseRejected, "format", True),
    "a manifest without end": (_edit(_manifest, lambda v: v + bytes(7 << 20)), ReleaseRejected, "format", True),
    "a cut chunk": (_edit(_bits, lambda v: v[:-1]), ReleaseRejected, "chunk_length", True),
    "a longer chunk": (_edit(_bits, lambda v: v + b"\0"), ReleaseRejected, "chunk_length", True),
    "no chunk": (_edit(_bits, lambda v: b""), NotFound, None, True),
    "a changed bit": (
        _edit(_bits, lambda v: v[:9] + bytes([v[9] ^ 1]) + v[10:]),
        ReleaseRejected,
        "chunk_sha256",
        False,
    ),
    "another release's bits": (
        _edit(_bits, lambda v: release("x")[-SHAPE.vector_bytes :]),
        ReleaseRejected,
        "chunk_sha256",
        False,
    ),
    "a pointer to nothing": (_untouched, NotFound, None, True),
    "a pointer that is none": (_untouched, NotFound, None, True),
    "a pointer of zero": (_untouched, NotFound, None, True),
}
POINTERS = {"a pointer to nothing": b"7", "a pointer that is none": b"two", "a pointer of zero": b"0"}


def assert_refused(refused: BaseException | None, error: type[VeilsetError], check: str | None) -> None:
    """By name."""
    assert type(refused) is error, refused
    assert check is None or refused.details["check"] == check


@pytest.mark.parametrize("what", TAMPERED)
def test_whatever_is_tampered_with_is_refused_by_name(
    what: str, valkey_url: str, set_name: str, tmp_path: Path
) -> None:
    """And a follower stays with what it has, whatever comes."""
    tamper, error, check, by_remote = TAMPERED[what]
    publish(valkey_url, release(set_name, 1))
    with veilset.follow(valkey_url, set_name, public_keys=PINNED, poll_seconds=3600) as follower:
        good = follower.view
        put_beside(valkey_url, set_name, 2, release(set_name))
        tamper(valkey_url, set_name)
        point_at(valkey_url, set_name, POINTERS.get(what, b"2"))
        for options in ({}, {"cache_dir": tmp_path / "c"}):
            with pytest.raises(error) as caught:
                veilset.open(valkey_url, set_name, public_keys=PINNED, **options)  # type: ignore[arg-type]
            assert_refused(caught.value, error, check)
        if by_remote:
            with pytest.raises(error) as caught:
                veilset.remote(valkey_url, set_name, public_keys=PINNED)
            assert_refused(caught.value, error, check)
        with pytest.raises(error) as caught:
            follower.refresh()
        assert_refused(caught.value, error, check)
        assert_refused(follower.last_error, error, check)
        assert follower.view.header == good.header
        assert (follower.contains_many(MEMBERS) == good.contains_many(MEMBERS)).all()


@pytest.mark.parametrize("place", ["bloom", "first plane", "last plane"])
def test_padding_that_is_not_zero_is_refused(place: str, valkey_url: str, set_name: str) -> None:
    """Even where the hash fits: its signer made it so. A linear vector has padding in the last word of each plane."""
    assert SHAPE.bits % 8
    linear = LinearParameters(200, 128, 3, 1 << 60)
    good = release(set_name) if place == "bloom" else release(set_name, encoding=linear)
    length = SHAPE.vector_bytes if place == "bloom" else linear.vector_bytes
    bits = bytearray(good[-length:])
    bits[-1 if place != "first plane" else -8 * linear.planes + 1] |= 1  # column 200 is bit 8 of its word
    put(valkey_url, set_name, 2, forge(good, lambda header: None, bytes(bits)))
    with pytest.raises(ReleaseRejected) as caught:
        veilset.open(valkey_url, set_name, public_keys=PINNED)
    assert_refused(caught.value, ReleaseRejected, "padding")


def assert_changes_are_refused(name: str, masks: Callable[[int], Sequence[int]]) -> int:
    """``masks``: what is changed in the byte at an index. Returns how many changes were tried.

    What passes is outside header, signature and bits: the digits of the key's id, and their field's tag and length.
    """
    good = release(name)
    assert 4000 < len(good) < 4200
    view = veilset.open(good, name, public_keys=PINNED)
    tried = 0
    passed = set()
    for index in range(len(good)):
        for mask in masks(index):
            changed = bytearray(good)
            changed[index] ^= mask
            tried += 1
            try:
                found = veilset.open(bytes(changed), name, public_keys=PINNED)
            except ReleaseRejected:
                continue
            passed.add(index)
            assert (found.header, found.vector.tobytes()) == (view.header, view.vector.tobytes())
    assert len(passed) <= 20
    return tried


def test_every_changed_byte_of_a_release_is_refused(set_name: str) -> None:
    """S6: one bit of each byte of a 4 KiB release file."""
    assert assert_changes_are_refused(set_name, lambda index: [1 << index % 8]) > 4000


@pytest.mark.faults
def test_every_changed_bit_of_a_release_is_refused(set_name: str) -> None:
    """S6 whole: each bit of each byte, more than 32,000 releases."""
    assert assert_changes_are_refused(set_name, lambda index: [1 << bit for bit in range(8)]) > 32_000


def test_a_changed_byte_of_a_chunk_in_redis_is_refused(valkey_url: str, set_name: str) -> None:
    """S6 at the store: bytes all over the bits, changed where they lie."""
    good = release(set_name)
    publish(valkey_url, good)
    bits = good[-SHAPE.vector_bytes :]
    with redis.Redis.from_url(valkey_url) as client:
        for index in [*range(0, len(bits), 37), len(bits) - 1]:
            client.setrange(_bits(set_name), index, bytes([bits[index] ^ 1 << index % 8]))
            with pytest.raises(ReleaseRejected, match="does not match its hash"):
                veilset.open(valkey_url, set_name)
            client.setrange(_bits(set_name), index, bits[index : index + 1])
    assert veilset.open(valkey_url, set_name).vector.tobytes() == bits


def test_an_old_release_shown_again(valkey_url: str, set_name: str, tmp_path: Path) -> None:
    """S7: refused by a reader that saw a newer one, by its own memory or its folder; a new reader can tell by the age."""
    hour = 3_600_000_000
    old, new = release(set_name, 1, created_at_us=now_us() - 2 * hour), release(set_name, 2, created_at_us=now_us())
    publish(valkey_url, new)
    with veilset.follow(valkey_url, set_name, cache_dir=tmp_path, poll_seconds=3600) as follower:
        put(valkey_url, set_name, 1, old)
        with pytest.raises(ReleaseRejected, match="older than 2"):
            follower.refresh()
        assert follower.sequence == 2
    for read in (veilset.open, veilset.remote):
        with pytest.raises(ReleaseRejected, match="older than 2"):
            read(valkey_url, set_name, min_sequence=2)
        with pytest.raises(StaleRelease, match=rf"{set_name}/1 is 7[2-9]\d\d s old; at most 3600 s"):
            read(valkey_url, set_name, max_age_seconds=3600)
    with veilset.follow(valkey_url, set_name, cache_dir=tmp_path, poll_seconds=3600) as follower:
        assert follower.sequence == 2
        assert_refused(follower.last_error, ReleaseRejected, "sequence")
    with (
        veilset.follow(valkey_url, set_name, max_age_seconds=3600, poll_seconds=3600) as follower,
        pytest.raises(StaleRelease),
    ):
        follower.contains_many(MEMBERS)


def test_a_service_whose_clock_is_ahead_is_logged(
    valkey_url: str, set_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By every kind of reader that limits the age; the release answers."""
    publish(valkey_url, release(set_name, 1, created_at_us=now_us() + 3_600_000_000))
    for read in (veilset.open, veilset.remote, veilset.follow):
        caplog.clear()
        opened = read(valkey_url, set_name, max_age_seconds=60)
        assert f"{set_name}/1 was made" in caplog.text
        if not isinstance(opened, veilset.View):
            opened.close()
    caplog.clear()
    veilset.open(valkey_url, set_name)
    assert not caplog.text


HOSTILE = """
import veilset
from harness.forged_releases import SHAPE, hostile_releases
from harness.peak_memory import own_peak_bytes
from harness.releases import release_bytes
from veilset.errors import NotFound, ReleaseRejected

hostile = list(hostile_releases())
veilset.open(release_bytes(["user"], SHAPE, 4.0))
before = own_peak_bytes()
for name, data in hostile:
    try:
        veilset.open(data)
    except (ReleaseRejected, NotFound):
        continue
    raise SystemExit(f"{name}: was accepted")
print(len(hostile), own_peak_bytes() - before)
"""


def test_headers_made_to_hurt_are_refused_in_little_memory() -> None:
    """S8: m = 2^60, k = 0, k = 10^9, bits that are not there …: a typed error each, and less than 10 MiB for all of them."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    tried, grown = map(int, done.stdout.split())
    assert tried > 40
    assert grown < 10 << 20


def test_they_are_refused_from_redis_too(valkey_url: str, set_name: str) -> None:
    """By `open` and by `remote`, which would ask for bits that no chunk has."""
    for name, data in hostile_releases():
        put(valkey_url, "members", 1, data)
        for read in (veilset.open, veilset.remote):
            try:
                read(valkey_url, "members")
            except (ReleaseRejected, NotFound):
                continue
            pytest.fail(f"{name} was accepted by {read.__name__}")
