"""Two partners with services of their own who share a file, and a secret by another way: their releases compare."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import veilset as library
from harness.programs import Finished
from harness.service_process import ServiceProcess
from harness.shapes import shape_of_set
from veilset.core.elements.hashing import key_check
from veilset.errors import InvalidInput, NotComparable, WrongKey

Run = Callable[..., Finished]

OURS = [f"User{number}@Example.org" for number in range(4000)]
THEIRS = [f" user{number}@example.ORG" for number in range(3000, 7000)]
COMMON = 1000
SURE = 1 - 1e-7


def upload(service: ServiceProcess, name: str, elements: list[str], key: bytes | None = None) -> library.View:
    """Add, publish, and open the release."""
    with service.connect() as connection:
        connection.add(name, elements, key=key)
        connection.publish(name)
    return library.open(service.redis, name, public_keys=[service.public_key], key=key)


def test_sets_from_one_spec_compare(
    service: ServiceProcess,
    start_service: Callable[..., ServiceProcess],
    veilset_here: Run,
    set_name: str,
    tmp_path: Path,
) -> None:
    """From the file to the number in common, by commands and by the library, each side on a service of its own."""
    other, spec, secret = start_service(), tmp_path / "partners.toml", tmp_path / "secret"
    made = veilset_here("secret", "create", secret, "--json").json()
    key = secret.read_bytes()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert (len(key), made["key_check"]) == (32, key_check(key))
    assert veilset_here("secret", "check", secret, "--json").json()["key_check"] == made["key_check"]
    options = ("--size", "5000", "--epsilon", "6", "--adjacency", "add-remove", "--normalization", "email")
    keyed = ("--scheme", "blake2b-1", "--key-file", secret)
    planned = veilset_here("spec", "create", spec, *options, *keyed, "--json").json()
    assert planned["calibration"] == "worst-case"
    assert key not in spec.read_bytes()
    assert key.hex() not in spec.read_text()
    assert veilset_here("spec", "show", spec, "--json").json() == planned

    created = veilset_here("create", set_name, "--spec", spec, "--server", service.address, "--json").json()
    with other.connect() as connection:
        info = connection.create_set_from_spec("theirs", library.Spec.load(spec), size=9000, key=key)
    assert info.declared_size == 9000
    for field in ("bits", "hashes", "scheme", "seed", "key_check"):
        assert created[field] == planned[field] == getattr(shape_of_set(info), field)
    assert (created["shared_seed"], info.shared_seed) == (True, True)

    ours, theirs = upload(service, set_name, OURS, key), upload(other, "theirs", THEIRS, key)
    for view in (ours, theirs):
        assert view.header.shared_seed
        assert view.header.hashing.key_check == made["key_check"]
        assert view.header.privacy.calibration == "worst-case"
    found = ours.compare(theirs, SURE)
    assert found.intersection.low <= COMMON <= found.intersection.high
    assert found.intersection.low > COMMON / 4, "the sets would be told from sets with nothing in common"
    own = theirs.overlap(OURS, SURE)
    assert own.interval[0] <= COMMON <= own.interval[1]

    shown = veilset_here(
        "overlap", set_name, "--redis", service.redis, "--with", "theirs", "--with-redis", other.redis,
        "--with-public-key", other.public_key, "--spec", spec, "--json",
    ).json()  # fmt: skip
    assert shown["intersection"]["estimate"] == pytest.approx(found.intersection.estimate)


def test_a_wrong_secret_is_told_everywhere(
    service: ServiceProcess, veilset_here: Run, set_name: str, tmp_path: Path
) -> None:
    """At the producer, at the reader, and between two releases: never a "no" or a zero."""
    keys = []
    for name in ("right", "wrong"):
        veilset_here("secret", "create", tmp_path / name)
        keys.append((tmp_path / name).read_bytes())
    right, wrong = keys
    told = (key_check(right), key_check(wrong))
    with service.connect() as connection:
        common = {"size": 5000, "epsilon": 6.0, "adjacency": "add-remove", "seed": 7, "bits": 40_000, "hashes": 1}
        with pytest.raises(InvalidInput, match="key_check is needed with scheme blake2b-1"):
            connection.create_set(set_name, scheme="blake2b-1", **common)  # type: ignore[arg-type]
        connection.create_set(set_name, scheme="blake2b-1", key=right, **common)  # type: ignore[arg-type]
        connection.create_set(f"{set_name}-2", scheme="blake2b-1", key=wrong, **common)  # type: ignore[arg-type]
        for key, error in ((wrong, WrongKey), (None, InvalidInput)):
            with pytest.raises(error, match=r"^key (must be|is needed|is not)"):
                connection.add(set_name, OURS, key=key, upload_id="once")
        assert connection.add(set_name, OURS, key=right, upload_id="once").elements == len(OURS)
        spec = library.Spec.plan(size=5000, epsilon=6, adjacency="add-remove", scheme="blake2b-1", key=right)
        with pytest.raises(WrongKey, match=f"whose check value is {told[0]}; its check value is {told[1]}"):
            connection.create_set_from_spec(f"{set_name}-3", spec, key=wrong)
    view = upload(service, set_name, OURS, right)
    other = upload(service, f"{set_name}-2", OURS, wrong)
    with pytest.raises(NotComparable, match=f"key_check: {set_name}/1 has {told[0]}, {set_name}-2/1 has {told[1]}"):
        view.compare(other)

    at = ("--server", service.address)
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(OURS))
    for command in (
        ("add", set_name, listed, *at),
        ("query", set_name, OURS[0], "--redis", service.redis),
        ("overlap", set_name, listed, "--redis", service.redis),
        ("overlap", f"{set_name}-2", "--with", set_name, "--redis", service.redis),
    ):
        complaint = veilset_here(*command, "--key-file", tmp_path / "wrong").complaint()
        assert complaint.startswith("--key-file (VEILSET_KEY_FILE) is not the secret that "), complaint
        assert told[0] in complaint
        assert told[1] in complaint
    answered = veilset_here("query", set_name, "--from", listed, "--summary", "--json", "--key-file", tmp_path / "right",
                            "--redis", service.redis).json()  # fmt: skip
    assert answered["members"] > len(OURS) / 2


def test_a_spec_takes_the_place_of_options(
    service: ServiceProcess, veilset_here: Run, set_name: str, tmp_path: Path
) -> None:
    """What the file fixes cannot be given beside it; what is missing is asked for; a wrong file is named."""
    spec = tmp_path / "partners.toml"
    veilset_here("spec", "create", spec, "--size", "5000", "--epsilon", "6", "--adjacency", "add-remove")
    assert (
        "exists already"
        in veilset_here(
            "spec", "create", spec, "--size", "5000", "--epsilon", "6", "--adjacency", "add-remove"
        ).complaint()
    )
    create = ("create", set_name, "--server", service.address)
    for option, value in (("--epsilon", "6"), ("--seed", "1"), ("--max-bytes", "8M"), ("--scheme", "mmh3-1")):
        complaint = veilset_here(*create, "--spec", spec, option, value).complaint()
        assert complaint.startswith(f"{option.removeprefix('--')} and --spec exclude each other")
    assert (
        "Missing option '--epsilon'" in veilset_here(*create, "--size", "5000", "--adjacency", "add-remove").complaint()
    )
    assert "Missing option '--epsilon'" in veilset_here(*create).complaint()
    assert veilset_here(*create, "--spec", tmp_path / "none.toml").complaint().startswith("spec ")
    spec.write_text(spec.read_text().replace("bits = ", "bots = "))
    assert veilset_here(*create, "--spec", spec).complaint().startswith("spec has the field 'bots'")
    assert veilset_here("spec", "show", spec).code == 2


def test_a_release_that_is_not_as_agreed_is_refused(
    service: ServiceProcess, veilset_here: Run, set_name: str, tmp_path: Path
) -> None:
    """With what the spec has and what the release has; the own list is never asked about."""
    mine, theirs = tmp_path / "mine.toml", tmp_path / "theirs.toml"
    for path in (mine, theirs):
        veilset_here("spec", "create", path, "--size", "5000", "--epsilon", "6", "--adjacency", "add-remove")
    veilset_here("create", set_name, "--spec", theirs, "--server", service.address)
    upload(service, set_name, OURS)
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(OURS))
    seeds = [json.loads(veilset_here("spec", "show", path, "--json").out)["seed"] for path in (mine, theirs)]
    reading = ("--redis", service.redis, "--spec")
    for command in (("overlap", set_name, listed), ("query", set_name, "a"), ("inspect", set_name)):
        assert veilset_here(*command, *reading, theirs).code == 0
        complaint = veilset_here(*command, *reading, mine).complaint()
        assert f"seed: the spec has {seeds[0]}, {set_name}/1 has {seeds[1]}" in complaint


def test_the_check_value_outlives_a_restart(start_service: Callable[..., ServiceProcess]) -> None:
    """It is part of the set."""
    service, key = start_service(), bytes(range(32))
    with service.connect() as connection:
        made = connection.create_set("keyed", size=9, epsilon=6, adjacency="add-remove", scheme="blake2b-1", key=key)
    service.stop()
    with service.start().connect() as connection:
        assert shape_of_set(connection.get_set("keyed")) == shape_of_set(made)
    assert made.hashing.key_check == key_check(key)
