"""The life of signing keys: made, overlapping, retired. Pure: what the file holds before and after a change.

A reader trusts a release that any key it pinned has signed. So a new key signs beside the old one for a while, in which readers
learn it; then the old one stops. Its public half is kept for good, since releases that it signed are still this service's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from veilset.core.release.signing import MAX_SIGNATURES, key_id
from veilset.errors import FailedPrecondition, NotFound, must_be

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
        """Whether it signs now."""
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

    Raises NotFound; FailedPrecondition for the newest, which takes its place from nobody: rotate with no overlap instead.
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
