"""The files of a state folder, as a failing disk may leave them: refused by name, or as they were written.

The first byte says which. What a checksum guards is also tried with that checksum made right, so that the parser behind it
meets what only a later version, or a hand, could have written.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from harness.shapes import parameters
from veilset.core.params import Adjacency, HashParameters, Normalization, PrivacyParameters
from veilset.core.privacy.budget import charge_delta
from veilset.errors import InvalidInput, StateCorrupted
from veilset_server.principals import make_principal
from veilset_server.records import Mark, SetDescription
from veilset_server.rpc.credentials import parse_identities
from veilset_server.state.anchor import AnchorFile
from veilset_server.state.artefacts import ArtefactFiles
from veilset_server.state.keys import load_or_make_keys, read_keys
from veilset_server.state.ledger.schema import seal
from veilset_server.state.ledger.sets import set_from_row
from veilset_server.state.ledger.sqlite_ledger import SqliteLedger
from veilset_server.state.ledger.uploads import upload_from_row
from veilset_server.state.run_file import FoldedRun, Slice, fold, write_run
from veilset_server.state.spool import Spool, read_spool
from veilset_server.state.state_folder import FORMAT_NAME, FolderFormat, read_format, write_format
from veilset_server.state.tokens import TokenRecord, format_tokens, parse_tokens
from veilset_server.usecases.abandoned_uploads import format_ages, parse_ages

MODULES = ("veilset_server.state.runs",)
LEDGER_ID = "0123456789abcdef0123456789abcdef"
HASH = bytes(range(32))
SHM = Path("/dev/shm")  # noqa: S108 - files in memory, where there is such a place

_folder = Path(tempfile.mkdtemp(prefix="veilset-fuzz-", dir=SHM if SHM.is_dir() else None))
_seeds = _folder / "seeds"
atexit.register(shutil.rmtree, _folder, ignore_errors=True)


class _Clock:
    @staticmethod
    def now_us() -> int:
        """A time."""
        return 1_700_000_000_000_000


def seeds() -> Iterator[bytes]:
    """Each kind of file as the service writes it."""
    _seeds.mkdir(exist_ok=True)
    path = _seeds / "seed"
    for batches in (0, 1, 3):
        path.unlink(missing_ok=True)
        with closing(Spool(path, 7, 3)) as spool:
            for batch in range(1, batches + 1):
                spool.append(batch, np.arange(4, dtype=np.uint64))
        yield b"\0" + path.read_bytes()
    digests = np.arange(40, dtype=np.uint64)
    write_run(path, 7, 3, iter([Slice(digests, digests[:5] + np.uint64(50), 1 << 40)]))
    yield b"\1" + path.read_bytes()
    ArtefactFiles(_seeds).write(7, 3, iter([b"noise"]), 5)
    yield b"\2" + (_seeds / "7-3.noisy").read_bytes()
    (_seeds / "anchor").unlink(missing_ok=True)
    anchor = AnchorFile(_seeds / "anchor")
    anchor.write("guests", "guests", Mark(3, 10**9, charge_delta(1e-9)))
    yield b"\3" + (_seeds / "anchor").read_bytes()
    content = json.loads((_seeds / "anchor").read_text())
    content.pop("sha256")
    yield b"\4" + json.dumps(content).encode()
    yield b"\5" + format_ages({(7, 3): (3.5, (100, 10**18)), (8, 1): (0.0, None)})
    write_format(_seeds, FolderFormat(2, LEDGER_ID, ready=True))
    yield b"\6" + (_seeds / FORMAT_NAME).read_bytes()
    yield b"\7" + json.dumps([7, "guests", "guests", _description(), 0]).encode()
    yield b"\x08" + json.dumps([7, "upload", 1, 3, "add", "sealed", 10, "", 1_700_000_000_000_000]).encode()
    keys = _seeds / "signing.pem"
    keys.unlink(missing_ok=True)
    load_or_make_keys(_seeds, _Clock.now_us(), may_make=True)
    yield b"\x09" + keys.read_bytes()
    ledger = _seeds / "ledger.db"
    ledger.unlink(missing_ok=True)
    SqliteLedger.create(ledger, LEDGER_ID, _Clock()).close()
    yield b"\x0a" + ledger.read_bytes()
    principal = make_principal("crm", ["producer", "reader"], ["customers-*", "b"])
    tokens = format_tokens(
        [TokenRecord("0123456789ab", principal, HASH, 5, 9), TokenRecord("b", principal, HASH, 5, None, 7)]
    )
    yield b"\x0b" + tokens
    fields = json.loads(tokens)
    fields.pop("sha256")
    yield b"\x0c" + json.dumps(fields).encode()
    yield b'\x0d[[identity]]\ncertificate = "CN:crm"\nname = "crm"\nroles = ["producer"]\nsets = ["a*"]\n'


def _description() -> str:
    """A set's row, as the ledger holds it."""
    with closing(SqliteLedger.create(_folder / "rows.db", LEDGER_ID, _Clock())) as ledger:
        privacy = PrivacyParameters(1.0, 1e-9, Adjacency.ADD_REMOVE)
        hashing, encoding = HashParameters(), parameters(1 << 16, 3, privacy)
        description = SetDescription(
            "guests", hashing, encoding, privacy, Normalization.NONE, "guests", 0, 1000, shared_seed=False
        )
        ledger.create_set(description, 10**9, charge_delta(1e-6), 10)
        with ledger._file.transaction() as transaction:
            (text,) = transaction.execute("SELECT description FROM sets").fetchone()
    (_folder / "rows.db").unlink()
    return str(text)


def one_input(data: bytes) -> None:
    """Read it as what its first byte says."""
    if data:
        READERS[data[0] % len(READERS)](data[1:])


def _file(name: str, content: bytes) -> Path:
    path = _folder / name
    path.write_bytes(content)
    return path


def _spool(content: bytes) -> None:
    try:
        path = _file("spool", content)
        with closing(Spool(path, 7, 3)) as spool:
            held = read_spool(path, spool.elements, spool.checksum())
            assert sum(len(batch) for batch in held) == spool.elements
            spool.append(spool.sequence + 1, np.zeros(1, np.uint64))
    except StateCorrupted:
        pass


def _run(content: bytes) -> None:
    """With the checksum that the ledger would hold for this end of the file."""
    blocks = int.from_bytes(content[-8:], "little")
    end = content[max(0, len(content) - 32 - 24 * blocks) :]
    try:
        with closing(FoldedRun(_file("run", content), xxhash.xxh3_128_digest(end), 45)) as run:
            for found in fold([run], keep_removed=True):
                assert len(found.added) + len(found.removed) <= len(content) // 8
    except StateCorrupted:
        pass


def _artefact(content: bytes) -> None:
    _file("7-3.noisy", content)
    try:
        read = b"".join(ArtefactFiles(_folder).read(7, 3, 1000))
    except StateCorrupted:
        return
    assert content.endswith(read)


def _anchor(content: bytes) -> None:
    try:
        mark = AnchorFile(_file("anchor", content)).read("guests", "guests")
    except StateCorrupted:
        return
    assert mark.sequence >= 0 <= mark.nano_epsilon


def _sealed(content: bytes, read: Callable[[bytes], None]) -> None:
    """Read a JSON object with its checksum made right."""
    try:
        fields = json.loads(content)
        text = json.dumps(fields, sort_keys=True)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict):
        read(json.dumps(fields | {"sha256": hashlib.sha256(text.encode()).hexdigest()}).encode())


def _sealed_anchor(content: bytes) -> None:
    _sealed(content, lambda line: _anchor(line + b"\n"))


def _idle(content: bytes) -> None:
    try:
        ages = parse_ages(content)
    except ValueError:
        return
    assert parse_ages(format_ages(ages)) == ages


def _format(content: bytes) -> None:
    _file(FORMAT_NAME, content)
    with suppress(StateCorrupted):
        read_format(_folder)


def _row(content: bytes, types: list[type]) -> list[Any]:
    """Values as a table of those types can hold them; empty if they are others, or no text that SQLite holds."""
    try:
        values = json.loads(content)
        str(values).encode()
    except (ValueError, RecursionError):
        return []
    fits = isinstance(values, list) and [type(value) for value in values] == types
    return list(values) if fits else []


def _set_row(content: bytes) -> None:
    values = _row(content, [int, str, str, str, int])
    if values:
        with suppress(StateCorrupted):
            set_from_row((*values, seal(*values)))


def _upload_row(content: bytes) -> None:
    values = _row(content, [int, str, int, int, str, str, int, str, int])
    if values:
        with suppress(StateCorrupted):
            values[7] = values[7].encode()
            upload_from_row((*values, seal(*values)))


def _keys(content: bytes) -> None:
    _file("signing.pem", content)
    with suppress(StateCorrupted):
        read_keys(_folder)


def _ledger(content: bytes) -> None:
    path = _file("fuzzed.db", content)
    with suppress(StateCorrupted):
        SqliteLedger(path, LEDGER_ID, _Clock()).close()
    for leftover in _folder.glob("fuzzed.db-*"):
        leftover.unlink()


def _tokens(content: bytes) -> None:
    try:
        records = parse_tokens(content)
    except StateCorrupted:
        return
    assert parse_tokens(format_tokens(records)) == records


def _sealed_tokens(content: bytes) -> None:
    _sealed(content, _tokens)


def _identities(content: bytes) -> None:
    try:
        found = parse_identities(content)
    except InvalidInput:
        return
    for principal in found.values():
        assert principal.roles
        assert principal.sets


READERS: tuple[Callable[[bytes], None], ...] = (
    _spool,
    _run,
    _artefact,
    _anchor,
    _sealed_anchor,
    _idle,
    _format,
    _set_row,
    _upload_row,
    _keys,
    _ledger,
    _tokens,
    _sealed_tokens,
    _identities,
)
