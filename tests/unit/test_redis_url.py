"""What is no Redis URL is refused before anything starts, and never shown, as it may hold a password."""

from __future__ import annotations

import pytest

from veilset._reader.redis_client import check_redis_url, place_of
from veilset.errors import InvalidInput


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:6379",
        "http://u:hush@127.0.0.1/0",
        "redis:/u:hush@127.0.0.1",
        "redis://u:hush@127.0.0.1:port/0",
        "redis://u:hush@127.0.0.1:70000/0",
        "rediss+cluster://u:hush@127.0.0.1:-1",
        "redis://u:hush@127.0.0.1:6379/0?socket_timeout=long",
        "rediss://u:hush@127.0.0.1:6379/0?ssl_ca_certs=/not/there.pem",
        "redis+cluster://u:hush@127.0.0.1:6379/0?protocol=3",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """By scheme, port, and the values behind the question mark."""
    with pytest.raises(InvalidInput) as refused:
        check_redis_url(url)
    assert refused.value.field == "redis"
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://u:p@h:1/3",
        "rediss://h:6379?ssl_cert_reqs=none",
        "unix:///tmp/s?db=1",
        "redis+cluster://h:1",
        "redis://h:1?protocol=2",
    ],
)
def test_what_is_one_passes(url: str) -> None:
    """With its scheme."""
    assert check_redis_url(url) == url.partition("://")[0]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://u:hush@h:1/3", "h:1"),
        ("rediss+cluster://:hush@[::1]", "[::1]:6379"),
        ("redis://u:hush@/0", "localhost:6379"),
        ("unix://u:hush@/tmp/s?db=1", "/tmp/s"),  # noqa: S108 - nothing is written
    ],
)
def test_the_place_is_told_without_the_password(url: str, place: str) -> None:
    """Host and port, or the socket."""
    assert place_of(url) == place
