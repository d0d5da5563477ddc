"""Ed25519 after RFC 8032, section 5.1, in integers of Python: slow, not constant in time, for known-answer vectors only."""

from __future__ import annotations

import hashlib

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)

Point = tuple[int, int, int, int]  # extended coordinates X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z


def _add(left: Point, right: Point) -> Point:
    a = (left[1] - left[0]) * (right[1] - right[0]) % _P
    b = (left[1] + left[0]) * (right[1] + right[0]) % _P
    c = 2 * left[3] * right[3] * _D % _P
    d = 2 * left[2] * right[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = _add(total, point)
        point = _add(point, point)
        scalar >>= 1
    return total


def _x_of(y: int, sign: int) -> int:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_1 % _P
    if (x * x - square) % _P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    return x if x & 1 == sign else _P - x


def _point(x: int, y: int) -> Point:
    return x, y, 1, x * y % _P


_BASE_Y = 4 * pow(5, -1, _P) % _P
_BASE = _point(_x_of(_BASE_Y, 0), _BASE_Y)


def _encode(point: Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decode(data: bytes) -> Point:
    number = int.from_bytes(data, "little")
    y, sign = number & ((1 << 255) - 1), number >> 255
    if len(data) != 32 or y >= _P:
        raise ValueError("no point of the curve")
    return _point(_x_of(y, sign), y)


def _scalar(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _ORDER


def _expand(secret: bytes) -> tuple[int, bytes]:
    hashed = hashlib.sha512(secret).digest()
    clamped = int.from_bytes(hashed[:32], "little") & ((1 << 254) - 8) | 1 << 254
    return clamped, hashed[32:]


def public_key(secret: bytes) -> bytes:
    """The raw public key of a 32-byte secret."""
    return _encode(_multiply(_expand(secret)[0], _BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """The 64-byte signature."""
    scalar, prefix = _expand(secret)
    public = _encode(_multiply(scalar, _BASE))
    nonce = _scalar(prefix + message)
    commitment = _encode(_multiply(nonce, _BASE))
    answer = (nonce + _scalar(commitment + public + message) * scalar) % _ORDER
    return commitment + answer.to_bytes(32, "little")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is one of the message by the key."""
    try:
        key, commitment = _decode(public), _decode(signature[:32])
    except ValueError:
        return False
    answer = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or answer >= _ORDER:
        return False
    challenge = _scalar(signature[:32] + public + message)
    return _encode(_multiply(answer, _BASE)) == _encode(_add(commitment, _multiply(challenge, key)))
