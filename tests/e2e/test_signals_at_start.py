"""Signals that come before the service serves: SIGHUP does no harm, SIGTERM and SIGINT are obeyed at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import creation

from harness.service_process import ServiceProcess

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
