"""The image's build steps, run here on a copy of the context, and what they make, run as the image would run it: as another
user, on a root that cannot be written to, with its health check.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shipped import DEPLOY, ROOT

from harness.programs import environment, unused_port, wait_until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]

USER = 10001


def instructions(stage: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of one stage, by its FROM line's end; continued lines joined, comments dropped."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages = re.split(r"^FROM (.+)\n", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]
    (body,) = [body for name, body in zip(stages[::2], stages[1::2], strict=True) if name.endswith(stage)]
    pairs = [re.split(r"\s+", line, maxsplit=1) for line in body.splitlines() if line]
    return [(instruction, arguments) for instruction, arguments in pairs]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that stands for the image's root after the build stage; readable by all, as its user is another one."""
    root = tmp_path_factory.mktemp("image")
    for folder in (root, *root.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    places = {"/src": root / "src", "/wheels": root / "wheels", "/opt/veilset": root / "opt" / "veilset"}
    (root / "src").mkdir()
    (root / "opt").mkdir()
    for instruction, arguments in instructions("AS build"):
        if instruction == "COPY":
            *names, target = shlex.split(arguments)
            for name in names:
                copy(ROOT / name, root / "src" / (name if target.startswith(".") else target))
        elif instruction == "RUN":
            for place, real in places.items():
                arguments = arguments.replace(place, str(real))
            command = (
                arguments.replace("python -m", f"{sys.executable} -m", 1)
                if arguments.startswith("python")
                else arguments
            )
            done = subprocess.run(["sh", "-c", command], cwd=root / "src", capture_output=True, text=True, check=False)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        else:
            assert (instruction, arguments) == ("WORKDIR", "/src")
    yield root / "opt" / "veilset"
    shutil.rmtree(root)


def copy(source: Path, target: Path) -> None:
    """As .dockerignore lets it through."""
    if source.is_dir():
        left_out = shutil.ignore_patterns("__pycache__", "*.pyc", "v1") if source.name == "client" else None
        shutil.copytree(source, target, ignore=left_out or shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)


def as_the_images_user(image: Path, state: Path, *arguments: str, **settings: str) -> list[str]:
    """The command line that runs ``veilset`` as user 10001 with everything but ``state`` read-only."""
    variables = [f"{name}={value}" for name, value in settings.items()]
    steps = [
        *open_the_way_to_python(state),
        f"mount -t tmpfs -o mode=0700,uid={USER},gid={USER} tmpfs {state}",
        "mount -o remount,bind,ro /",
        f"exec setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all "
        + shlex.join(["env", *variables, str(image / "bin" / "veilset"), *arguments]),
    ]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", " && ".join(steps)]


def open_the_way_to_python(spare: Path) -> list[str]:
    """Where this Python lies in a folder that others may not enter, as root's home: the same path, but open, in our namespace."""
    python = Path(sys.base_prefix)
    closed = [folder for folder in python.parents if not folder.stat().st_mode & 0o001]
    if not closed:
        return []
    return [
        f"mount --bind {python} {spare}",
        f"mount -t tmpfs -o mode=0755 tmpfs {closed[-1]}",
        f"mkdir -p {python}",
        f"mount --move {spare} {python}",
    ]


def test_the_image_serves_on_a_root_that_cannot_be_written(image: Path, tmp_path: Path) -> None:
    """It starts, its health check says yes, it ends with 0; and it has what the extras bring."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs the right to make a mount namespace")
    port, state = unused_port(), tmp_path / "state"
    state.mkdir()
    tmp_path.chmod(0o755)
    variables = dict(re.findall(r"(VEILSET_\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text().partition("ENV ")[2]))
    assert set(variables) == {"VEILSET_SERVE_STATE", "VEILSET_SERVE_ANCHOR", "VEILSET_SERVER"}
    settings = {
        "VEILSET_SERVE_STATE": f"{state}/state",
        "VEILSET_SERVE_ANCHOR": f"{state}/anchor.json",
        "VEILSET_SERVER": f"localhost:{port}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["--port", str(port), "--redis", f"redis://127.0.0.1:{unused_port()}/0", "--metrics-port", "0"]
    options += ["--otlp-endpoint", "http://127.0.0.1:1"]
    serve = as_the_images_user(image, state, "serve", *options, **settings)
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(serve, stdout=output, stderr=output, env=environment()) as process:
        try:
            wait_until(lambda: process.poll() is not None or b"serves on" in log.read_bytes())
            assert process.poll() is None, log.read_text()
            check = [str(image / "bin" / "veilset"), "health"]
            assert subprocess.run(check, env=environment(settings), check=False).returncode == 0
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(r"^Uid:\s+10001\s", status, flags=re.MULTILINE)
            assert re.search(r"^CapEff:\s+0+$", status, flags=re.MULTILINE)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    assert code == 0, log.read_text()
    assert list(state.iterdir()) == []  # its own disk, which went with it
