"""A list that changes, through the whole product: thirty increments, removals, and every kind of reader."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import redis as redis_client

import veilset as library
from harness.hostile_redis import HostileRedis
from harness.programs import Finished, wait_until
from harness.redis_releases import point_at
from harness.service_process import ServiceProcess
from veilset._reader import redis_keys
from veilset._reader.sources import read_manifest
from veilset.core.encodings.linear.parameters import LinearParameters
from veilset.core.encodings.planning import PlanRequest
from veilset.core.params import Adjacency, PrivacyParameters
from veilset.core.release import wire
from veilset.core.release.signing import open_manifest
from veilset.errors import FailedPrecondition, InvalidInput, NotFound, ReleaseRejected, Unsupported
from veilset.v1 import membership_pb2 as pb
from veilset.v1 import parameters_pb2

SIZE, NEW, INCREMENTS = 200_000, 1_000, 30
LIMIT = 6.0
"""Standard deviations that a rate may be off by; passed by chance with 2·10^-9 for each of the 40 rates here."""

OTHERS = [f"other{number}" for number in range(20_000)]


@dataclass
class Changing:
    """A set after all of its increments; removed: those that tombstones show."""

    name: str
    service: ServiceProcess
    members: list[str]
    removed: list[str]
    daily_bytes: list[int]
    base_bytes: int


def grow(service: ServiceProcess, encoding: str, increments: int) -> Changing:
    """Publish a base and increments, with a follower beside them; 20 elements leave each day."""
    name = f"changing-{encoding}"
    members, removed = [f"user{number}" for number in range(SIZE)], list[str]()
    with service.connect() as connection:
        connection.create_set(
            name, size=SIZE, epsilon=8, adjacency="add-remove", encoding=encoding, calibration="worst-case",
            increments=increments, increment_capacity=NEW, removals_epsilon=10, budget_epsilon=36,
        )  # fmt: skip
        connection.add(name, members)
        base = connection.publish(name)
        daily = []
        with HostileRedis(service.redis) as line, library.follow(line.url, name, poll_seconds=3600) as follower:
            for day in range(increments):
                new, gone = [f"new{day}-{number}" for number in range(NEW)], members[:20]
                connection.add(name, new)
                connection.remove(name, gone)
                members, removed = members[20:] + new, removed + gone
                before = line.sent
                release = connection.publish(name, increment=True)
                wait_until(lambda sequence=release.sequence: follower.sequence == sequence)  # type: ignore[misc]
                daily.append(line.sent - before)
        assert connection.budget(name).epsilon_spent == 18
    return Changing(name, service, members, removed, daily, base.header.vector_bytes)


@pytest.fixture(scope="module")
def linear(service: ServiceProcess) -> Changing:
    return grow(service, "linear", INCREMENTS)


@pytest.fixture(scope="module")
def bloom(service: ServiceProcess) -> Changing:
    return grow(service, "bloom", 3)


@pytest.fixture(params=["linear", "bloom"])
def changing(request: pytest.FixtureRequest) -> Changing:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Changing)
    return found


def check_rate(name: str, yes: int, asked: int, rate: float) -> None:
    """A share is the one that was predicted."""
    z = (yes - asked * rate) / math.sqrt(asked * rate * (1.0 - rate))
    print(f"{name}: {yes / asked:.5f}, predicted {rate:.5f}, {'inside' if abs(z) <= 3.2905 else 'OUTSIDE'} 99.9%")
    assert abs(z) <= LIMIT


def test_rates_after_all_increments_are_those_predicted(changing: Changing) -> None:
    view = library.open(changing.service.redis, changing.name)
    sample = changing.members[::10]
    check_rate("members", int(view.contains_many(sample).sum()), len(sample), view.decoder.true_positive_rate)
    check_rate("others", int(view.contains_many(OTHERS).sum()), len(OTHERS), view.decoder.false_positive_rate)
    assert view.contains_many(changing.removed).mean() < 0.3
    assert view.contains_many(changing.members[:50]).tolist() == [member in view for member in changing.members[:50]]


def test_a_days_increment_is_a_small_part_of_a_base(linear: Changing) -> None:
    """All that Redis sends a follower in a day, vectors of removed elements too; the largest of 30 days."""
    print(
        f"a day's traffic is at most {max(linear.daily_bytes)} bytes, {max(linear.daily_bytes) / linear.base_bytes:.2%}"
    )
    parts = library.open(linear.service.redis, linear.name).parts
    assert len(parts) == INCREMENTS + 1
    assert min(linear.daily_bytes) > parts[1].header.vector_bytes
    assert max(linear.daily_bytes) < 0.03 * linear.base_bytes


def test_scores_and_posteriors_weigh_all_releases(changing: Changing) -> None:
    view = library.open(changing.service.redis, changing.name)
    assert view.scores(changing.members[-200:]).mean() > view.scores(OTHERS[:200]).mean()
    assert view.scores(changing.removed[-200:]).mean() < view.scores(changing.members[:200]).mean()
    posteriors = view.posteriors(changing.members[:3], 0.2)
    check = view.check(changing.members[0], 0.2)
    assert check.posterior == pytest.approx(posteriors[0])
    assert 0.0 <= check.posterior <= 1.0


def test_overlap_of_a_list_counts_all_releases(changing: Changing) -> None:
    """Of members of the base and of increments, removed ones and others."""
    view = library.open(changing.service.redis, changing.name)
    asked = changing.members[:1000] + changing.members[-400:] + changing.removed[:60] + OTHERS[:2000]
    found = view.overlap(asked, confidence=1 - 1e-7)
    assert found.low <= 1400 <= found.high
    assert found.high - found.low < 600


def test_files_remote_and_cache_answer_alike(changing: Changing, tmp_path: Path) -> None:
    url, name = changing.service.redis, changing.name
    view = library.open(url, name)
    asked = changing.members[::100] + changing.removed + OTHERS[:500]
    answers = view.contains_many(asked).tolist()
    view.save(tmp_path / "file.veilset")
    assert library.open(tmp_path / "file.veilset").contains_many(asked).tolist() == answers
    with library.remote(url, name) as remote:
        assert remote.contains_many(asked).tolist() == answers
    cache = tmp_path / "cache"
    for _ in range(2):
        cached = library.open(url, name, cache_dir=cache)
        assert (len(cached.parts), cached.contains_many(asked).tolist()) == (len(view.parts), answers)
    kept = [path for path in (cache / name).iterdir() if path.suffix == ".veilset"]
    assert len(kept) == len(view.parts)


def test_an_earlier_release_opens_the_generation_until_then(changing: Changing) -> None:
    view = library.open(changing.service.redis, changing.name, sequence=2)
    assert [part.header.sequence for part in view.parts] == [1, 2]
    base = library.open(changing.service.redis, changing.name, sequence=1)
    assert base.contains_many(changing.removed).mean() > 0.7


def test_a_limit_holds_for_the_whole_generation(linear: Changing) -> None:
    view = library.open(linear.service.redis, linear.name, max_false_positive_rate=0.02)
    assert view.decoder.false_positive_rate <= 0.02
    assert np.mean(view.contains_many(OTHERS)) < 0.03
    assert len(view.filter(OTHERS[:500])) > 450


def test_what_does_not_show_says_what_does(linear: Changing, bloom: Changing) -> None:
    view, other = (library.open(found.service.redis, found.name) for found in (linear, bloom))
    with pytest.raises(Unsupported, match="overlap with a list"):
        view.size()
    estimate = other.size(1 - 1e-7)
    assert estimate.low <= len(bloom.members) <= estimate.high
    with pytest.raises(Unsupported, match="open its base release, sequence 1"):
        other.compare(other)


@pytest.mark.parametrize("harm", ["gone", "another release", "a chunk"])
def test_a_part_that_is_not_there_is_no_answer(harm: str, service: ServiceProcess, set_name: str) -> None:
    """Gone, exchanged, or damaged: an error that names it."""
    with service.connect() as connection:
        for name in (set_name, f"{set_name}-other"):
            connection.create_set(
                name, size=1000, epsilon=8, adjacency="add-remove", encoding="linear", increments=3, budget_epsilon=16
            )
            for number in range(3):
                connection.add(name, [f"{number}-{index}" for index in range(100)])
                connection.publish(name, increment=number > 0)
    with closing(redis_client.Redis.from_url(service.redis)) as client:
        own = redis_keys.manifest(set_name, 2)
        if harm == "gone":
            client.delete(own)
        elif harm == "another release":
            client.set(own, client.get(redis_keys.manifest(f"{set_name}-other", 2)) or b"")
        else:
            client.setrange(redis_keys.chunk(set_name, 2, 0), 5, b"wrong")
    expected = NotFound if harm == "gone" else ReleaseRejected
    with pytest.raises(expected, match=rf"{set_name}(-other)?/2|set_name|{set_name}-other"):
        library.open(service.redis, set_name)
    assert len(library.open(service.redis, set_name, sequence=1).parts) == 1
    point_at(service.redis, set_name, b"3")


def test_parts_of_two_generations_do_not_mix(service: ServiceProcess, set_name: str) -> None:
    """An increment whose base is exchanged for the next base is refused."""
    with service.connect() as connection:
        connection.create_set(
            set_name, size=1000, epsilon=8, adjacency="add-remove", encoding="linear", increments=2, budget_epsilon=32
        )
        connection.add(set_name, ["a", "b"])
        for increment in (False, True, False, True):
            connection.publish(set_name, increment=increment)
    with closing(redis_client.Redis.from_url(service.redis)) as client:
        client.set(redis_keys.manifest(set_name, 1), client.get(redis_keys.manifest(set_name, 3)) or b"")
    with pytest.raises(ReleaseRejected, match="sequence is 3, not 1"):
        library.open(service.redis, set_name, sequence=2)
    assert [part.header.sequence for part in library.open(service.redis, set_name).parts] == [3, 4]


def test_a_follower_moves_on_to_the_next_generation(service: ServiceProcess, set_name: str) -> None:
    with service.connect() as connection:
        connection.create_set(
            set_name, size=1000, epsilon=8, adjacency="add-remove", encoding="linear", increments=1, budget_epsilon=32
        )
        connection.add(set_name, ["a"])
        connection.publish(set_name)
        with library.follow(service.redis, set_name, poll_seconds=0.1) as follower:
            for increment, parts in ((True, 2), (False, 1), (True, 2)):
                release = connection.publish(set_name, increment=increment)
                wait_until(lambda sequence=release.sequence: follower.sequence == sequence)  # type: ignore[misc]
                assert len(follower.view.parts) == parts


def test_the_command_line_publishes_and_lists_increments(
    veilset_here: Callable[..., Finished], service: ServiceProcess, set_name: str, tmp_path: Path
) -> None:
    settings = {"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis}
    elements = tmp_path / "list"
    elements.write_text("\n".join(f"user{number}" for number in range(2000)))
    create = (
        "create",
        set_name,
        "--size",
        "2000",
        "--epsilon",
        "8",
        "--adjacency",
        "add-remove",
        "--encoding",
        "linear",
    )
    created = veilset_here(*create, "--increments", "2", "--removals-epsilon", "8", "--json", settings=settings).json()
    assert (created["increments"], created["increment_capacity"], created["budget_epsilon"]) == (2, 1000, 16.0)
    assert created["false_positive_rate_after_increments"] > created["false_positive_rate"]
    assert veilset_here("add", set_name, str(elements), settings=settings).code == 0
    assert "increment" in veilset_here("publish", set_name, "--increment", settings=settings).complaint()
    assert veilset_here("publish", set_name, settings=settings).code == 0
    for _ in range(2):
        assert veilset_here("publish", set_name, "--increment", settings=settings).code == 0
    assert "used up" in veilset_here("publish", set_name, "--increment", settings=settings).complaint()
    listed = [line.split("\t") for line in veilset_here("releases", set_name, settings=settings).out.splitlines()]
    assert [(line[0], line[-1]) for line in listed] == [
        ("3", "increment 2 of 2 to release 1"),
        ("2", "increment 1 of 2 to release 1"),
        ("1", "ε=16"),
    ]
    shown = veilset_here("inspect", set_name, "--json", settings=settings).json()
    assert [part["sequence"] for part in shown["parts"]] == [1, 2, 3]
    assert (shown["generation"], shown["increment"], shown["planned_increments"]) == (1, 2, 2)
    budget = veilset_here("budget", set_name, "--json", settings=settings).json()
    assert budget["epsilon_spent"] == 16.0
    assert veilset_here("query", set_name, "user5", settings=settings).out.startswith("yes")
    assert veilset_here("fetch", set_name, "-o", str(tmp_path / "f"), settings=settings).code == 0
    assert open_manifest(read_manifest(io.BytesIO((tmp_path / "f").read_bytes()))).sequence == 1


@pytest.mark.parametrize(("epsilon", "worth"), [(8, True), (3, False)])
def test_a_plan_says_where_increments_are_not_worth_it(
    epsilon: int, worth: bool, veilset_here: Callable[..., Finished]
) -> None:
    plan = ("plan", "--size", "100000", "--epsilon", str(epsilon), "--adjacency", "add-remove", "--increments", "30")
    shown = veilset_here(*plan).out
    assert all(f"linear, {number} increment" in shown for number in (1, 15, 30))
    assert f"at most {math.tanh(epsilon / 62):.4f} each" in shown
    assert ("take fewer increments" in shown) is not worth


@pytest.mark.parametrize("encoding", [(), ("--encoding", "bloom")])
def test_a_plan_refuses_what_creation_refuses(encoding: tuple[str, ...], veilset_here: Callable[..., Finished]) -> None:
    """Alone it is an error; beside another encoding a line of the table."""
    plan = ("plan", "--size", "100000", "--epsilon", "8", "--adjacency", "replace-one", "--increments", "3", *encoding)
    done = veilset_here(*plan)
    assert "keep no promise under replace-one" in (done.complaint() if encoding else done.out)
    assert encoding or "bloom, 1 increment" not in done.out


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"increments": 1001}, "increments"),
        ({"increments": 3, "size": 0}, "increment_capacity"),
        ({"increment_capacity": 50}, "increment_capacity"),
        ({"removals_epsilon": 1.0}, "removals_epsilon"),
        ({"increments": 3, "removals_epsilon": 65.0}, "removals_epsilon"),
        ({"expire_days": 3661}, "expire_days"),
        ({"increments": 3, "removals_epsilon": 4.0, "budget_epsilon": 8.0}, "budget_epsilon"),
        ({"increments": 3, "adjacency": "replace-one", "encoding": "bloom", "calibration": "worst-case"}, "increments"),
    ],
)
def test_sets_that_cannot_be_are_refused_by_field(
    change: dict[str, object], field: str, service: ServiceProcess, set_name: str
) -> None:
    wanted = {"size": 1000, "epsilon": 8, "adjacency": "add-remove", "encoding": "linear", **change}
    with service.connect() as connection:
        with pytest.raises(InvalidInput) as caught:
            connection.create_set(set_name, **wanted)  # type: ignore[arg-type]
        assert caught.value.field == field
        with pytest.raises(NotFound):
            connection.get_set(set_name)


def test_a_request_id_stands_for_one_kind_of_release(service: ServiceProcess, set_name: str) -> None:
    with service.connect() as connection:
        connection.create_set(
            set_name, size=1000, epsilon=8, adjacency="add-remove", encoding="linear", increments=2, budget_epsilon=8
        )
        connection.add(set_name, ["a"])
        base = connection.publish(set_name, request_id="one")
        with pytest.raises(FailedPrecondition, match="made a base release"):
            connection.publish(set_name, request_id="one", increment=True)
        first = connection.publish(set_name, request_id="two", increment=True)
        assert (
            connection.publish(set_name, request_id="two", increment=True).sequence
            == first.sequence
            == base.sequence + 1
        )
        assert connection.budget(set_name).epsilon_spent == 8


def test_the_service_prices_removals_as_the_planner_does(service: ServiceProcess) -> None:
    privacy = PrivacyParameters(8.0, 0.0, Adjacency.ADD_REMOVE)
    request = pb.PlanReleaseRequest(
        size=SIZE,
        privacy=wire.privacy_to_proto(privacy),
        increments=INCREMENTS,
        removals_epsilon=10.0,
        encoding=parameters_pb2.Encoding(linear=parameters_pb2.LinearParameters()),
    )
    with service.stub() as stub:
        priced = stub.PlanRelease(request).plan
    planned = LinearParameters.plan(PlanRequest(SIZE, privacy, increments=INCREMENTS, removals_epsilon=10.0))
    assert priced.removal_rate == planned.removal_rate > 0.5
    assert [rates.bytes for rates in priced.generation] == [rates.bytes for rates in planned.milestones]
