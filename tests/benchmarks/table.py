"""The table of a run, and the same as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Ratio, Row


@dataclass(frozen=True, slots=True)
class Line:
    """A row with what came out: a ratio, or why there is none."""

    row: Row
    ratio: Ratio | None
    problem: str = ""

    @property
    def verdict(self) -> str:
        """yes, no, or missing."""
        if self.ratio is None:
            return "missing"
        return "yes" if self.row.target.reached(self.ratio.value) else "no"


def as_json(lines: list[Line], machine: dict[str, object], versions: dict[str, str]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "machine": machine,
        "versions": versions,
        "rows": [
            {
                "key": line.row.key,
                "work": line.row.work,
                "peer": line.row.peer,
                "target": str(line.row.target),
                "reached": line.verdict,
                "problem": line.problem,
                "measured": None if line.ratio is None else asdict(line.ratio),
            }
            for line in lines
        ],
    }


def show(lines: list[Line], machine: dict[str, object], versions: dict[str, str]) -> None:
    """On standard output; in boxes where that is a terminal."""
    console = Console(width=None if Console().is_terminal else 200)
    table = Table(
        "work",
        "peer",
        "ours",
        "peer's",
        "ratio",
        "least … most",
        "target",
        "reached",
        "note",
        title="veilset benchmarks",
    )
    for line in lines:
        found = line.ratio
        measured = (
            ("", "", "", "") if found is None else (found.ours, found.theirs, f"{found.value:.3g}", _spread(found))
        )
        colour = {"yes": "green", "no": "red", "missing": "yellow"}[line.verdict]
        note = line.problem if found is None else found.note
        cells = (line.row.work, line.row.peer, *measured, str(line.row.target))
        table.add_row(*cells, f"[{colour}]{line.verdict}[/]", note)
    console.print(table)
    for title, values in (("machine", machine), ("versions", versions)):
        console.print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in values.items()), highlight=False)


def _spread(ratio: Ratio) -> str:
    return f"{ratio.low:.3g} … {ratio.high:.3g} of {ratio.repeats}"
