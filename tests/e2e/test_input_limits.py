"""No file that is small on disk fills the memory: what is read has limits, named where they are passed."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from harness.peak_memory import own_peak_bytes, peak_of_failure
from harness.releases import release_bytes
from harness.shapes import FilterParameters
from veilset._input import unpacking

MIB = 1 << 20
LIMIT = 256 * MIB
HUGE = 400 * MIB
"""As telling as a GiB: well above the limit."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("release") / "release"
    path.write_bytes(release_bytes(["a"], FilterParameters(8192, 2, seed=5), 30.0))
    return path


def _gzip_line(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"email,x\nalice,")
        for _ in range(HUGE // MIB):
            file.write(b"x" * MIB)


def _quoted(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'email,x\nalice,"')
        for _ in range(HUGE // MIB // 4):
            file.write(b"x\n\n," * MIB)


def _xz_dictionary(path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    path.write_bytes(lzma.compress(b"alice\n", filters=filters))


def _zstd_window(path: Path) -> None:
    zstd = unpacking.zstd  # type: ignore[attr-defined] # the standard library's, from Python 3.14 on
    options = {zstd.CompressionParameter.window_log: 28, zstd.CompressionParameter.enable_long_distance_matching: 1}
    compressor = zstd.ZstdCompressor(options=options)
    with path.open("wb") as file:
        for _ in range(160):
            file.write(compressor.compress(b"alice\n" * (MIB // 6)))
        file.write(compressor.flush())


def _arrow(path: Path) -> None:
    table = pa.table({"email": pa.array(["x" * HUGE], pa.large_string())})
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


def _arrow_dictionary(path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 500_000, pa.int8()), pa.array(["x" * 900_000]))
    table = pa.table({"email": column})
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


def _parquet_dictionary(path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array(["x" * 900_000]))
    pa.parquet.write_table(pa.table({"email": column}), path, compression="zstd", store_schema=False)


def _parquet_page(path: Path) -> None:
    table = pa.table({"email": pa.array(["x" * HUGE, *["y"] * 300_000], pa.large_string())})
    pa.parquet.write_table(table, path, compression="zstd", use_dictionary=False)


def _parquet_delta(path: Path) -> None:
    table = pa.table({"email": pa.array(["x" * 100_000] * 10_000)})
    encoding = {"email": "DELTA_BYTE_ARRAY"}
    pa.parquet.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encoding)


def _views(path: Path) -> None:
    values = pl.DataFrame({"email": pl.repeat("x" * 200_000, 50_000, eager=True)})
    values.write_ipc(path)


BOMBS = {
    "a line in gzip": (_gzip_line, "csv", "1 MiB"),
    "a quoted cell in gzip": (_quoted, "csv", "1 MiB"),
    "a dictionary of xz": (_xz_dictionary, "txt", "128 MiB"),
    "a window of zstd": (_zstd_window, "txt", "128 MiB"),
    "an Arrow buffer": (_arrow, "arrow", "128 MiB"),
    "an Arrow dictionary": (_arrow_dictionary, "arrow", "4096 bytes"),
    "a Parquet dictionary": (_parquet_dictionary, "parquet", "4096 bytes"),
    "a Parquet page": (_parquet_page, "parquet", "MiB"),
    "a Parquet delta page": (_parquet_delta, "parquet", "4096 bytes"),
    "Arrow views": (_views, "arrow", "4096 bytes"),
}

OFTEN = {"a line in gzip", "a window of zstd", "an Arrow dictionary", "a Parquet page"}
"""One for each reader; `make security` tries all."""


@pytest.mark.parametrize(
    "bomb", [bomb if bomb in OFTEN else pytest.param(bomb, marks=pytest.mark.security) for bomb in BOMBS]
)
def test_small_files_take_little_memory(bomb: str, tmp_path: Path, release: Path) -> None:
    """They are refused by the limit that they pass, or their elements are."""
    make, suffix, words = BOMBS[bomb]
    path = tmp_path / f"list.{suffix}"
    make(path)
    column = () if suffix == "txt" else ("--column", "email")
    peak, said = peak_of_failure("overlap", "members", str(path), *column, "--release", str(release))
    assert words in said
    assert peak < LIMIT, f"{peak >> 20} MiB"


ENDLESS = {
    "--token-file": ("sets", "--token-file", "/dev/zero"),
    "--redis-file": ("query", "members", "a", "--redis-file", "/dev/zero"),
    "--key-file": ("query", "members", "a", "--redis", "redis://127.0.0.1:1", "--key-file", "/dev/zero"),
    "--ca": ("sets", "--server", "tls://localhost:1", "--ca", "/dev/zero"),
    "--spec": ("query", "members", "a", "--redis", "redis://127.0.0.1:1", "--spec", "/dev/zero"),
    "--release": ("query", "members", "a", "--release", "/dev/zero"),
    "a list": ("overlap", "members", "/dev/zero", "--release", "{release}"),
}


@pytest.mark.parametrize("option", ENDLESS)
def test_endless_files_are_refused(option: str, release: Path) -> None:
    """Whatever they were named for."""
    arguments = [argument.format(release=release) for argument in ENDLESS[option]]
    peak, said = peak_of_failure(*arguments)
    assert said.startswith("veilset: ")
    assert said.count("\n") == 1
    assert peak < LIMIT, f"{peak >> 20} MiB"
    assert own_peak_bytes() > 0
