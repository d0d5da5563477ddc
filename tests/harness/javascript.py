"""The JavaScript reader (client/js) with its dependencies, in a folder of the caller's."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "client" / "js"


def reader_in(folder: Path) -> Path:
    """Copy the reader into a folder, so that nothing is written into the sources; returns the folder. The dependencies are
    installed beside the virtual environment when package.json changes. Raises FileNotFoundError where Node or npm is missing."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise FileNotFoundError("node and npm are not installed")
    cache, package = Path(sys.prefix) / "js", (SOURCES / "package.json").read_text()
    stamp = cache / "installed.json"
    cache.mkdir(exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests run beside this one
        if not stamp.is_file() or stamp.read_text() != package:
            (cache / "package.json").write_text(package)
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            stamp.write_text(package)
    for source in SOURCES.glob("*js*"):
        shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(cache / "node_modules")
    return folder
