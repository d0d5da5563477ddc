"""What is no Redis URL, or asks for what is not supported, is refused before anything starts, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.certificates import Authority
from veilset._reader.redis_url import SCHEMES, SENTINEL_OPTIONS, TLS_OPTIONS, RedisUrl, parse_redis_url
from veilset.errors import InvalidInput

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


def refusal(url: str) -> str:
    """What the refusal says; it is of the URL, and repeats no password."""
    with pytest.raises(InvalidInput) as refused:
        parse_redis_url(url)
    assert refused.value.field == "redis"
    assert "hush" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "starts with redis://"),
        ("127.0.0.1:6379", "starts with"),
        ("http://u:hush@127.0.0.1/0", "starts with"),
        ("redis:/u:hush@127.0.0.1", "starts with"),
        ("redis://u:hush@127.0.0.1:port/0", "host and port"),
        ("redis://u:hush@127.0.0.1:70000/0", "host and port"),
        ("redis://u:hush@127.0.0.1:0/0", "host and port"),
        ("rediss+cluster://u:hush@127.0.0.1:-1", "host and port"),
        ("rediss://u:hush@[::1", "host and port"),
        ("redis://h1,h2:6379/0", "one host"),
        ("redis://u:hush@h/abc", "database is a number"),
        ("redis://u:hush@h/1/2", "database is a number"),
        ("redis://u:hush@h/-1", "database is a number"),
        ("unix:///tmp/s?db=x", "database is a number"),
        ("unix://?db=1", "path of a socket"),
        ("redis+cluster://h:7000,h2:7000/1", "database 0"),
        ("redis+sentinel://s1,s2", "primary's name"),
        ("redis+sentinel://s1,s2/mymaster/x", "database is a number"),
    ],
)
def test_what_is_no_url_is_refused(url: str, text: str) -> None:
    """By the part that is wrong."""
    assert text in refusal(url)


@pytest.mark.parametrize("mark", ["#", "?", "/", "?ssl_ca_certs=", "#@", "@#"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_password_with_an_unescaped_mark_is_refused(scheme: str, mark: str) -> None:
    """Else the half behind the mark would be taken for a database or an option, and told."""
    assert "%23" in refusal(f"{scheme}://user:hush{mark}hush@host:6379/name/0")


@pytest.mark.parametrize(
    "option",
    [
        "decode_responses=true",
        "encoding=latin-1",
        "protocol=3",
        "socket_timeout=5",
        "health_check_interval=1",
        "client_name=x",
        "ssl_ca_certs=/dev/null",
        "password=hush",
        "db=1",
        "db=1&db=2",
    ],
)
def test_an_unsupported_option_is_refused_by_name(option: str) -> None:
    """Replies in another form would be taken for damage."""
    assert option.partition("=")[0] in refusal(f"redis://u:hush@h/0?{option}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("ssl_cert_reqs=maybe", "required, optional, none"),
        ("ssl_check_hostname=1", "true, false"),
        ("ssl_cert_reqs=none&ssl_cert_reqs=none", "once"),
        ("ssl_ca_certs={0}/missing.pem", "cannot be read"),
        ("ssl_ca_certs={0}/garbage.pem", "certificates"),
        ("ssl_ca_certs={0}/client.key", "certificates"),
        ("ssl_keyfile={0}/client.key", "comes with ssl_certfile"),
        ("ssl_certfile={0}/garbage.pem", "certificate and its unencrypted key"),
        ("ssl_certfile={0}/client.pem&ssl_keyfile={0}/other.key", "belong together"),
    ],
)
def test_tls_options_that_cannot_work_are_refused(tmp_path: Path, options: str, text: str) -> None:
    """Before anything connects."""
    authority = Authority(tmp_path, "own")
    authority.issue("client")
    authority.issue("other")
    (tmp_path / "garbage.pem").write_text("-----BEGIN CERTIFICATE-----\nnothing\n")
    assert text in refusal(f"rediss://u:hush@h/0?{options.format(tmp_path)}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", RedisUrl("redis", False, (("h", 6379),))),
        ("redis://", RedisUrl("redis", False, (("localhost", 6379),))),
        ("redis://u:p%23%3f@h:1/3", RedisUrl("redis", False, (("h", 1),), username="u", password="p#?", database=3)),  # noqa: S106
        ("redis://:a@b@h?protocol=2", RedisUrl("redis", False, (("h", 6379),), password="a@b")),  # noqa: S106
        (
            "rediss://[::1]:1?ssl_cert_reqs=none",
            RedisUrl("redis", True, (("::1", 1),), options={"ssl_cert_reqs": "none"}),
        ),
        ("unix://u:p@/tmp/s?db=1", RedisUrl("unix", False, (), "/tmp/s", "u", "p", 1)),  # noqa: S108
        ("redis+cluster://h1:1,h2/0", RedisUrl("cluster", False, (("h1", 1), ("h2", 6379)))),
        (
            "rediss+sentinel://u:p@s1,[::1]:5/my%20master/2?sentinel_password=q",
            RedisUrl(
                "sentinel", True, (("s1", 26379), ("::1", 5)), "", "u", "p", 2, "my master", {"sentinel_password": "q"}
            ),
        ),
    ],
)
def test_a_url_is_read(url: str, expected: RedisUrl) -> None:
    """Percent-encoding undone, defaults filled in."""
    assert parse_redis_url(url) == expected


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://u:hush@h:1/3", "h:1"),
        ("rediss+cluster://:hush@[::1],h2:7", "[::1]:6379, h2:7"),
        ("unix://u:hush@/tmp/s?db=1", "/tmp/s"),  # noqa: S108 - nothing is written
    ],
)
def test_the_place_is_shown_without_the_password(url: str, place: str) -> None:
    """Nor does the record show it."""
    found = parse_redis_url(url)
    assert found.place == place
    assert "hush" not in repr(found)


def test_operating_lists_every_scheme_and_option() -> None:
    """And no other."""
    text = OPERATING.read_text()
    for name in (
        *(f"`{scheme}://" for scheme in SCHEMES),
        *(f"`{name}`" for name in (*TLS_OPTIONS, *SENTINEL_OPTIONS)),
    ):
        assert name in text, name
