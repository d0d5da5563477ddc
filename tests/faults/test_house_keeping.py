"""What goes in time and what does not: old releases, abandoned uploads, sets that cannot prove their size."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from stricken import wait_for

from harness.fault_tally import Trying
from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.redis_server import RedisServer
from harness.service_process import ServiceProcess
from harness.vectors import redis_content
from veilset._reader.reader import open_view
from veilset._reader.sources import RedisSource
from veilset.core.release.header import check_chunk
from veilset.core.release.signing import open_manifest

GRACE_SECONDS = 3
ABANDONED_SECONDS = 3


def test_old_releases_go_after_a_grace_in_which_a_reader_finishes(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Two of five stay; a reader that began on one that had to go reads it to its end; artefacts go with them."""
    redis = start_redis()
    process = start_service(
        "--redis",
        redis.url,
        "--keep-releases",
        "2",
        "--grace-seconds",
        str(GRACE_SECONDS),
        "--reconcile-seconds",
        "0.5",
    )
    with trying("reader in mid-download of a release that goes"), process.connect() as service:
        service.create_set(
            "s",
            size=1000,
            epsilon=1,
            adjacency="add-remove",
            delta=1e-9,
            bits=20_000_000,
            hashes=1,
            budget_epsilon=5,
            allow_poor_utility=True,
        )
        service.add("s", ["a"])
        service.publish("s", request_id="1")
        with closing(RedisSource(redis.url, "s")) as source:
            header = open_manifest(source.manifest(source.latest()))
            check_chunk(header, 0, source.chunk(1, 0))
            for number in range(2, 6):
                assert service.publish("s", request_id=f"{number}").sequence == number
            left = time.monotonic()
            for index in range(1, len(header.chunk_sha256)):
                check_chunk(header, index, source.chunk(1, index))
        assert [release.state for release in service.list_releases("s")] == ["published"] * 2 + ["expired"] * 3
        assert service.publish("s", request_id="1").state == "expired"
        kept = {"veilset:s:latest"} | {
            f"veilset:s:{sequence}:{name}" for sequence in (4, 5) for name in ("manifest", "bits:0", "bits:1", "bits:2")
        }
        assert wait_for(lambda: set(redis_content(redis.url)) == kept, GRACE_SECONDS + 5.0)
        assert time.monotonic() - left > GRACE_SECONDS - 1.5
        assert len(list((process.state / "artefacts").iterdir())) == 2
        service.reconcile()
        assert set(redis_content(redis.url)) == kept
        assert open_view(redis.url, "s").header.sequence == 5


@pytest.mark.faults
def test_abandoned_uploads_go_and_those_under_way_stay(
    start_service: Callable[..., ServiceProcess], start_redis: Callable[..., RedisServer], trying: Trying
) -> None:
    """Ten are left alone and dropped, spools and all; one that goes on is kept; a dropped one starts over."""
    redis = start_redis()
    process = start_service(
        "--redis", redis.url, "--reconcile-seconds", "0.2", "--abandoned-upload-hours", str(ABANDONED_SECONDS / 3600)
    )
    spools = process.state / "spools"
    with trying("abandoned uploads"), process.connect() as service, process.stub() as stub:
        service.create_set("s", size=1000, epsilon=3, adjacency="add-remove", delta=1e-9)
        with RawUpload(stub, open_upload("s", "under way"), raw_batch(1, [b"x"])) as under_way:
            under_way.opened()
            assert under_way.acknowledged() == (1, 1)
            for number in range(10):
                with RawUpload(stub, open_upload("s", f"u{number}"), raw_batch(1, [b"y"])) as stream:
                    stream.opened()
                    assert stream.acknowledged() == (1, 1)
            started, batches = time.monotonic(), 1
            while len(list(spools.iterdir())) > 1:
                assert time.monotonic() - started < 20.0
                batches += 1
                under_way.send(raw_batch(batches, [b"x"]))
                assert under_way.acknowledged() == (batches, batches)
                time.sleep(0.05)
            assert time.monotonic() - started > ABANDONED_SECONDS / 2
            under_way.send(finish(batches))
            assert under_way.finished() == batches
        with RawUpload(stub, open_upload("s", "u3")) as stream:
            assert stream.opened().sequence == 0
