"""What a real service leaves in Redis, read by the program that was written from docs/format.md alone."""

from __future__ import annotations

import redis

import veilset
from harness.service_process import ServiceProcess
from harness.shapes import shape_of
from vectors.reader import MAGIC, digest, positions, read_generation
from veilset.core.elements.hashing import key_check

KEY = b"a secret of the two partners"
MEMBERS = [f"Member{number}@Example.ORG" for number in range(2000)]
ASKED = [*MEMBERS[:200], *(f"Other{number}@Example.ORG" for number in range(200))]


def test_keys_in_redis_are_as_the_document_says(service: ServiceProcess, set_name: str) -> None:
    """Pointer, manifest and chunks make a release file; its answers are the library's; GETBIT reads the same bits."""
    with service.connect() as connection:
        connection.create_set(
            set_name, size=2000, epsilon=5, adjacency="add-remove", bits=(1 << 23) + 1001, hashes=2, normalization="email",
            scheme="blake2b-1", key=KEY,
        )  # fmt: skip
        connection.add(set_name, MEMBERS, key=KEY)
        connection.publish(set_name)
    view = veilset.open(service.redis, set_name, key=KEY)
    with redis.Redis.from_url(service.redis) as store:
        sequence = store.get(f"veilset:{set_name}:latest")
        assert sequence == b"1"
        manifest = store.get(f"veilset:{set_name}:1:manifest")
        assert isinstance(manifest, bytes)
        chunks = [store.get(f"veilset:{set_name}:1:bits:{index}") for index in range(2)]
        bits = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
        file = MAGIC + len(manifest).to_bytes(4, "little") + manifest + bits
        release = read_generation(file, bytes.fromhex(service.public_key))
        seed = release.newest.number(2, of=4)
        shape = shape_of(view.header.encoding, view.header.hashing)
        assert (shape.seed, shape.key_check) == (seed, key_check(KEY))
        for element in ASKED[::40]:
            hashed = digest("blake2b-1", seed, KEY, element.lower().encode())
            for place in positions(hashed, shape.bits, shape.hashes):
                read = store.getbit(f"veilset:{set_name}:1:bits:{place // 8388608}", place % 8388608)
                assert read == view.vector[place // 8] >> (7 - place % 8) & 1
    answers = [release.ask(element, KEY) for element in ASKED]
    assert [answer.member for answer in answers if answer] == view.contains_many(ASKED).tolist()
    assert sum(answer.member for answer in answers[:200] if answer) > 100
