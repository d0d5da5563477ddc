"""A linear set through the whole product by the command line, from plan to overlap, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

import veilset as library
from harness.programs import Finished, veilset
from harness.service_process import ServiceProcess

MEMBERS = [f"user{number}@example.org" for number in range(3000)]
OTHERS = [f"other{number}@example.org" for number in range(3000)]
PROMISE = ("--epsilon", "5", "--adjacency", "add-remove")


@pytest.fixture
def run(service: ServiceProcess) -> Callable[..., Finished]:
    """The command line with the shared service's addresses in its environment."""

    def run(*arguments: str | Path | int) -> Finished:
        settings = {"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis}
        return veilset(*arguments, settings=settings)

    return run


@pytest.fixture
def lists(tmp_path: Path) -> dict[str, Path]:
    """Files of members, of others, and of half of both."""
    contents = {"members": MEMBERS, "others": OTHERS, "mixed": MEMBERS[:1500] + OTHERS[:1500]}
    for name, elements in contents.items():
        (tmp_path / name).write_text("\n".join(elements))
    return {name: tmp_path / name for name in contents}


def test_plan_shows_both_encodings_and_which_to_take(run: Callable[..., Finished]) -> None:
    shown = run("plan", "--size", 10**6, *PROMISE, "--max-fpr", "0.01")
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines()[1:3]] == ["bloom", "linear"]
    assert "linear (take it)" in shown.out
    plans = run("plan", "--size", 10**6, *PROMISE, "--max-fpr", "0.01", "--json").json()["encodings"]
    assert plans["linear"]["true_positive_rate"] > 0.99 > 0.7 > plans["bloom"]["true_positive_rate"]
    assert plans["linear"]["false_positive_rate"] <= 0.01


def test_plan_says_what_holds_the_answers_back(veilset_here: Callable[..., Finished]) -> None:
    plan = ("plan", "--size", "1000", "--epsilon", "3", "--adjacency")
    swapped, added = (veilset_here(*plan, relation).out for relation in ("replace-one", "add-remove"))
    assert "replace-one doubles the bits of a Bloom filter" in swapped
    assert "below about 5,000 elements declare the size" in added
    strict = veilset_here(*plan, "add-remove", "--encoding", "bloom", "--min-tpr", "0.9").out
    assert "the search ended at 64 bits per element" in strict
    assert "the search ended" not in veilset_here(*plan, "add-remove", "--encoding", "linear").out


def test_what_was_predicted_is_what_is_measured(
    run: Callable[..., Finished], service: ServiceProcess, set_name: str, lists: dict[str, Path]
) -> None:
    made = run(
        "create", set_name, "--encoding", "linear", "--size", 3000, *PROMISE, "--max-fpr", "0.02", "--json"
    ).json()
    assert (made["encoding"], made["planes"], made["band"], made["capacity"]) == ("linear", 6, 128, 3750)
    assert run("add", set_name, lists["members"], "--json").json()["elements"] == 3000
    assert run("publish", set_name, "--json").json()["delta"] == 0
    view = library.open(service.redis, set_name)
    for elements, rate in ((MEMBERS, made["true_positive_rate"]), (OTHERS, made["false_positive_rate"])):
        assert abs(view.contains_many(elements).mean() - rate) < 6 * math.sqrt(rate * (1 - rate) / len(elements))
    answers = run("query", set_name, "--from", lists["mixed"]).out.splitlines()
    expected = view.contains_many(MEMBERS[:1500] + OTHERS[:1500]).tolist()
    assert [line.startswith("yes\t") for line in answers] == expected
    in_place = run("query", set_name, "--remote", *MEMBERS[:3], *OTHERS[:3]).out.splitlines()
    assert [line.startswith("yes\t") for line in in_place] == view.contains_many(MEMBERS[:3] + OTHERS[:3]).tolist()
    overlap = run("overlap", set_name, lists["mixed"], "--json").json()
    assert abs(overlap["estimate"] - 1500) < 60
    facts = run("inspect", set_name, "--json").json()
    assert abs(facts["measured_false_positive_rate"] - made["false_positive_rate"]) < 6 * math.sqrt(1 / 64 / 2**14)
    assert (facts["saturated"], facts["size"], facts["delta"]) == (False, None, 0)
    assert facts["statement"]["assumption"] == "nothing about the hash"


def test_two_linear_releases_are_not_compared(
    run: Callable[..., Finished], set_name: str, lists: dict[str, Path]
) -> None:
    seed = ("--seed", "7", "--calibration", "worst-case")
    for name in (f"{set_name}.a", f"{set_name}.b"):
        run("create", name, "--encoding", "linear", "--size", 3000, *PROMISE, *seed)
        run("add", name, lists["members"])
        run("publish", name)
    refused = run("overlap", f"{set_name}.a", "--with", f"{set_name}.b")
    assert refused.code == 1
    assert "compare each with a list by overlap, or let both owners publish with the encoding bloom" in refused.err


def test_a_set_that_outgrew_its_capacity_is_called_saturated(
    run: Callable[..., Finished], set_name: str, lists: dict[str, Path]
) -> None:
    """By readers; the service publishes without a word, as how many there are is no public number."""
    run("create", set_name, "--encoding", "linear", "--size", 1000, *PROMISE)
    run("add", set_name, lists["members"])
    published = run("publish", set_name)
    assert (published.code, published.err) == (0, "")
    said = run("query", set_name, "anybody")
    assert said.err.startswith("veilset: warning: this release is saturated")
    assert said.out == "no\tanybody\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--encoding", "linear", "--bits", "64"), "bits"),
        (("--encoding", "bloom", "--columns", "1000"), "columns"),
        (("--encoding", "ribbon"), "encoding"),
        (("--encoding", "linear", "--columns", "5000", "--planes", "33"), "planes must be an integer in [1, 32]"),
        (("--encoding", "linear", "--columns", "100", "--planes", "4"), "columns must be an integer in [128, "),
        (
            ("--encoding", "linear", "--columns", "5000", "--planes", "4", "--band", "129"),
            "band must be an integer in",
        ),
        (("--encoding", "linear", "--max-bytes", "10"), "it takes "),
    ],
)
def test_bad_dimensions_are_refused_by_name(
    run: Callable[..., Finished], set_name: str, options: tuple[str, ...], said: str
) -> None:
    refused = run("create", set_name, "--size", 1000, *PROMISE, *options)
    assert refused.code != 0
    assert said in refused.err
    assert set_name not in run("sets").out.split()
