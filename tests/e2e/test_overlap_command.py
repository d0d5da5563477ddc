"""``veilset overlap`` and ``query --posterior``: the same numbers as the library's, from files and from Redis."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import veilset as library
from harness.programs import Finished, veilset
from harness.releases import release_bytes
from harness.service_process import ServiceProcess
from harness.shapes import FilterParameters

SHAPE = FilterParameters(16_384, 1, seed=11)
MEMBERS = [f"user{number}" for number in range(3000)]
OWN = [f"user{number}" for number in range(2500, 4500)]

Here = Callable[..., Finished]


@pytest.fixture
def saved(tmp_path: Path) -> dict[str, str]:
    """Three saved releases: two that fit together, and one of another seed."""
    releases = {
        "members": release_bytes(MEMBERS, SHAPE, 4.0),
        "partner": release_bytes(OWN, SHAPE, 3.0, name="partner", sequence=2),
        "other": release_bytes(OWN, FilterParameters(16_384, 1, seed=12), 4.0, name="other"),
    }
    for name, data in releases.items():
        (tmp_path / name).write_bytes(data)
    return {name: str(tmp_path / name) for name in releases}


def test_an_own_list_from_files(veilset_here: Here, saved: dict[str, str], tmp_path: Path) -> None:
    """Several files, with repetitions, make one list."""
    lines, table = tmp_path / "lines.txt.gz", tmp_path / "table.csv"
    lines.write_bytes(gzip.compress("\n".join(OWN[:1500]).encode()))
    table.write_text("account,n\n" + "".join(f"{element},1\n" for element in OWN[1000:]))
    parts = [tmp_path / "all.csv"]
    parts[0].write_text("account\n" + "\n".join(OWN + OWN[:99]))
    source = ("--release", saved["members"])
    found = json.loads(veilset_here("overlap", "members", str(parts[0]), "--column", "account", *source, "--json").out)
    view = library.open(saved["members"])
    assert found == {"set": "members", "sequence": 1} | asdict(view.overlap(OWN))
    sure = veilset_here("overlap", "members", str(lines), *source, "--confidence", "0.99", "--json")
    assert json.loads(sure.out) == {"set": "members", "sequence": 1} | asdict(view.overlap(OWN[:1500], 0.99))
    text = veilset_here("overlap", "members", str(table), "--column", "account", *source)
    expected = view.overlap(OWN[1000:])
    assert (text.code, text.err) == (0, "")
    assert text.out == (
        f"{expected.estimate:,.0f} of 1,000 elements in members/1, {expected.low:,.0f} to {expected.high:,.0f} at 95%\n"
    )


def test_two_saved_releases(veilset_here: Here, saved: dict[str, str]) -> None:
    arguments = ("overlap", "members", "--release", saved["members"], "--with", "partner", "--with-release")
    found = json.loads(veilset_here(*arguments, saved["partner"], "--json").out)
    expected = asdict(library.open(saved["members"]).compare(library.open(saved["partner"])))
    expected["left"] |= {"set": "members", "sequence": 1}
    expected["right"] |= {"set": "partner", "sequence": 2}
    assert found == expected
    shown = veilset_here(*arguments, saved["partner"]).out.splitlines()
    assert [line.split("  ")[0] for line in shown] == ["members/1", "partner/2", "together", "in common", "Jaccard"]

    refused = veilset_here(*arguments[:-2], "other", "--with-release", saved["other"])
    assert refused.code == 2
    assert refused.complaint().startswith("The two sides differ in seed: members/1 has 11, other/1 has 12")


def test_saturated_releases_have_no_upper_end(veilset_here: Here, tmp_path: Path) -> None:
    """In JSON that is null, for JSON knows no infinity; the help tells of it."""
    shape = FilterParameters(1024, 4, seed=3)
    for name, first in (("a", 0), ("b", 1500)):
        elements = [f"user{number}" for number in range(first, first + 3000)]
        (tmp_path / name).write_bytes(release_bytes(elements, shape, 12.0, name=name))
    other = ("--with", "b", "--with-release", str(tmp_path / "b"))
    sure = ("--confidence", "0.999999999")  # or noise would end an interval once in twenty runs
    arguments = ("overlap", "a", "--release", str(tmp_path / "a"), *other, *sure)
    found = json.loads(veilset_here(*arguments, "--json").out, parse_constant=pytest.fail)
    assert [found[name]["high"] for name in ("left", "right", "union", "intersection")] == [None] * 4
    assert found["intersection"]["low"] == 0
    assert found["jaccard"]["high"] <= 1
    shown = veilset_here(*arguments).out.splitlines()
    for line in shown[:4]:
        assert re.search(r"at least [\d,]+ elements at \S+%: saturated$", line), line
    assert "at least 0 elements" in shown[3]
    assert "saturated" in veilset_here("overlap", "--help").out


def test_two_sets_in_one_redis(service: ServiceProcess, set_name: str) -> None:
    """Sets created alike, published, and compared where they are; an own list from standard input."""
    settings = {"VEILSET_SERVER": service.address, "VEILSET_REDIS": service.redis}
    alike = ("--size", "3000", "--epsilon", "4", "--adjacency", "add-remove", "--bits", "16384", "--hashes", "1")
    for name, elements in ((set_name, MEMBERS), (f"{set_name}-b", OWN)):
        veilset("create", name, *alike, "--seed", "11", "--json", settings=settings).json()
        veilset("add", name, "-", "--json", stdin="\n".join(elements).encode(), settings=settings).json()
        veilset("publish", name, "--json", settings=settings).json()
    found = veilset("overlap", set_name, "--with", f"{set_name}-b", "--json", settings=settings).json()
    views = [library.open(service.redis, name) for name in (set_name, f"{set_name}-b")]
    assert found["intersection"] == asdict(views[0].compare(views[1]).intersection)
    stdin = "\n".join(OWN).encode()
    listed = veilset("overlap", set_name, "-", "--json", stdin=stdin, settings=settings).json()
    assert listed["estimate"] == views[0].overlap(OWN).estimate


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "files and --with OTHER_SET exclude each other"),
        (("list.txt", "--with", "partner"), "exclude each other"),
        (("list.txt", "--with-sequence", "3"), "with is needed: name the other set"),
        (("--with", "partner", "--column", "a"), "files are needed with options for files"),
        (("--with", "partner"), "with-redis is needed, or --with-release FILE, since SET comes from a file"),
        (
            ("--with", "partner", "--with-release", "a", "--with-redis", "redis://b"),
            "with-redis and --with-release exclude each other",
        ),
        (("list.txt", "--confidence", "1"), "confidence must be a number in (0, 1)"),
        (("nowhere.txt",), "nowhere.txt cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused(
    veilset_here: Here, saved: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "list.txt").write_text("someone\n")
    placed = [str(tmp_path / argument) if argument.endswith(".txt") else argument for argument in arguments]
    done = veilset_here("overlap", "members", "--release", saved["members"], *placed)
    assert done.code == 2
    assert words in done.complaint()


def test_posteriors_beside_the_answers(veilset_here: Here, saved: dict[str, str]) -> None:
    """With --json and without, alone and after the scores."""
    asked = (MEMBERS[0], "nobody")
    view = library.open(saved["members"])
    source = ("--release", saved["members"], "--posterior", "0.1")
    answers = [
        json.loads(line) for line in veilset_here("query", "members", *asked, *source, "--json").out.splitlines()
    ]
    assert [answer["posterior"] for answer in answers] == view.posteriors(asked, 0.1).tolist()
    rows = [line.split("\t") for line in veilset_here("query", "members", *asked, *source, "--scores").out.splitlines()]
    assert [row[1:] for row in rows] == [
        [f"{score:+.4f}", f"{posterior:.6f}", element]
        for element, score, posterior in zip(asked, view.scores(asked), view.posteriors(asked, 0.1), strict=True)
    ]
    refused = veilset_here("query", "members", "a", "--release", saved["members"], "--posterior", "2")
    assert refused.complaint() == "prior must be a probability in [0, 1]"


def test_a_rate_out_of_reach_says_what_would_do(veilset_here: Here, tmp_path: Path) -> None:
    """FPR 0.001 at ε = 1."""
    (tmp_path / "weak").write_bytes(release_bytes(MEMBERS, SHAPE, 1.0, name="weak"))
    done = veilset_here("query", "weak", "a", "--release", str(tmp_path / "weak"), "--threshold-fpr", "0.001")
    assert done.code == 1
    for words in ("the smallest possible is", "veilset plan", "At epsilon 1 no release of any size", "0.272%"):
        assert words in done.complaint()
