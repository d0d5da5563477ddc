"""Tokens: how they look, what is kept of them, and that a wrong one is told nothing."""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import pytest

from veilset_server.principals import make_principal
from veilset_server.state.tokens import TOKEN, TokenBook, TokenRecord, make_token, make_token_id, token_hash

NOW_US = 1_000_000


def record(token: str, **more: Any) -> TokenRecord:
    """What is kept of a token."""
    principal = make_principal("crm", ["producer"], ["customers-*"])
    return replace(TokenRecord(token.split("_")[1], principal, token_hash(token), 0, None), **more)


def wrong_tokens() -> dict[str, tuple[str, TokenRecord]]:
    """Every way in which a token can be wrong: what is shown, and what is kept."""
    token = make_token(make_token_id())
    last = "0" if token[-1] != "0" else "1"
    first = token.index("_", 4) + 1
    return {
        "unknown": (make_token(make_token_id()), record(token)),
        "another secret": (make_token(token.split("_")[1]), record(token)),
        "first digit": (
            token[:first] + ("0" if token[first] != "0" else "1") + token[first + 1 :],
            record(token),
        ),
        "last digit": (token[:-1] + last, record(token)),
        "upper case": (token.upper(), record(token)),
        "blank behind": (token + " ", record(token)),
        "newline behind": (token + "\n", record(token)),
        "too short": (token[:-1], record(token)),
        "empty": ("", record(token)),
        "no text": ("\udc80" * 80, record(token)),
        "expired": (token, record(token, expires_at_us=NOW_US)),
        "revoked": (token, record(token, revoked_at_us=0)),
    }


WRONG = wrong_tokens()


def test_tokens_are_long_and_never_the_same() -> None:
    """256 bits of the operating system's; the id is not the secret."""
    tokens = {make_token(make_token_id()) for _ in range(1000)}
    assert len({token.rpartition("_")[2] for token in tokens}) == 1000
    assert all(TOKEN.fullmatch(token) for token in tokens)
    assert {len(bytes.fromhex(token.rpartition("_")[2])) * 8 for token in tokens} == {256}


def test_a_right_token_is_found() -> None:
    """Until the microsecond at which it expires."""
    token = make_token(make_token_id())
    kept = record(token, expires_at_us=NOW_US + 1)
    assert TokenBook([kept]).find(token, NOW_US) == kept
    assert TokenBook([kept]).find(token, NOW_US + 1) is None
    assert TokenBook([kept]).why(token, NOW_US + 1) == "expired"


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_token_is_not(case: str) -> None:
    """However near it comes."""
    shown, kept = WRONG[case]
    assert TokenBook([kept]).find(shown, NOW_US) is None


@pytest.mark.parametrize("case", WRONG)
def test_every_token_is_hashed_and_compared_in_constant_time(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at full length, whatever is wrong with it: so the time tells neither which ids exist nor how much fits."""
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return original(left, right)

    original = hmac.compare_digest
    monkeypatch.setattr("veilset_server.state.tokens.hmac.compare_digest", compare)
    shown, kept = WRONG[case]
    TokenBook([kept]).find(shown, NOW_US)
    assert compared == [(32, 32)]


def test_nothing_that_is_kept_opens_anything() -> None:
    """Neither the hash nor its text is a token, and no record shows one."""
    token = make_token(make_token_id())
    kept = record(token)
    assert token.rpartition("_")[2] not in repr(kept)
    for shown in (kept.sha256.hex(), f"vst_{kept.token_id}_{kept.sha256.hex()}"):
        assert TokenBook([kept]).find(shown, NOW_US) is None
