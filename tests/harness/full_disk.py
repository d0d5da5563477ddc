"""A small disk of one's own, to fill up."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """A tmpfs of ``size`` bytes at ``path``; skips the test where mounting is not allowed."""
    path.mkdir()
    mounting = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if not mounting or mounting.returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill_up(disk: Path) -> Path:
    """Use up the disk to the last byte; removing the returned file gives the space back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return ballast
