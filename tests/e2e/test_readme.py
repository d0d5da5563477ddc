"""What the README shows works as it stands there."""

from __future__ import annotations

import gzip
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from harness.programs import veilset
from harness.service_process import ServiceProcess
from veilset.errors import NotFound

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.fixture(autouse=True)
def no_customers(service: ServiceProcess) -> Iterator[None]:
    """The README's set goes after each test."""
    yield
    with service.connect() as connection, suppress(NotFound):
        connection.delete_set("customers")


def test_the_python_example(service: ServiceProcess) -> None:
    """The code block, with this test's addresses in the place of the README's."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for address, ours in (("localhost:50051", service.address), ("redis://localhost:16379/0", service.redis)):
        assert code.count(address) == 1
        code = code.replace(address, ours)
    elements = ["alice@example.com", *(f"user{number}@example.com" for number in range(10_000))]
    names = {"elements": elements, "candidates": elements[:100]}
    exec(code, names)  # noqa: S102 - our own README
    view: object = names["view"]
    contains_many, scores = (getattr(view, name)(elements[:100]) for name in ("contains_many", "scores"))
    assert contains_many.dtype == np.bool_
    assert ((scores > 0) == contains_many).all()
    assert getattr(names["release"], "state", None) == "published"


def test_the_command_lines(service: ServiceProcess, tmp_path: Path) -> None:
    """All of them but the first two, which install and serve."""
    (block,) = re.findall(r"## On the command line\n\n((?:    .*\n)+)", README)
    lines = [line.split(" #")[0].strip() for line in block.splitlines()]
    assert [line.split()[:2] for line in lines[:2]] == [["pip", "install"], ["veilset", "serve"]]
    (tmp_path / "list.txt").write_text("alice@example.com\n")
    (tmp_path / "more.csv.gz").write_bytes(gzip.compress(b"id,email\n1,bob@example.com\n"))
    last = ""
    for line in lines[2:]:
        program, *arguments = shlex.split(line.replace("redis://127.0.0.1:16379/0", service.redis))
        assert program == "veilset"
        done = veilset(*arguments, cwd=tmp_path, settings={"VEILSET_SERVER": service.address})
        assert (done.code, done.err) == (0, ""), line
        last = done.out
    assert last in ("yes\talice@example.com\n", "no\talice@example.com\n")
