"""Redis over TLS: what does not fit is told in words, by reader and service alike, as lasting and not as an outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import veilset
from harness.certificates import Authority
from harness.redis_server import RedisServer, require_redis
from veilset.errors import InvalidInput, NotFound, StoreMisconfigured
from veilset_server.redis.store import RedisStore

QUICK_SECONDS = 20.0
"""For a reader and the service; a cause that lasts is not tried for half a minute."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder of certificates, and ports: of a Redis that asks for one, one whose own has expired, one of another name."""

    folder: Path
    mutual: int
    expired: int
    elsewhere: int


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Started once."""
    require_redis()
    folder = tmp_path_factory.mktemp("shelf")
    own, foreign = Authority(folder, "own"), Authority(folder, "foreign")
    own.issue("client")
    foreign.issue("unknown")
    own.issue("late", age=timedelta(days=3), lifetime=timedelta(days=2))
    served = [
        (own.issue("server"), ["--tls-auth-clients", "yes"]),
        (own.issue("expired", age=timedelta(days=3), lifetime=timedelta(days=2)), []),
        (own.issue("elsewhere", alternative_names=["elsewhere.example"]), []),
    ]
    servers = []
    client = f"&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key"
    for number, (pair, options) in enumerate(served):
        server = RedisServer(folder / str(number), certificates=pair, arguments=options)
        server.url += f"{client}&ssl_cert_reqs=none"  # for the harness, which only waits until it answers
        servers.append(server)
    try:
        for server in servers:
            server.start()
        yield Shelf(folder, *(server.port for server in servers))
    finally:
        for server in servers:
            server.stop()


OWN, CLIENT = "ssl_ca_certs={folder}/own.pem", "&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key"
FAULTS = {
    "signed by another": ("mutual", "ssl_ca_certs={folder}/foreign.pem" + CLIENT, "certificate does not verify"),
    "signed by nobody well known": ("mutual", CLIENT[1:], "certificate does not verify"),
    "expired": ("expired", OWN, "expired"),
    "for another name": ("elsewhere", OWN, "another name or address"),
    "for another address": ("mutual", OWN + CLIENT, "another name or address"),
    "no client certificate": ("mutual", OWN, "asks for a client certificate"),
    "client certificate of another authority": (
        "mutual",
        OWN + "&ssl_certfile={folder}/unknown.pem&ssl_keyfile={folder}/unknown.key",
        "refuses this client's certificate .*unknown ca",
    ),
    "expired client certificate": (
        "mutual",
        OWN + "&ssl_certfile={folder}/late.pem&ssl_keyfile={folder}/late.key",
        "refuses this client's certificate .*expired",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_by_name(fault: str, shelf: Shelf) -> None:
    """Nobody waits for it to pass."""
    which, query, text = FAULTS[fault]
    host = "127.0.0.2" if fault == "for another address" else "localhost"
    for scheme in ("rediss", "rediss+cluster", "rediss+sentinel"):
        path = "/primary" if scheme == "rediss+sentinel" else ""
        url = f"{scheme}://{host}:{getattr(shelf, which)}{path}?{query.format(folder=shelf.folder)}"
        began = time.monotonic()
        with pytest.raises(StoreMisconfigured, match=text):
            veilset.open(url, "set")
        with closing(RedisStore(url, 10)) as store, pytest.raises(StoreMisconfigured, match=text):
            store.ping()
        assert time.monotonic() - began < QUICK_SECONDS


def test_with_the_right_files_it_answers(shelf: Shelf) -> None:
    """Else the faults would prove nothing."""
    url = f"rediss://localhost:{shelf.mutual}/0?{(OWN + CLIENT).format(folder=shelf.folder)}"
    with pytest.raises(NotFound):
        veilset.open(url, "set")
    with closing(RedisStore(url, 10)) as store:
        store.ping()


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_not_there_is_refused_before_connecting(name: str, tmp_path: Path) -> None:
    """By the name of its parameter, and without the URL, which may hold a password."""
    url = f"rediss://:secret@localhost:1/0?{name}={tmp_path}/missing.pem"
    for use in (lambda: veilset.open(url, "set"), lambda: RedisStore(url, 10)):
        with pytest.raises(InvalidInput, match=name) as refused:
            use()
        assert "secret" not in refused.value.message
