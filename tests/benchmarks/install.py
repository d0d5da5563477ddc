"""Install the peers of the dependency group ``bench``, one by one: one that cannot be had must not keep the others away.

Run as ``python -m benchmarks.install`` in the environment that the benchmarks are run in, at the root of the tree.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

_ALONE = ("openmined-psi",)
"""They pin a release of protobuf that is older than ours, and run with ours all the same."""


def main() -> None:
    """Never fails; what is missing shows in the table."""
    group = tomllib.loads(Path("pyproject.toml").read_text())["dependency-groups"]["bench"]
    for requirement in group:
        alone = ["--no-deps"] if requirement.startswith(_ALONE) else []
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            *alone,
            requirement,
        ]
        if subprocess.run(command, check=False).returncode:
            print(f"not installed: {requirement}; its rows will say so", file=sys.stderr)


if __name__ == "__main__":
    main()
