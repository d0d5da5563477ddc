"""The use cases of publishing around a real ledger and real files, with Redis and the anchor in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from storage_examples import LEDGER_ID, MAX_SETS, StoppedClock, new_runs

from harness.ledgers import ledger_copy
from harness.shapes import parameters
from veilset.core.params import (
    MAX_BITS,
    Adjacency,
    Calibration,
    HashParameters,
    Normalization,
    Operation,
    PrivacyParameters,
)
from veilset.core.privacy.budget import NANO, charge_delta
from veilset.core.release.header import ReleaseHeader
from veilset.core.release.signing import sign_header
from veilset.errors import NotFound, StorageFull
from veilset_server.locks import KeyedLocks
from veilset_server.ports import Signer
from veilset_server.records import Account, Charged, Mark, SetDescription, StoredRelease
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.entropy import AesKeyStream, OsEntropy
from veilset_server.state.ledger.file import LEDGER_NAME
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.usecases.abandoned_uploads import AbandonedUploads, IdleFile
from veilset_server.usecases.budgets import CountPurchase
from veilset_server.usecases.compaction import Compactor
from veilset_server.usecases.delivery import Delivery
from veilset_server.usecases.publishing import Publishing, PublishRequest
from veilset_server.usecases.rollback import NOTHING, RollbackGuard, recover
from veilset_server.usecases.uploads import Uploads

KEY = Ed25519PrivateKey.generate()


class MemoryAnchor:
    """Anchor port; ``room``: how many more writes succeed, None for all."""

    def __init__(self) -> None:
        self.sequences: dict[str, int] = {}
        self.operations: dict[str, int] = {}
        self.accounts: dict[str, Mark] = {}
        self.missing = False
        self.room: int | None = None

    def read(self, set_name: str, account: str) -> Mark:
        spent = self.accounts.get(account, NOTHING)
        operation = self.operations.get(set_name, 0)
        return Mark(self.sequences.get(set_name, 0), spent.nano_epsilon, spent.delta, operation)

    def charged(self) -> Charged:
        accounts = {name: (mark.nano_epsilon, mark.delta) for name, mark in self.accounts.items()}
        return Charged(dict(self.sequences), accounts, dict(self.operations))

    def raise_to(self, charged: Charged) -> None:
        self._use_room()
        for name, sequence in charged.sequences.items():
            self.sequences[name] = max(sequence, self.sequences.get(name, 0))
        for name, operation in charged.operations.items():
            self.operations[name] = max(operation, self.operations.get(name, 0))
        for name, (nano_epsilon, delta) in charged.accounts.items():
            before = self.accounts.get(name, NOTHING)
            self.accounts[name] = Mark(0, max(nano_epsilon, before.nano_epsilon), max(delta, before.delta))

    def _use_room(self) -> None:
        if self.room == 0:
            raise StorageFull("anchor: the disk is full")
        if self.room is not None:
            self.room -= 1

    def write(self, set_name: str, account: str, mark: Mark) -> None:
        spent = {account: (mark.nano_epsilon, mark.delta)}
        self.raise_to(Charged({set_name: mark.sequence}, spent, {set_name: mark.operation}))


class MemoryStore:
    """ReleaseStore port, as far as publishing needs it, for one set; ``lost``: its keys are gone, all but the pointer.

    At an upload it looks whether the charge is on disk.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.uploads: list[tuple[bytes, bytes]] = []
        self.pointer = 0
        self.lost = False

    def probe(self, set_name: str) -> None:
        pass

    def latest(self, set_name: str) -> int:
        return self.pointer

    def manifest(self, set_name: str, sequence: int) -> bytes:
        if sequence != self.pointer or self.lost:
            raise NotFound("release: gone")
        return self.uploads[-1][0]

    def upload(self, set_name: str, sequence: int, manifest: bytes, chunks: Iterator[bytes]) -> None:
        with ledger_copy(self._ledger.parent) as ledger:
            query = "SELECT manifest_sha256 FROM charges WHERE set_name = ? AND sequence = ?"
            charged = ledger.execute(query, (set_name, sequence)).fetchone()
        assert charged == (hashlib.sha256(manifest).digest(),), "uploaded before it was charged"
        self.uploads.append((manifest, b"".join(chunks)))

    def move_pointer(self, set_name: str, sequence: int) -> None:
        assert self.uploads, "visible before it is there"
        self.pointer = sequence


class RecordingEntropy(OsEntropy):
    """The system's entropy, and the integer at the start of each stream."""

    def __init__(self) -> None:
        self.first_integers: list[int] = []

    def keystream(self) -> AesKeyStream:
        stream = super().keystream()
        encrypt = stream._cipher.update

        class Recorded:
            @staticmethod
            def update(zeros: bytes) -> bytes:
                given = encrypt(zeros)
                if len(given) == 8 and len(self.first_integers) < 1:
                    self.first_integers.append(int.from_bytes(given, "little"))
                return given

        stream._cipher = Recorded()  # type: ignore[assignment]
        return stream


class OneKey:
    """Signer port with a key that never changes."""

    def sign(self, header: ReleaseHeader) -> bytes:
        return sign_header(header, [KEY])

    def public_keys(self) -> Collection[bytes]:
        return {KEY.public_key().public_bytes_raw()}


class Desk:
    """The use cases around one state folder; made anew on the same folder it is the service after a restart."""

    def __init__(self, folder: Path, anchor: MemoryAnchor, store: Any, signer: Signer | None = None) -> None:
        path = folder / LEDGER_NAME
        self.clock = clock = StoppedClock()
        signer = signer or OneKey()
        self.ledger = (SqliteLedger if path.exists() else SqliteLedger.create)(path, LEDGER_ID, clock)
        self.runs = new_runs(folder, self.ledger)
        self.runs.discard()
        self.aside = self.runs.set_unknown_aside()
        self.artefacts = ArtefactFiles(folder / "artefacts")
        self.anchor, self.store = anchor, store
        self.entropy = RecordingEntropy()
        self.locks = locks = KeyedLocks()
        self.guard = RollbackGuard(self.ledger, store, anchor, signer)
        self.compactor = compactor = Compactor(self.ledger, self.runs)
        abandoned = AbandonedUploads(self.ledger, self.runs, IdleFile(folder), 3600.0)
        self.uploads = Uploads(self.ledger, self.runs, compactor, self.guard, abandoned, clock)
        self.publishing = Publishing(
            self.ledger, self.runs, self.artefacts, self.entropy, clock, signer, locks, compactor, self.guard, MAX_BITS
        )
        self.delivery = Delivery(self.ledger, self.artefacts, store)
        recover(self.ledger, self.artefacts, self.guard)

    def create(
        self,
        min_size: int = 1,
        hashes: int = 3,
        budget: int = 2,
        bits: int = 1 << 20,
        calibration: Calibration = Calibration.W_QUANTILE,
    ) -> SetDescription:
        privacy = PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE, calibration, min_size=min_size)
        hashing, encoding = HashParameters(seed=self.entropy.seed32()), parameters(bits, hashes, privacy)
        description = SetDescription(
            "set", hashing, encoding, privacy, Normalization.NONE, "set", 0, 1000, shared_seed=False
        )
        self.ledger.create_set(description, budget * NANO, charge_delta(1e-6), MAX_SETS)
        return description

    def upload(self, upload_id: str, elements: Sequence[bytes], operation: Operation = Operation.ADD) -> None:
        session = self.uploads.open("set", upload_id, operation)
        if elements:
            session.add_elements(1, list(elements))
        self.uploads.finish(session, len(elements), b"")

    def held(self) -> list[int]:
        """The digests that the set holds."""
        with self.runs.sorted_chunks(self.ledger.get_set("set").set_id) as chunks:
            return [int(digest) for chunk in chunks for digest in chunk]

    def publish(self, request_id: str, count: CountPurchase | None = None) -> StoredRelease:
        return self.publishing.charge(PublishRequest("set", request_id, count))

    def account(self) -> Account:
        return self.ledger.get_account("set")

    def close(self) -> None:
        """Let go of the ledger."""
        self.ledger.close()


def restarted(desk: Desk, folder: Path) -> Desk:
    """The service on the same folder, anchor and Redis, after a restart."""
    desk.close()
    return Desk(folder, desk.anchor, desk.store)


def names(count: int, start: int = 0) -> list[bytes]:
    """That many elements."""
    return [b"element %d" % number for number in range(start, start + count)]
