"""Runs a tutorial: the Python blocks of its page, in order, against a service started for it.

    python docs/tutorials/run.py anonymous_login partner_overlap exclusion_list changing_list

Each writes its figure to docs/tutorials/figures (or to the folder of --figures). The notebook beside each page is made from it
too, without outputs; --write does only that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = ("anonymous_login", "partner_overlap", "exclusion_list", "changing_list")


def code(page: str) -> str:
    """The page's Python, padded with empty lines so that an error tells the line of the page."""
    text = (HERE / f"{page}.md").read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        first = text.count("\n", 0, block.start(1))
        for offset, line in enumerate(block[1].splitlines()):
            lines[first + offset] = line
    return "\n".join(lines)


def notebook_text(page: str) -> str:
    """The page as a Jupyter notebook (nbformat 4.5) without outputs: a cell for each block of Python and each text between."""
    text = (HERE / f"{page}.md").read_text(encoding="utf-8")
    cells: list[dict[str, Any]] = []
    for place, piece in enumerate(re.split(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)):
        source = piece.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        cell = {"id": f"cell-{place}", "metadata": {}, "source": source}
        is_code = place % 2 == 1
        cells.append(
            cell
            | ({"cell_type": "code", "execution_count": None, "outputs": []} if is_code else {"cell_type": "markdown"})
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def run(page: str, address: str, redis_url: str, figures: Path) -> dict[str, Any]:
    """Execute the page's blocks and return the names they defined; the figure goes to ``figures``."""
    os.environ.update(VEILSET_SERVER=address, VEILSET_REDIS=redis_url, TUTORIAL_FIGURES=str(figures))
    names: dict[str, Any] = {"__name__": page}
    exec(compile(code(page), f"{page}.md", "exec"), names)  # noqa: S102 - our own pages
    return names


@contextmanager
def service() -> Iterator[tuple[str, str]]:
    """A service with a Valkey of its own, in a folder that goes with it; yields its address and its Redis URL."""
    from veilset.cli.demo import running_service

    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder) / "state") as ready:
        yield ready["address"], ready["redis"]


def main() -> None:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; default: all")
    parser.add_argument("--write", action="store_true", help="write the notebooks and run nothing")
    parser.add_argument("--figures", type=Path, default=HERE / "figures")
    arguments = parser.parse_args()
    unknown = set(arguments.pages) - set(PAGES)
    if unknown:
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    pages = arguments.pages or PAGES
    for page in pages:
        (HERE / f"{page}.ipynb").write_text(notebook_text(page), encoding="utf-8")
    if arguments.write:
        return
    arguments.figures.mkdir(parents=True, exist_ok=True)
    with service() as (address, redis_url):
        for page in pages:
            print(f"== {page}", file=sys.stderr)
            run(page, address, redis_url, arguments.figures)


if __name__ == "__main__":
    main()
