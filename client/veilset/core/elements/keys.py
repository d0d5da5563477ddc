"""The secret of a keyed scheme, and its check value: what tells a wrong secret from a right one before it answers "no".

A digest under another secret points at other bits, so with a wrong one every answer would be a plausible "no" and every
overlap about zero. The check value goes with a set and its releases, and a wrong secret is refused with an error.

It is BLAKE2b of the empty message, keyed by the secret, under a personalisation of its own: the parameter block differs
from that of every element's digest, so the two are outputs of a pseudorandom function at different points. Argument,
and why the secret has to be random: docs/privacy.md, section 2.
"""

from __future__ import annotations

import hashlib

from veilset.core.elements.hashing import KEY_BYTES
from veilset.core.params import KEY_CHECK_BYTES, HashParameters, HashScheme
from veilset.errors import InvalidInput, WrongKey, must_be

_PERSON = b"veilset-check-1"


def key_check(key: bytes) -> str:
    """Check value of a secret of 16 to 64 bytes: 16 hexadecimal digits, public. Raises InvalidInput."""
    if not isinstance(key, bytes) or len(key) not in KEY_BYTES:
        raise must_be("key", f"{KEY_BYTES.start} to {KEY_BYTES.stop - 1} secret bytes")
    return hashlib.blake2b(digest_size=KEY_CHECK_BYTES, key=key, person=_PERSON).hexdigest()


class AmbientKey(bytes):
    """A secret that stands ready for the keyed sets among many, such as one that the environment names: of no use, and no
    mistake, where a scheme takes none."""


def check_key(hashing: HashParameters, key: bytes | None, owner: str) -> bytes | None:
    """The secret to hash with. Raise WrongKey if ``key`` is not the one whose check value ``hashing`` has; ``owner`` names the
    set or release.

    No key passes, as there is work that needs none; so does any where no check value is known. Raises InvalidInput for what is
    no secret at all, and for one where the scheme takes none, unless it is ambient.
    """
    if key is None:
        return None
    if hashing.scheme is not HashScheme.BLAKE2B:
        if isinstance(key, AmbientKey):
            return None
        raise InvalidInput(
            "key", f"key does not belong to {owner}, whose scheme {hashing.scheme} takes none; leave it out"
        )
    own = key_check(key)
    if hashing.key_check and own != hashing.key_check:
        raise WrongKey(
            "key",
            f"key is not the secret that {owner} was made with: its check value is {own}, not {hashing.key_check}",
        )
    return key
