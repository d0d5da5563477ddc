"""The wheel, built from a copy of the sources as a user's pip would build it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("client", "server", "protos", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built in a folder of its own, as the build makes the stubs anew where it runs; there are none in the copy."""
    copy, output = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    shutil.rmtree(copy / "client/veilset/v1")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--quiet", "--wheel-dir", str(output)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = output.iterdir()
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as opened:
        yield opened


def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(wheel.read(name))


def test_it_exposes_two_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """No tests, no protos, no stray ``v1`` or ``client``."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"veilset", "veilset_server"}
    assert len(tops) == 3


def test_it_holds_stubs_and_type_markers(wheel: zipfile.ZipFile) -> None:
    """Every proto's messages and services, each with its types."""
    names = set(wheel.namelist())
    for proto in (ROOT / "protos/veilset/v1").glob("*.proto"):
        endings = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
        assert {f"veilset/v1/{proto.stem}{ending}" for ending in endings} <= names
    assert {"veilset/py.typed", "veilset_server/py.typed", "veilset/v1/__init__.py"} <= names


def test_it_holds_every_module(wheel: zipfile.ZipFile) -> None:
    """All that is in the two folders."""
    for folder in ("client", "server"):
        modules = {str(path.relative_to(ROOT / folder)) for path in (ROOT / folder).rglob("*.py")}
        assert modules <= set(wheel.namelist())


def test_it_holds_the_page_of_a_release(wheel: zipfile.ZipFile) -> None:
    """Template and style lie beside the module that fills them, and all that `veilset page` copies."""
    report = ROOT / "client" / "veilset" / "_report"
    needed = [report / "page.html", report / "page.css", *(report / "site").iterdir()]
    assert {str(path.relative_to(ROOT / "client")) for path in needed} <= set(wheel.namelist())
    assert len(needed) == 6


def test_it_says_what_it_needs_and_offers(wheel: zipfile.ZipFile) -> None:
    """Extras, licence, Python, entry points."""
    told = metadata(wheel)
    assert told["Name"] == "veilset"
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    assert told.get_all("Provides-Extra") == ["embedded", "fast", "parquet", "plot", "server", "spark", "tracing"]
    minors = [line.rpartition(".")[2] for line in told.get_all("Classifier", []) if ":: Python :: 3." in line]
    assert minors == ["11", "12", "13", "14"]
    entries = configparser.ConfigParser()
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    entries.read_string(wheel.read(name).decode())
    assert entries["console_scripts"]["veilset"] == "veilset.cli.main:main"
    assert entries["veilset.commands"]["serve"] == "veilset_server.cli.serve:serve"


def test_it_runs_from_the_wheel_alone(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked, ahead of the editable install: the stubs in it import, and the commands are there."""
    wheel.extractall(tmp_path)
    script = (
        "import veilset, veilset_server.app, veilset.v1.membership_pb2_grpc as stubs; "
        "print(veilset.__file__, veilset_server.__file__, stubs.__file__)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(place.startswith(str(tmp_path)) for place in done.stdout.split())
