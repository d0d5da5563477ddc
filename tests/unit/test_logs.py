"""What would write past the log comes out as its lines, by type and place, without its text."""

from __future__ import annotations

import json
import subprocess
import sys

MARK = "alice@example.org"
SCRIPT = f"""
import asyncio, gc, logging, threading, warnings
from veilset_server.metrics.logs import configure_logs
configure_logs("debug")

def fail():
    raise ValueError({MARK!r})

class Destroyed:
    def __del__(self):
        fail()

logging.getLogger("library").warning("it is %s", {MARK!r})
logging.getLogger("library").debug("it is %s", {MARK!r})
logging.getLogger("library").error("%d cannot be formatted", {MARK!r})
try:
    fail()
except ValueError:
    logging.getLogger("library").exception({MARK!r})
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Destroyed()
warnings.warn({MARK!r})

async def forgotten():
    asyncio.get_running_loop().create_task(failing())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

async def failing():
    fail()

asyncio.run(forgotten())
fail()
"""


def test_nothing_writes_past_the_log() -> None:
    """Library logging, threads, destructors, tasks that nobody awaited, warnings, and what ends the process."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert MARK not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        *["library"] * 3,
        "uncaught in a thread",
        "uncaught in a destructor",
        "warning",
        "library",
        "uncaught",
    ]
    assert [line["library"] for line in lines if line["event"] == "library"] == [*["library"] * 3, "asyncio"]
    kinds = [line.get("kind") for line in lines]
    assert kinds == [None, None, "ValueError", "ValueError", "ValueError", "UserWarning", "ValueError", "ValueError"]
    assert all(line["places"] for line in lines if line.get("kind") == "ValueError")
