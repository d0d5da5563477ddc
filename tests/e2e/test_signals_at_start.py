"""Signals that come before the service serves: SIGHUP does no harm, SIGTERM and SIGINT are obeyed at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import creation

from harness.programs import wait_until
from harness.raw_calls import RawUpload, finish, open_upload, raw_batch
from harness.service_process import ServiceProcess
from harness.vectors import expected_vector, raw_vector

HERE = Path(__file__).parent


def early(number: int) -> tuple[str, str]:
    """The program that gets that signal before anything is opened."""
    return str(HERE / "signalled_early.py"), str(int(number))


def test_a_reload_that_comes_too_early_is_no_end(start_service: Callable[..., ServiceProcess]) -> None:
    """The supervisor reloads right after the start: what is to be read anew is about to be read anyway."""
    service = start_service(program=early(signal.SIGHUP))
    with service.stub() as stub:
        stub.CreateSet(creation("set"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_anything_is_opened(number: int, tmp_path: Path) -> None:
    """Ends with 0, without a word on standard output, and leaves nothing."""
    service = ServiceProcess(tmp_path / "state", program=early(number))
    try:
        service.begin()
        assert service.wait() == 0
    finally:
        service.end()
    assert not service.state.exists()
    service.log_records()


@pytest.mark.faults
def test_a_stop_in_the_middle_of_recovery(tmp_path: Path) -> None:
    """Which may take minutes. Its Valkey ends too; SIGHUP meanwhile does nothing; the next start carries on."""
    file = tmp_path / "hold"
    reached = file.with_suffix(".reached")
    service = ServiceProcess(tmp_path / "state", program=(str(HERE / "held_merges.py"), str(file)))
    elements = [b"%d" % element for element in range(100)]
    try:
        service.start()
        with service.connect() as connection, service.stub() as stub:
            stub.CreateSet(creation("set"))
            shape = connection.get_set("set").filter
            file.touch()
            with RawUpload(stub, open_upload("set", "u"), raw_batch(1, elements), finish(100)):
                wait_until(reached.exists)
                service.kill()
        reached.unlink()
        service.begin()
        wait_until(reached.exists)
        os.kill(service.pid, signal.SIGHUP)
        children = service.find_children()
        assert children
        service.terminate()
        assert service.wait() == 0
        assert not any(child.is_running() for child in children)
        assert service.log_records()[-1]["event"] == "stopped while starting"
        file.unlink()
        service.start()
        assert raw_vector(service.state, "set") == expected_vector(shape, elements)
        service.stop()
    finally:
        service.end()
