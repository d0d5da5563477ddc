"""What compose.yaml would start, started as processes: redis-server with the shipped users and the options for Valkey, the
service with its own, both with the certificates that prepare.sh makes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from shipped import COMPOSE, read_yaml

import veilset
from harness.programs import environment, unused_port
from harness.programs import veilset as run_veilset
from harness.redis_server import require_redis
from harness.service_process import ServiceProcess
from veilset.errors import Unauthenticated

pytestmark = pytest.mark.deploy

SERVICES = read_yaml(COMPOSE)["services"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """What prepare.sh makes."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path / "secrets"
    subprocess.run([COMPOSE.with_name("prepare.sh"), folder], check=True, capture_output=True)
    return folder


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment()) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def command_of(service: str, secrets: Path, **other: str) -> list[str]:
    """Its command in compose.yaml, with this machine's paths and ports."""
    found = [str(word).replace("/run/secrets", str(secrets)) for word in SERVICES[service]["command"]]
    return [
        other.get(before.strip("-").replace("-", "_"), word) for before, word in zip(["", *found], found, strict=False)
    ]


def test_prepare_writes_over_nothing(secrets: Path) -> None:
    """A second run fails and changes nothing; keys of the authority and the readers' password are for their owner only."""
    before = {path.name: path.read_bytes() for path in secrets.iterdir()}
    again = subprocess.run([COMPOSE.with_name("prepare.sh"), secrets], check=False, capture_output=True)
    assert again.returncode != 0
    assert {path.name: path.read_bytes() for path in secrets.iterdir()} == before
    assert set(read_yaml(COMPOSE)["secrets"]) <= set(before)
    assert all(secrets.joinpath(name).stat().st_mode & 0o077 == 0 for name in ("ca.key", "reader-password"))


def test_what_compose_starts_works_together(secrets: Path, tmp_path: Path) -> None:
    """TLS everywhere, the service's user in Redis, its health check, metrics by TLS; a reader with the readers' user."""
    require_redis()
    redis_port = unused_port()
    url = (secrets / "redis-url").read_text()
    (secrets / "redis-url").write_text(
        url.replace("valkey:6379", f"localhost:{redis_port}").replace("/run/secrets", str(secrets))
    )
    _, *redis_options = command_of("valkey", secrets, tls_port=str(redis_port))
    serve, *options = command_of("veilset", secrets, host="127.0.0.1", metrics_host="127.0.0.1", metrics_port="0")
    assert serve == "serve"
    with ExitStack() as stack:
        stack.enter_context(started(["redis-server", *redis_options, "--dir", str(tmp_path)], tmp_path / "redis.log"))
        process = ServiceProcess(tmp_path / "state", options)
        stack.callback(process.end)
        process.start()
        port = process.address.rpartition(":")[2]
        made = run_veilset("token", "create", "--state", tmp_path / "state", "--role", "admin", "--sets", "*", "--json")
        health = {"VEILSET_SERVER": f"tls://localhost:{port}", "VEILSET_CA_FILE": str(secrets / "ca.pem")}
        assert SERVICES["veilset"]["environment"].keys() == health.keys()
        assert run_veilset("health", settings=health).code == 0
        with veilset.connect(f"localhost:{port}", ca=secrets / "ca.pem") as nobody, pytest.raises(Unauthenticated):
            nobody.get_set("s")
        with veilset.connect(f"localhost:{port}", ca=secrets / "ca.pem", token=made.json()["token"]) as service:
            service.create_set("s", size=1000, epsilon=3, delta=1e-9, adjacency="add-remove")
            service.add("s", [f"element {number}" for number in range(1000)])
            assert service.publish("s").state == "published"
        password = (secrets / "reader-password").read_text().strip()
        readers = f"rediss://veilset-reader:{password}@localhost:{redis_port}/0?ssl_ca_certs={secrets / 'ca.pem'}"
        view = veilset.open(readers, "s", public_keys=[process.public_key])
        assert sum(view.contains_many([f"element {number}" for number in range(1000)])) > 500
        check = SERVICES["valkey"]["healthcheck"]["test"][1].replace("valkey-cli", f"redis-cli -p {redis_port}")
        assert subprocess.run(["sh", "-c", check.replace("/run/secrets", str(secrets))], check=False).returncode == 0
        process.stop()
    assert "veilset-server" not in process.log_path.read_text()
