"""Asking a release bit by bit, where it lies: the answers of the downloaded one, and what Redis is asked for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import redis

import veilset
from harness.redis_releases import publish
from harness.redis_server import RedisServer
from harness.releases import PUBLIC_KEY, release_bytes
from harness.shapes import FilterParameters
from veilset._reader import redis_keys as keys
from veilset.core.params import HashScheme, Normalization
from veilset.errors import InvalidInput, NotFound, PoorUtility, ReleaseRejected, Unavailable, VeilsetError, WrongKey

MEMBERS = [f"user{number}" for number in range(800)]
ASKED = MEMBERS[:100] + [f"other{number}" for number in range(100)]
THREE_CHUNKS = FilterParameters(18_000_003, 3, seed=5)
CHUNK_BITS = 8 << 20
ONE = FilterParameters(8192, 32, seed=5)  # positions coincide


@pytest.mark.parametrize("shape", [THREE_CHUNKS, ONE], ids=["three chunks", "coinciding positions"])
def test_the_answers_are_those_of_the_downloaded_release(
    shape: FilterParameters, valkey_url: str, set_name: str
) -> None:
    publish(valkey_url, release_bytes(MEMBERS, shape, 24.0, name=set_name))
    view = veilset.open(valkey_url, set_name)
    with veilset.remote(valkey_url, set_name, public_keys=[PUBLIC_KEY]) as remote:
        assert remote.header == view.header
        assert remote.decoder.true_positive_rate == view.decoder.true_positive_rate
        assert remote.decoder.false_positive_rate == view.decoder.false_positive_rate
        assert remote.contains_many(ASKED).tolist() == view.contains_many(ASKED).tolist()
        assert remote.contains_many(ASKED).dtype == np.bool_
        assert remote.contains_many(pa.array(ASKED)).tolist() == view.contains_many(ASKED).tolist()
        assert remote.scores(iter(ASKED)).tolist() == view.scores(ASKED).tolist()
        assert remote.posteriors(ASKED, 0.2).tolist() == view.posteriors(ASKED, 0.2).tolist()
        assert [element in remote for element in ASKED[:5]] == [element in view for element in ASKED[:5]]
        assert remote.contains_many([]).tolist() == remote.scores([]).tolist() == []
        assert remote.age_seconds == pytest.approx(view.age_seconds, abs=60)
        with pytest.raises(InvalidInput, match="index 150, a null"):
            remote.contains_many([*ASKED[:150], None])  # type: ignore[list-item]


def test_it_takes_the_options_of_open(valkey_url: str, set_name: str) -> None:
    secret = b"s" * 32
    shape = FilterParameters(8192, 4, HashScheme.BLAKE2B, seed=1)
    for sequence in (1, 2):
        data = release_bytes(
            MEMBERS[:50],
            shape,
            24.0,
            name=set_name,
            sequence=sequence,
            key=secret,
            normalization=Normalization.TRIM_CASEFOLD,
        )
        publish(valkey_url, data)
    options = {"key": secret, "sequence": 1, "max_false_positive_rate": 0.01}
    view = veilset.open(valkey_url, set_name, **options)  # type: ignore[arg-type]
    with veilset.remote(valkey_url, set_name, **options) as remote:  # type: ignore[arg-type]
        assert remote.header == view.header
        assert remote.decoder.true_positive_rate == view.decoder.true_positive_rate
        assert remote.decoder.false_positive_rate == view.decoder.false_positive_rate
        assert remote.header.sequence == 1
        shouted = [f" {element.upper()}" for element in ASKED]
        assert remote.contains_many(shouted).tolist() == view.contains_many(ASKED).tolist()
    refused: list[tuple[dict[str, object], type[VeilsetError]]] = [
        ({"min_sequence": 3}, ReleaseRejected),
        ({"sequence": 3}, NotFound),
        ({"public_keys": [b"k" * 32]}, ReleaseRejected),
        ({"max_false_positive_rate": 1e-30}, PoorUtility),
        ({"rule": "none"}, InvalidInput),
    ]
    for more, error in refused:
        with pytest.raises(error):
            veilset.remote(valkey_url, set_name, key=secret, **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="key"), veilset.remote(valkey_url, set_name) as remote:
        remote.contains_many(ASKED)


def test_redis_is_asked_for_bytes_and_nothing_is_downloaded(
    start_redis: Callable[..., RedisServer], set_name: str
) -> None:
    """And each byte once a batch. What Redis sees is which bytes: the docstring says so."""
    server = start_redis()
    publish(server.url, release_bytes(MEMBERS, THREE_CHUNKS, 24.0, name=set_name))
    with veilset.remote(server.url, set_name) as remote:
        server.command("CONFIG", "RESETSTAT")
        sent_before = server.command("INFO", "stats")["total_net_output_bytes"]
        remote.contains_many(ASKED[::4] * 5)
        calls = {name: found["calls"] for name, found in server.command("INFO", "commandstats").items()}
        assert calls["cmdstat_getrange"] <= 3 * len(ASKED[::4])
        assert not {"cmdstat_get", "cmdstat_multi", "cmdstat_exec"} & set(calls)
        assert calls["cmdstat_strlen"] <= 3
        assert server.command("INFO", "stats")["total_net_output_bytes"] - sent_before < 100_000
    assert "sees which bytes" in (veilset.remote.__doc__ or "")


def test_an_expired_release_is_not_read_as_zeros(valkey_url: str, set_name: str) -> None:
    """Redis reads 0 where nothing is: every pipeline asks whether the chunks are whole."""
    data = release_bytes(MEMBERS, THREE_CHUNKS, 24.0, name=set_name)
    publish(valkey_url, data)
    key = keys.chunk(set_name, 1, 1)
    with redis.Redis.from_url(valkey_url) as client, veilset.remote(valkey_url, set_name) as remote:
        good = client.get(key)
        assert good is not None
        for value, error in ((b"", NotFound), (good[:-1], ReleaseRejected), (good + b"x", ReleaseRejected)):
            client.set(key, value)
            with pytest.raises(error, match="chunk 1"):
                remote.contains_many(ASKED)
            with pytest.raises(error, match="chunk 1"):
                veilset.remote(valkey_url, set_name)
        client.delete(key)
        client.lpush(key, "no string")
        with pytest.raises(Unavailable, match="WRONGTYPE"):
            remote.contains_many(ASKED)
        client.delete(key)
        with pytest.raises(NotFound, match="open the set again"):
            remote.contains_many(ASKED)


def test_redis_going_away_is_told(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    server = start_redis()
    publish(server.url, release_bytes(MEMBERS, ONE, 24.0, name=set_name))
    with veilset.remote(server.url, set_name) as remote:
        server.stop()
        with pytest.raises(Unavailable):
            remote.contains_many(ASKED)


def test_a_cluster_is_asked_too(start_redis: Callable[..., RedisServer], set_name: str) -> None:
    """One key a command, no transaction."""
    server = start_redis(arguments=["--cluster-enabled", "yes"]).make_cluster()
    data = release_bytes(MEMBERS, THREE_CHUNKS, 24.0, name=set_name)
    publish(server.url, data)
    view = veilset.open(data)
    with veilset.remote(server.url, set_name) as remote:
        assert remote.scores(ASKED).tolist() == view.scores(ASKED).tolist()


def test_a_wrong_secret_is_told(valkey_url: str, set_name: str) -> None:
    from veilset.core.elements.hashing import key_check

    shape = FilterParameters(8192, 4, HashScheme.BLAKE2B, seed=1, key_check=key_check(b"s" * 32))
    publish(valkey_url, release_bytes(MEMBERS[:50], shape, 24.0, name=set_name, key=b"s" * 32))
    with pytest.raises(WrongKey):
        veilset.remote(valkey_url, set_name, key=b"t" * 32)
