"""The ledger port on SQLite. Each method is one transaction; what it does is in the modules of its tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from veilset.core.params import check_choice, check_integer
from veilset.errors import InvalidInput, StateCorrupted
from veilset_server.records import (
    Account,
    Charge,
    Charged,
    ReleaseState,
    SetDescription,
    StoredRelease,
    StoredSet,
    Upload,
    UploadQuota,
    UploadState,
    VectorRecord,
)
from veilset_server.state.durability import FILE_MODE, sync_folder
from veilset_server.state.ledger import budgets as ledger_budgets
from veilset_server.state.ledger import releases as ledger_releases
from veilset_server.state.ledger import sets as ledger_sets
from veilset_server.state.ledger import uploads as ledger_uploads
from veilset_server.state.ledger import vectors as ledger_vectors
from veilset_server.state.ledger.file import LedgerFile, damage
from veilset_server.state.ledger.schema import MIGRATIONS, check_schema, upgrade
from veilset_server.state.ledger.verification import verify_ledger

if TYPE_CHECKING:
    from veilset_server.ports import Clock

MAX_REASON = 500


class SqliteLedger:
    """Ledger port, where the methods are explained. Thread-safe; several processes may have one file open, each through
    its own instance."""

    def __init__(
        self, path: Path, ledger_id: str, clock: Clock, migrations: Sequence[Sequence[str]] = MIGRATIONS
    ) -> None:
        """Open the ledger at ``path``, bring an older version forward, and verify all of it.

        ledger_id: that of the state folder. Raises StateCorrupted naming the file if it is missing, empty, damaged, of a
        later version or another folder's; nothing is ever repaired or made anew.
        """
        if not path.is_file() or path.stat().st_size == 0:  # stat, not open: see ledger.file
            raise StateCorrupted(f"{path}: missing or empty, though the state folder is in use", file=path.name)
        self._clock = clock
        self._file = LedgerFile(path)
        try:
            with self._file.transaction() as transaction, damage(str(path)):
                check_schema(transaction, path, migrations)
                upgrade(transaction, migrations)
                verify_ledger(transaction, path, ledger_id)
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def create(
        cls, path: Path, ledger_id: str, clock: Clock, migrations: Sequence[Sequence[str]] = MIGRATIONS
    ) -> SqliteLedger:
        """Make an empty ledger where there is none, and open it. Raises FileExistsError, StorageFull."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))  # SQLite's journal takes on the mode
        file = LedgerFile(path)
        try:
            with file.transaction() as transaction:
                upgrade(transaction, migrations)
                transaction.execute("INSERT INTO ledger (ledger_id) VALUES (?)", (ledger_id,))
        finally:
            file.close()
        sync_folder(path.parent)
        return cls(path, ledger_id, clock, migrations)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bind_anchor(self, found: str) -> str:
        """The id of this ledger's anchor; a ledger that has none yet takes ``found`` as its anchor's for good."""
        with self._file.transaction() as transaction:
            transaction.execute("UPDATE ledger SET anchor_id = ? WHERE anchor_id = ''", (found,))
            return str(transaction.execute("SELECT anchor_id FROM ledger").fetchone()[0])

    # Sets

    def create_set(
        self,
        description: SetDescription,
        budget_nano_epsilon: int,
        budget_delta: Fraction,
        max_sets: int,
        max_sets_of_owner: int | None = None,
    ) -> StoredSet:
        with self._file.transaction() as transaction:
            ledger_sets.check_name_is_free(transaction, description.name, description.account)
            ledger_budgets.join_account(
                transaction,
                description.account,
                description.privacy,
                budget_nano_epsilon,
                budget_delta,
                description.created_at_us,
            )
            stored = ledger_sets.insert_set(transaction, description, max_sets, max_sets_of_owner)
            ledger_vectors.write_root(transaction, stored.set_id, b"")
            return stored

    def get_set(self, name: str) -> StoredSet:
        with self._file.transaction() as transaction:
            return ledger_sets.read_set(transaction, name)

    def get_set_by_id(self, set_id: int) -> StoredSet:
        with self._file.transaction() as transaction:
            return ledger_sets.read_set_by_id(transaction, set_id)

    def highest_set_id(self) -> int:
        """Highest id that a set ever had, also a deleted one; 0 for none."""
        with self._file.transaction() as transaction:
            return ledger_sets.highest_set_id(transaction)

    def list_sets(self, after: str, limit: int) -> list[StoredSet]:
        with self._file.transaction() as transaction:
            return ledger_sets.read_sets(transaction, after, limit)

    def delete_set(self, name: str) -> StoredSet:
        with self._file.transaction() as transaction:
            stored = ledger_sets.read_set(transaction, name)
            ledger_uploads.delete_uploads(transaction, stored.set_id)
            ledger_vectors.delete_root(transaction, stored.set_id)
            ledger_releases.retire_releases(transaction, stored.set_id)
            ledger_sets.update_set(transaction, StoredSet(stored.set_id, stored.description, 0), deleted=True)
            return stored

    # Uploads

    def open_upload(self, set_id: int, upload_id: str, quota: UploadQuota | None = None) -> Upload:
        with self._file.transaction() as transaction:
            ledger_sets.read_set_by_id(transaction, set_id)
            return ledger_uploads.read_or_open_upload(transaction, set_id, upload_id, self._clock.now_us(), quota)

    def accept_upload(self, set_id: int, upload_id: str, count: int) -> None:
        with self._file.transaction() as transaction:
            ledger_uploads.advance_upload(transaction, set_id, upload_id, UploadState.OPEN, UploadState.MERGING, count)

    def finish_upload(self, set_id: int, upload_id: str, new_elements: int, vector_root: bytes) -> None:
        check_integer("new_elements", new_elements, 0, ledger_uploads.MAX_COUNT)
        with self._file.transaction() as transaction:
            stored = ledger_sets.read_set_by_id(transaction, set_id)
            ledger_uploads.advance_upload(
                transaction, set_id, upload_id, UploadState.MERGING, UploadState.FINISHED, None
            )
            grown = StoredSet(set_id, stored.description, stored.proven_size + new_elements)
            ledger_sets.update_set(transaction, grown)
            ledger_vectors.write_root(transaction, set_id, vector_root)

    def vector_record(self, set_id: int) -> VectorRecord:
        with self._file.transaction() as transaction:
            accepted = ledger_uploads.uploads_in_state(transaction, UploadState.MERGING, set_id)
            root = ledger_vectors.read_root(transaction, set_id)
            return VectorRecord(root, tuple(upload.upload_id for upload in accepted))

    def adopt_vector_root(self, set_id: int, root: bytes) -> None:
        """For a set from before the ledger kept roots: from now on its vector has to be that of ``root``."""
        with self._file.transaction() as transaction:
            ledger_vectors.write_root(transaction, set_id, root)

    def merging_uploads(self, set_id: int | None = None) -> list[Upload]:
        with self._file.transaction() as transaction:
            return ledger_uploads.uploads_in_state(transaction, UploadState.MERGING, set_id)

    def open_uploads(self, set_id: int) -> int:
        with self._file.transaction() as transaction:
            return ledger_uploads.count_uploads(transaction, set_id, UploadState.OPEN)

    def finished_uploads(self, set_id: int) -> int:
        with self._file.transaction() as transaction:
            return ledger_uploads.count_uploads(transaction, set_id, UploadState.FINISHED)

    def all_open_uploads(self) -> list[Upload]:
        with self._file.transaction() as transaction:
            return ledger_uploads.uploads_in_state(transaction, UploadState.OPEN)

    def drop_upload(self, set_id: int, upload_id: str) -> bool:
        with self._file.transaction() as transaction:
            return ledger_uploads.delete_open_upload(transaction, set_id, upload_id)

    # Releases and their charges

    def next_sequence(self, set_name: str) -> int:
        with self._file.transaction() as transaction:
            return ledger_releases.next_sequence(transaction, set_name)

    def charge_release(self, release: StoredRelease, account: str, charge: Charge, expected_spent: int) -> None:
        with self._file.transaction() as transaction:
            now_us = self._clock.now_us()
            ledger_releases.charge_release(transaction, release, account, charge, expected_spent, now_us)

    def charge_lost_releases(
        self, set_name: str, last_sequence: int, account: str, charge: Charge, reason: str
    ) -> Account:
        _check_reason(reason)
        with self._file.transaction() as transaction:
            now_us = self._clock.now_us()
            return ledger_releases.charge_lost(transaction, set_name, last_sequence, account, charge, reason, now_us)

    def mark_release(self, set_id: int, sequence: int, state: str) -> None:
        target = check_choice("state", state, ReleaseState)
        with self._file.transaction() as transaction:
            ledger_releases.mark_release(transaction, set_id, sequence, target)

    def get_release(self, set_name: str, sequence: int) -> StoredRelease:
        with self._file.transaction() as transaction:
            return ledger_releases.get_release(transaction, set_name, sequence)

    def find_release(self, set_name: str, request_id: str) -> StoredRelease | None:
        with self._file.transaction() as transaction:
            return ledger_releases.find_release(transaction, set_name, request_id)

    def list_releases(self, set_name: str, below: int, limit: int) -> list[StoredRelease]:
        with self._file.transaction() as transaction:
            return ledger_releases.list_releases(transaction, set_name, below, limit)

    def releases_in_state(self, state: str) -> list[StoredRelease]:
        wanted = check_choice("state", state, ReleaseState)
        with self._file.transaction() as transaction:
            return ledger_releases.releases_in_state(transaction, wanted)

    def sequences_in_state(self, set_name: str, state: str) -> list[int]:
        wanted = check_choice("state", state, ReleaseState)
        with self._file.transaction() as transaction:
            return ledger_releases.sequences_in_state(transaction, set_name, wanted)

    # Budgets

    def charged(self) -> Charged:
        with self._file.transaction() as transaction:
            return Charged(ledger_releases.highest_sequences(transaction), ledger_budgets.read_spent(transaction))

    def get_account(self, name: str) -> Account:
        with self._file.transaction() as transaction:
            return ledger_budgets.read_account(transaction, name)

    def raise_budget(self, account: str, nano_epsilon: int, delta: Fraction, reason: str, at_us: int) -> Account:
        _check_reason(reason)
        with self._file.transaction() as transaction:
            return ledger_budgets.raise_account(transaction, account, nano_epsilon, delta, reason, at_us)


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason) <= MAX_REASON:
        raise InvalidInput("reason", f"1 to {MAX_REASON} characters", len(reason))
