"""What a Spark task runs that kills its own process once in each partition. The executors import it, and nothing of the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def die_once(folder: str, rows: Iterator[Any]) -> Iterator[Any]:
    """Each worker process that first comes by in a partition kills itself in the middle of it, as the kernel may."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(rows):
        mark = Path(folder, str(context.partitionId()))
        if number == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


class DyingPartition:
    """`UploadPartition` that dies once in every partition, with its part held by the service but for the answer."""

    def __init__(self, task: Any, folder: str) -> None:
        self._task = task
        self._folder = folder
        self.upload_id = task.upload_id

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mark = Path(self._folder, str(context.partitionId()))
        for row in self._task(batches):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield row
