"""Notebooks in a real Jupyter kernel, as a user's browser would run them."""

from __future__ import annotations

import warnings
from typing import Any

import nbformat
from nbclient import NotebookClient


def run_notebook(text: str) -> list[dict[str, Any]]:
    """Execute a notebook; returns what its cells displayed, as MIME type → data. Raises CellExecutionError."""
    made = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the kernel's own libraries
        NotebookClient(made, timeout=200, kernel_name="python3").execute()
    outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    return [dict(output.data) for output in outputs if "data" in output]
