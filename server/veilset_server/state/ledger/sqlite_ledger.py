"""The ledger on SQLite. Each method is one transaction; what it does is in the modules of its tables."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import xxhash

from veilset.core.params import DIGEST_BYTES, Operation
from veilset.errors import FailedPrecondition, StateCorrupted, StorageFull, VeilsetError, must_be
from veilset_server.records import (
    Account,
    Charge,
    Charged,
    Generation,
    SetDescription,
    SmallBatch,
    SmallUpload,
    StoredRelease,
    StoredRun,
    StoredSet,
    Upload,
    UploadPart,
    UploadQuota,
    UploadState,
)
from veilset_server.state.durability import FILE_MODE, SpaceReserve, sync_folder
from veilset_server.state.ledger import budgets as ledger_budgets
from veilset_server.state.ledger import contents as ledger_contents
from veilset_server.state.ledger import releases as ledger_releases
from veilset_server.state.ledger import sets as ledger_sets
from veilset_server.state.ledger import uploads as ledger_uploads
from veilset_server.state.ledger.file import LedgerFile, damage
from veilset_server.state.ledger.schema import check_schema, make_schema
from veilset_server.state.ledger.verification import verify_ledger

if TYPE_CHECKING:
    from veilset_server.ports import Clock

MAX_REASON = 500

P = ParamSpec("P")
R = TypeVar("R")


def _in_transaction(
    function: Callable[Concatenate[sqlite3.Connection, P], R],
) -> Callable[Concatenate[SqliteLedger, P], R]:
    """The method of the ledger that is this function, in a transaction of its own."""

    @wraps(function)
    def method(ledger: SqliteLedger, /, *arguments: P.args, **named: P.kwargs) -> R:
        with ledger.transaction() as transaction:
            return function(transaction, *arguments, **named)

    return method


class SqliteLedger:
    """The durable record of sets, uploads, runs, releases and budgets.

    Every method is one transaction: one that returns has committed to disk, one that raises has changed nothing. Thread-safe;
    several processes may have one file open, each through its own instance.
    """

    def __init__(self, path: Path, ledger_id: str, clock: Clock, reserve: SpaceReserve | None = None) -> None:
        """Open the ledger at ``path`` and verify all of it.

        ledger_id: that of the state folder. reserve: space for `delete_set` on a full disk. Raises StateCorrupted naming the file
        if it is missing, empty, damaged, of a later version or another folder's; nothing is ever repaired or made anew.
        """
        if not path.is_file() or path.stat().st_size == 0:  # stat, not open: see ledger.file
            raise StateCorrupted(f"{path}: missing or empty, though the state folder is in use", file=path.name)
        self._clock = clock
        self._reserve = reserve
        self._file = LedgerFile(path)
        self.transaction = self._file.transaction
        try:
            with self._file.transaction() as transaction, damage(str(path)):
                check_schema(transaction, path)
                verify_ledger(transaction, path, ledger_id)
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def create(cls, path: Path, ledger_id: str, clock: Clock) -> SqliteLedger:
        """Make an empty ledger where there is none, and open it. Raises FileExistsError, StorageFull."""
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))  # SQLite's journal takes on the mode
        file = LedgerFile(path)
        try:
            with file.transaction() as transaction:
                make_schema(transaction)
                transaction.execute("INSERT INTO ledger (ledger_id) VALUES (?)", (ledger_id,))
        finally:
            file.close()
        sync_folder(path.parent)
        return cls(path, ledger_id, clock)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bind_anchor(self, found: str) -> str:
        """The id of this ledger's anchor; a ledger that has none yet keeps ``found`` as its anchor's."""
        with self.transaction() as transaction:
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
        """Raises InvalidInput, AlreadyExists, LimitExceeded (so many are there already, in all or of the same owner).

        The budget is used only if the account is new.
        """
        with self.transaction() as transaction:
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
            ledger_contents.make_contents(transaction, stored.set_id, description.name)
            return stored

    get_set = _in_transaction(ledger_sets.read_set)
    get_set_by_id = _in_transaction(ledger_sets.read_set_by_id)
    highest_set_id = _in_transaction(ledger_sets.highest_set_id)
    list_sets = _in_transaction(ledger_sets.read_sets)

    def delete_set(self, name: str) -> StoredSet:
        """Forget the set and its uploads; its releases, charges and highest sequence stay. Raises NotFound.

        Its pending releases become lost and its published ones expired, so that nothing delivers or restores them. On a full
        disk it uses the space that is kept aside for it.
        """
        try:
            return self._delete_set(name)
        except StorageFull:
            if self._reserve is None:
                raise
            with self._reserve.given():
                return self._delete_set(name)

    def _delete_set(self, name: str) -> StoredSet:
        with self.transaction() as transaction:
            stored = ledger_sets.read_set(transaction, name)
            ledger_uploads.delete_uploads(transaction, stored.set_id)
            ledger_contents.clear(transaction, stored.set_id)
            ledger_contents.end_generation(transaction, stored.set_id)
            ledger_releases.retire_releases(transaction, stored.set_id)
            ledger_sets.mark_deleted(transaction, stored)
            return stored

    # Uploads and what sets hold

    def open_upload(
        self, set_id: int, upload_id: str, part: int, operation: Operation, quota: UploadQuota | None = None
    ) -> Upload:
        """The upload of that id, or its part, made if new.

        Raises NotFound (the set is gone), FailedPrecondition (the id was opened with another operation), LimitExceeded (a new
        one would pass the quota).
        """
        with self.transaction() as transaction:
            now_us = self._clock.now_us()
            return ledger_uploads.open_upload(transaction, set_id, upload_id, part, operation, now_us, quota)

    seal_part = _in_transaction(ledger_uploads.seal_part)

    def finish_upload(
        self, upload: Upload, count: int, checksum: bytes, parts: Sequence[UploadPart] = ()
    ) -> int | None:
        """Make the upload, or these parts of it, a run of its set. Returns the number of the set's removals and replacements if
        this was one of them. Raises NotFound (it was dropped), UploadMismatch (the parts are not those that were sealed)."""
        with self.transaction() as transaction:
            now_us = self._clock.now_us()
            return ledger_uploads.finish_upload(transaction, upload, count, checksum, parts, now_us)

    def add_batches(self, batches: Sequence[SmallBatch]) -> list[tuple[int, int | None] | VeilsetError]:
        """Finish small uploads, each by itself, in one transaction.

        Gives for each the set's id and what `finish_upload` would return, or the error that refused it. An id that is
        finished already is answered and not done again.
        """
        with self.transaction() as transaction:
            return [self._add_batch(transaction, batch) for batch in batches]

    def _add_batch(self, transaction: sqlite3.Connection, batch: SmallBatch) -> tuple[int, int | None] | VeilsetError:
        try:
            stored = ledger_sets.read_set(transaction, batch.set_name)
            set_id, description = stored.set_id, stored.description
            if batch.made_with not in (None, (description.hashing, description.normalization)):
                raise FailedPrecondition(
                    "hashing: the digests were made otherwise than the set's are; hash as GetSet says", field="hashing"
                )
            upload_id, operation = batch.upload_id, batch.operation
            count, checksum = len(batch.digests) // DIGEST_BYTES, xxhash.xxh3_128_digest(batch.digests)
            known = ledger_uploads.find_finished(transaction, set_id, upload_id, operation)
            if known is not None:
                ledger_uploads.check_repeated(known, count, checksum)
                operations = ledger_contents.operations_of(transaction, batch.set_name)
                return set_id, None if operation is Operation.ADD else operations
            ledger_uploads.check_not_open(transaction, set_id, upload_id)
        except VeilsetError as error:
            return error
        upload = Upload(set_id, upload_id, 0, 0, operation, UploadState.FINISHED, count)
        ledger_uploads.remember_finished(transaction, upload, count, checksum, self._clock.now_us())
        return set_id, ledger_contents.add_small(transaction, set_id, operation, batch.digests, self._clock.now_us())

    all_open_uploads = _in_transaction(ledger_uploads.open_uploads)
    drop_upload = _in_transaction(ledger_uploads.delete_open_upload)

    def forget_checksums(self, set_id: int) -> None:
        """Forget the checksums of the set's finished uploads; their ids are still known."""
        after: str | None = ""
        while after is not None:  # a page at a time, so that uploads do not wait
            with self.transaction() as transaction:
                after = ledger_uploads.forget_checksums(transaction, set_id, after)

    forget_finished = _in_transaction(ledger_uploads.forget_finished)

    def items(self, set_id: int) -> list[StoredRun | SmallUpload]:
        """What the set holds as of now, in order of finish; without what has expired. Raises NotFound."""
        with self.transaction() as transaction:
            first = self._first_day(transaction, set_id)
            return [item for item in ledger_contents.read_items(transaction, set_id) if item.day >= first]

    def expires(self, set_id: int) -> bool:
        """Whether elements leave the set by themselves. Raises NotFound."""
        with self.transaction() as transaction:
            return bool(ledger_sets.read_set_by_id(transaction, set_id).description.expire_days)

    def drop_expired(self, set_id: int) -> None:
        """Remove what has expired. Raises NotFound."""
        with self.transaction() as transaction:
            if first := self._first_day(transaction, set_id):
                ledger_contents.drop_before(transaction, set_id, first)

    def _first_day(self, transaction: sqlite3.Connection, set_id: int) -> int:
        """The first UTC day whose elements have not expired; 0 where none do. An element stays for at least so many days."""
        days = ledger_sets.read_set_by_id(transaction, set_id).description.expire_days
        return max(0, self._clock.now_us() // ledger_contents.DAY_US - days) if days else 0

    count_items = _in_transaction(ledger_contents.count_items)
    replace_items = _in_transaction(ledger_contents.replace_items)
    run_files = _in_transaction(ledger_contents.run_files)
    new_run_file = _in_transaction(ledger_contents.new_run_file)
    leftovers = _in_transaction(ledger_contents.read_leftovers)
    forget_leftovers = _in_transaction(ledger_contents.forget_leftovers)
    operations = _in_transaction(ledger_contents.operations_of)

    # Releases and their charges

    next_sequence = _in_transaction(ledger_releases.next_sequence)
    generation = _in_transaction(ledger_contents.read_generation)
    parts = _in_transaction(ledger_releases.list_parts)

    def charge_release(
        self,
        release: StoredRelease,
        account: str,
        charge: Charge,
        expected_spent: int,
        generation: Generation | None = None,
    ) -> None:
        """Commit the charge, the pending release and what its generation has released by now together.

        generation: None where no increment may follow; the one before ends then.
        expected_spent: the account's spent nano-ε that the release's header was computed from.
        Raises NotFound (the set was deleted), BudgetExceeded, AlreadyExists (request id or sequence taken), or
        FailedPrecondition if another charge came between (then compute the header anew; the noise need not change as
        nothing left the process).
        """
        if charge.nano_epsilon == 0 and (generation is None or not generation.made):
            raise must_be("nano_epsilon", "at least 1 for all but an increment", 0)
        with self.transaction() as transaction:
            now_us = self._clock.now_us()
            ledger_releases.charge_release(transaction, release, account, charge, expected_spent, now_us)
            if generation is None:
                ledger_contents.end_generation(transaction, release.set_id)
            else:
                ledger_contents.put_generation(transaction, release.set_id, generation)

    def charge_count(self, set_id: int, request_id: str, charge: Charge, value: int) -> int:
        """Commit a noisy count with its charge; returns the sequence that it takes.

        Raises NotFound (the set was deleted), BudgetExceeded, AlreadyExists (the request bought one already).
        """
        with self.transaction() as transaction:
            return ledger_releases.charge_count(transaction, set_id, request_id, charge, value, self._clock.now_us())

    find_count = _in_transaction(ledger_releases.find_count)

    def charge_lost_releases(
        self, set_name: str, last_sequence: int, account: str, charge: Charge, reason: str, operations: int = 0
    ) -> Account:
        """Charge what releases cost that this ledger does not know, since an older copy took its place.

        last_sequence: the highest sequence that was seen; later releases continue above it. charge: all that the account
        lost. reason: 1 to 500 characters, for the audit. Raises InvalidInput, NotFound, AlreadyExists (that sequence is
        known), BudgetExceeded (raise the budget first). operations: how many removals and replacements were seen; later
        ones count on above it.
        """
        _check_reason(reason)
        with self.transaction() as transaction:
            now_us = self._clock.now_us()
            set_id = ledger_sets.read_set(transaction, set_name).set_id
            ledger_contents.raise_operations(transaction, set_id, operations)
            ledger_contents.end_generation(transaction, set_id)  # what its lost releases held is not known here
            return ledger_releases.charge_lost(transaction, set_name, last_sequence, account, charge, reason, now_us)

    mark_release = _in_transaction(ledger_releases.mark_release)
    get_release = _in_transaction(ledger_releases.get_release)
    find_release = _in_transaction(ledger_releases.find_release)
    list_releases = _in_transaction(ledger_releases.list_releases)
    releases_in_state = _in_transaction(ledger_releases.releases_in_state)
    sequences_in_state = _in_transaction(ledger_releases.sequences_in_state)

    # Budgets

    def charged(self) -> Charged:
        """The marks of every account and of every set's name that was ever charged, whether there still is such a set."""
        with self.transaction() as transaction:
            return Charged(
                ledger_releases.highest_sequences(transaction),
                ledger_budgets.read_spent(transaction),
                ledger_contents.highest_operations(transaction),
            )

    get_account = _in_transaction(ledger_budgets.read_account)
    budget_changes = _in_transaction(ledger_budgets.read_changes)

    def raise_budget(self, account: str, nano_epsilon: int, delta: Fraction, reason: str, at_us: int) -> Account:
        """Set new totals, at least the present ones (else InvalidInput), and leave an audit row."""
        _check_reason(reason)
        with self.transaction() as transaction:
            return ledger_budgets.raise_account(transaction, account, nano_epsilon, delta, reason, at_us)


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason) <= MAX_REASON:
        raise must_be("reason", f"1 to {MAX_REASON} characters", len(reason))
