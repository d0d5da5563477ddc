"""``veilset`` with snares: the process kills itself at the step that a file names. ``killing_service.py SNARE ARGUMENTS``.

Everything is built by the product itself; only the methods in `STEPS` are wrapped. While the file SNARE is absent they do
nothing else. It holds one JSON object: ``step`` (a key of `STEPS`), ``when`` (before or after), ``call`` (how many calls
from now on, 1 for the next) and ``id`` (anew for each snare, so that counting starts anew).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

STEPS = {
    "ledger.create_set": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.create_set"),
    "ledger.delete_set": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.delete_set"),
    "ledger.open_upload": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.open_upload"),
    "ledger.finish_upload": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.finish_upload"),
    "ledger.charge_release": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.charge_release"),
    "ledger.charge_count": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.charge_count"),
    "ledger.mark_release": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.mark_release"),
    "ledger.charge_lost_releases": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.charge_lost_releases"),
    "ledger.raise_budget": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.raise_budget"),
    "ledger.seal_part": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.seal_part"),
    "ledger.add_batches": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.add_batches"),
    "ledger.new_run_file": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.new_run_file"),
    "ledger.replace_items": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.replace_items"),
    "ledger.forget_leftovers": ("veilset_server.state.ledger.sqlite_ledger", "SqliteLedger.forget_leftovers"),
    "runs.open_spool": ("veilset_server.state.runs", "Runs.open_spool"),
    "runs.remove_spool": ("veilset_server.state.runs", "remove_spool"),
    "run.write": ("veilset_server.state.run_file", "write_all"),
    "run.written": ("veilset_server.state.runs", "write_run"),
    "artefacts.write": ("veilset_server.state.artefacts", "ArtefactFiles.write"),
    "artefacts.remove": ("veilset_server.state.artefacts", "ArtefactFiles.remove"),
    "spool.append": ("veilset_server.state.spool", "Spool.append"),
    "spool.write_mark": ("veilset_server.state.spool", "Spool._write_mark"),
    "spool.sync": ("veilset_server.state.spool", "Spool.sync"),
    "artefact.write": ("veilset_server.state.artefacts", "write_all"),
    "anchor.sync": ("veilset_server.state.anchor", "sync_file"),
    "anchor.write": ("veilset_server.state.anchor", "AnchorFile.raise_to"),
    "sync_file": ("veilset_server.state.durability", "sync_file"),
    "store.probe": ("veilset_server.redis.store", "RedisStore.probe"),
    "store.upload": ("veilset_server.redis.store", "RedisStore.upload"),
    "store.move_pointer": ("veilset_server.redis.store", "RedisStore.move_pointer"),
    "store.expire": ("veilset_server.redis.store", "RedisStore.expire"),
    "store.restore": ("veilset_server.redis.store", "RedisStore.restore"),
    "store.remove": ("veilset_server.redis.store", "RedisStore.remove"),
    "redis.command": ("redis.client", "Redis.execute_command"),
    "redis.watched": ("redis.client", "Pipeline.immediate_execute_command"),
    "redis.transaction": ("redis.client", "Pipeline.execute"),
}


class Snare:
    """Counts the calls of the step that the file names, and kills the process at the right one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()

    def pass_by(self, step: str, when: str) -> None:
        """Called before and after each step."""
        try:
            wanted = json.loads(Path(self._path).read_bytes())
        except FileNotFoundError:
            return
        if (wanted["step"], wanted["when"]) != (step, when):
            return
        with self._lock:
            self._calls[wanted["id"]] += 1
            if self._calls[wanted["id"]] == wanted["call"]:
                os.kill(os.getpid(), signal.SIGKILL)

    def lay(self, step: str, module_name: str, attribute: str) -> None:
        """Wrap one function or method."""
        owner: Any = importlib.import_module(module_name)
        *classes, name = attribute.split(".")
        for part in classes:
            owner = getattr(owner, part)
        setattr(owner, name, self._wrap(step, getattr(owner, name)))

    def _wrap(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def snared(*arguments: Any, **named: Any) -> Any:
            self.pass_by(step, "before")
            result = function(*arguments, **named)
            self.pass_by(step, "after")
            return result

        return snared


if __name__ == "__main__":
    snare = Snare(sys.argv.pop(1))
    for step_name, (module, attribute_name) in STEPS.items():
        snare.lay(step_name, module, attribute_name)
    from veilset.cli.main import main

    main()
