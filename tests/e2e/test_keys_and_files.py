"""The command line's ways to a secret, to Redis and to files: what the environment names is used where it is of use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import veilset as library
from harness.programs import Finished, unused_port, veilset
from harness.releases import PUBLIC_KEY, release_bytes, release_view
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters
from veilset.core.params import HashScheme
from veilset.errors import FailedPrecondition, InvalidInput

Here = Callable[..., Finished]
PROMISE = ("--size", "100", "--epsilon", "3", "--adjacency", "add-remove")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that holds one."""
    (tmp_path / "secret").write_bytes(b"s" * 32)
    return tmp_path / "secret"


def test_a_secret_in_the_environment_is_for_keyed_sets_only(
    service: ServiceProcess, veilset_here: Here, set_name: str, secret: Path, tmp_path: Path
) -> None:
    """Every command on an unkeyed set leaves it aside, and one on a keyed set uses it."""
    settings = {"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis, "VEILSET_KEY_FILE": str(secret)}
    (tmp_path / "list.txt").write_text("one\n\ntwo\n")
    for scheme in map(str, HashScheme):
        name, spec = f"{set_name}-{scheme}", tmp_path / f"{scheme}.toml"
        steps = [
            ("spec", "create", spec, *PROMISE, "--scheme", scheme),
            ("create", f"{name}-free", *PROMISE, "--scheme", scheme),
            ("create", name, "--spec", spec),
            ("add", name, tmp_path / "list.txt"),
            ("publish", name),
            ("query", name, "one"),
            ("query", name, "one", "--remote"),
            ("overlap", name, tmp_path / "list.txt"),
            ("count", name),
            ("inspect", name),
        ]
        done = {step[0]: veilset_here(*step, settings=settings) for step in steps}
        assert [finished for finished in done.values() if finished.code] == []
        assert done["add"].err == "veilset: 1 empty line, row or value skipped\n"
    keyed = f"{set_name}-{HashScheme.BLAKE2B}"
    del settings["VEILSET_KEY_FILE"]
    for step in (("add", keyed, tmp_path / "list.txt"), ("query", keyed, "one")):
        complaint = veilset_here(*step, settings=settings).complaint()
        assert complaint.startswith("--key-file (VEILSET_KEY_FILE) is needed"), complaint


def test_an_upload_that_never_began_has_nothing_to_resume(veilset_here: Here, tmp_path: Path) -> None:
    """One line says that nobody is there."""
    (tmp_path / "list.txt").write_text("one\n")
    nobody = ("--server", f"127.0.0.1:{unused_port()}", "--retry-seconds", 0)
    assert "cannot reach" in veilset_here("add", "s", tmp_path / "list.txt", *map(str, nobody)).complaint()


def test_the_redis_url_may_stand_in_a_file(service: ServiceProcess, veilset_here: Here, tmp_path: Path) -> None:
    """The file is asked, and what is in it is never shown."""
    path = tmp_path / "url"
    path.write_text(f"redis://u:hush@127.0.0.1:{unused_port()}\n")
    for command in (("query", "s", "x"), ("fetch", "s", "-o", tmp_path / "release")):
        done = veilset_here(*command, "--redis-file", path)
        assert "Redis: unavailable" in done.complaint()
        assert "hush" not in done.err
        both = veilset_here(*command, "--redis-file", path, "--redis", service.redis)
        assert both.complaint() == "redis-file and --redis exclude each other; give one of them"
        overridden = veilset_here(*command, "--redis-file", path, settings={"VEILSET_REDIS": service.redis})
        assert "unavailable" in overridden.complaint(), "the command line goes before the environment"
        assert "cannot be read" in veilset_here(*command, "--redis-file", tmp_path / "none").complaint()


def test_the_services_redis_url_is_read_as_a_readers_is(veilset_here: Here, tmp_path: Path) -> None:
    """Whatever is wrong with the file is told in one line, which does not show what is in it."""
    path, state = tmp_path / "url", tmp_path / "state"
    serve = ("serve", "--state", state, "--port", "0", "--redis-file", path)
    assert "redis-file cannot be read" in veilset_here(*serve).complaint()
    path.write_bytes(b"redis://:hush\xff@127.0.0.1:1\n")
    not_text = veilset_here(*serve)
    assert "redis-file cannot be read" in not_text.complaint()
    path.write_text("redis://127.0.0.1:1\n")
    both = veilset_here(*serve, "--redis", "redis://127.0.0.1:2")
    assert both.complaint() == "redis-file and --redis exclude each other; give one of them"
    assert not state.exists()
    for content in ("\n", "redis://u:hush@127.0.0.1:port\n"):
        path.write_text(content)
        no_url = veilset(*serve)
        assert no_url.code == 2
        assert "veilset: redis must be" in no_url.err
        assert "hush" not in no_url.err


@pytest.mark.parametrize("profile", ["email", "email-1"])
def test_a_profile_is_known_by_both_names(veilset_here: Here, tmp_path: Path, profile: str) -> None:
    """On the command line, in a spec's text and in Python; it is printed with its version."""
    path = tmp_path / "spec.toml"
    made = veilset_here("spec", "create", path, *PROMISE, "--normalization", profile, "--json").json()
    assert made["normalization"] == "email-1"
    path.write_text(path.read_text().replace('"email-1"', f'"{profile}"'))
    assert veilset_here("spec", "show", path, "--json").json()["normalization"] == "email-1"
    assert library.Normalization(profile) is library.Normalization.EMAIL
    with pytest.raises(ValueError, match="email-2"):
        library.Normalization("email-2")


def test_a_foreign_release_under_a_pinned_key(veilset_here: Here, tmp_path: Path) -> None:
    """It says which of the two was refused, and by which option its key is named."""
    shape = FilterParameters(1024, 1)
    release = tmp_path / "release"
    release.write_bytes(release_bytes(["a"], shape, 4.0))
    forged = tmp_path / "other"
    other = library.open(release_bytes(["b"], shape, 3.0, name="theirs", signer=Ed25519PrivateKey.generate()))
    other.save(forged)
    complaint = veilset_here(
        "overlap", "members", "--release", release, "--with", "theirs", "--with-release", forged,
        "--public-key", PUBLIC_KEY.hex(),
    ).complaint()  # fmt: skip
    assert "theirs" in complaint
    assert "--with-public-key" in complaint


def test_a_closed_connection_says_so(service: ServiceProcess) -> None:
    """Whatever is asked of it."""
    connection = library.connect(service.address)
    connection.close()
    for ask in (
        lambda: list(connection.list_sets()),
        lambda: connection.add("s", ["a"]),
        lambda: connection.publish("s"),
    ):
        with pytest.raises(FailedPrecondition, match="closed"):
            ask()


def test_what_is_no_view_is_not_compared() -> None:
    """Such as the name of one."""
    with pytest.raises(InvalidInput, match=r"^other is a str; give a View"):
        release_view(["a"], FilterParameters(1024, 1), 4.0).compare("theirs")  # type: ignore[arg-type]
