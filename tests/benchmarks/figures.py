"""Put the figures of a run into docs/benchmarks.md.

Run as ``python -m benchmarks.figures FILE.json`` at the root of the tree, with ``tests`` on PYTHONPATH, on what
``make bench BENCH='--json FILE.json'`` wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCUMENT = Path("docs") / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
_MACHINE = (
    "Measured on {cores} cores, x86-64, {memory} GiB, Python {python}; load average {before} before and {after} after."
)


def as_markdown(run: dict[str, Any]) -> str:
    """The table, what it was measured on without the processor's name, and the versions."""
    machine = run["machine"]
    lines = [
        _MACHINE.format(
            cores=machine["cores"],
            memory=round(machine["memory_gib"]),
            python=machine["python"],
            before=machine["load_average"],
            after=machine["load_average_after"],
        ),
        "Versions: " + ", ".join(f"{name} {version}" for name, version in run["versions"].items()) + ".",
        "",
        "| row | ours | the peer's | ratio | least … most | target | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in run["rows"]:
        found = row["measured"]
        if found is None:
            cells = ["", "", "", row["problem"]]
        else:
            spread = f"{found['low']:.3g} … {found['high']:.3g}"
            cells = [found["ours"], found["theirs"], f"**{found['value']:.3g}**", spread]
        lines.append("| " + " | ".join([f"`{row['key']}`", *cells, row["target"], row["reached"]]) + " |")
    return "\n".join(lines) + "\n"


def replace_figures(document: str, figures: str) -> str:
    """The document with other figures between the two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT}: the marks around the figures are gone")
    return before + begin + figures + end + behind


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text())
    DOCUMENT.write_text(replace_figures(DOCUMENT.read_text(), as_markdown(measured)))
