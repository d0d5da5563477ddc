"""Build hook: generate the gRPC stubs in client/veilset/v1 from protos/veilset/v1.

The proto path is the Python import path (protos/veilset/v1/x.proto becomes veilset.v1.x_pb2), so protoc's
absolute imports are right as they come and nothing generated is ever edited.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OUTPUT = "client"


class StubsBuildHook(BuildHookInterface):
    """Run protoc before every wheel, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch's signature
        root = Path(self.root)
        if self.target_name != "wheel":
            return  # the sdist carries the protos; the wheel built from it generates
        generate(root)
        build_data["artifacts"].append(f"/{OUTPUT}/veilset/v1/*")
        build_data["pure_python"] = True


def generate(root: Path) -> None:
    """Write ``*_pb2.py``, ``*_pb2_grpc.py`` and their ``.pyi`` for every proto. Raises RuntimeError if protoc fails."""
    import grpc_tools
    from grpc_tools import protoc

    protos = root / "protos"
    sources = sorted(str(path) for path in (protos / "veilset" / "v1").glob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    output = root / OUTPUT
    package = output / "veilset" / "v1"
    package.mkdir(parents=True, exist_ok=True)
    for stale in package.glob("*_pb2*"):
        stale.unlink()
    status = protoc.main(
        [
            "protoc",
            f"-I{protos}",
            f"-I{well_known}",
            f"--plugin=protoc-gen-mypy={_plugin('protoc-gen-mypy')}",
            f"--plugin=protoc-gen-mypy_grpc={_plugin('protoc-gen-mypy_grpc')}",
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--mypy_out={output}",
            f"--mypy_grpc_out={output}",
            *sources,
        ]
    )
    if status != 0:
        raise RuntimeError(f"protoc failed with status {status}")
    (package / "__init__.py").write_text('"""Generated from protos/veilset/v1 by hatch_build.py; do not edit."""\n')


def _plugin(name: str) -> str:
    """Path of a protoc plugin: build front ends put their isolated environment's scripts on PATH."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise RuntimeError(f"{name} not found; it comes with mypy-protobuf")
    return found
