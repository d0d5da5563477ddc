"""How results show themselves: a short repr, a table in a notebook, a picture, a progress bar.

What is shown of each type is in `veilset._report.notebook` and `veilset._report.plots`, which are imported when something is
shown, so that results cost nothing more until then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Displayed:
    """A result with a short repr, and a small table in a notebook. Neither shows elements or secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        from veilset._report.notebook import short_text

        return short_text(self)

    def _repr_html_(self) -> str:
        from veilset._report.notebook import html_table

        return html_table(self)


def draw(result: Any, axes: Axes | None) -> Axes:
    """Draw a result on ``axes``, or on a new figure; returns the Axes. Raises FailedPrecondition if matplotlib is missing."""
    from veilset._report.plots import draw_result

    return draw_result(result, axes)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; None is one that was closed before the program started."""
    return stream is not None and stream.isatty()


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose standard error is no terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar that shows how many are done, in a notebook or on standard error where that is a terminal; else nothing.

    total: how many there are in all, if that is known. Yields the function to call with the number done so far:

        with veilset.progress("adding") as show:
            service.add("customers", elements, on_progress=show)
    """
    if not _in_notebook() and not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Rich would send what is printed meanwhile to standard error, results included.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)
