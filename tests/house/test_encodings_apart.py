"""What is one encoding's own stays in its folder: the rest knows the interface."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from veilset.core.encodings import ENCODINGS

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for room in ("client/veilset", "server/veilset_server") for path in (ROOT / room).rglob("*.py"))
REGISTRY = ROOT / "client/veilset/core/encodings/__init__.py"
CALIBRATED = {"epsilon0", "flip_probability", "flip_threshold", "changed_bits", "drop_probability", "drop_threshold"}
"""What follows from the dimensions; as good as a dimension in telling one encoding from another."""


AMBIGUOUS = {"columns"}
"""Of a table, too."""


def is_own(path: Path, family: str) -> bool:
    """Whether the module is the family's: its folder, or its compiled kernels."""
    return f"core/encodings/{family}/" in path.as_posix() or path.as_posix().endswith(f"core/kernels/{family}.py")


def names(path: Path) -> set[str]:
    """Attributes, keywords, parameters, variables and texts of one word."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.arg(arg=name) | ast.Name(id=name):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
    return found


@pytest.mark.parametrize("family", ENCODINGS)
def test_only_an_encodings_own_modules_name_its_parameters(family: str) -> None:
    """Neither dimensions nor noise: bits and hashes of a filter, columns and planes of a system."""
    own = ({field.name for field in fields(ENCODINGS[family])} | CALIBRATED) - AMBIGUOUS  # type: ignore[arg-type]
    for path in SOURCES:
        if not {"v1", "kernels"} & set(path.parts) and not any(is_own(path, known) for known in ENCODINGS):
            assert not (told := names(path) & own), (path, told)


@pytest.mark.parametrize("family", ENCODINGS)
def test_only_the_registry_imports_an_encoding(family: str) -> None:
    """Everybody else comes to it by its name."""
    for path in SOURCES:
        if path != REGISTRY and not is_own(path, family):
            assert f"core.encodings.{family}" not in "".join(
                ast.unparse(node)
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.Import | ast.ImportFrom)
            ), path
