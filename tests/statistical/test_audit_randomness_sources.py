"""The static gate (A8): nothing that ships can be seeded or draws from anything but the operating system's entropy.

A seeded generator can pass every statistical test of one process; only the source code gives it away.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import veilset
import veilset_server
from veilset.core.encodings.bloom import response
from veilset_server.state.entropy import AesKeyStream, OsEntropy

PACKAGES = [Path(next(iter(package.__path__))) for package in (veilset, veilset_server)]
GENERATED = PACKAGES[0] / "v1"
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py")) if not path.is_relative_to(GENERATED)]

BANNED_MODULES = {"random", "numpy.random", "scipy.stats"}
BANNED_NAMES = {
    "default_rng", "RandomState", "SeedSequence", "PCG64", "MT19937", "Philox", "SFC64", "SystemRandom", "rvs",
}  # fmt: skip
BANNED_PARAMETERS = {"rng", "prng", "random_state", "random_seed", "noise_seed", "generator"}
# Modules that make or use noise; a seed of the hash, which is public, passes through others.
WITHOUT_ANY_SEED = {"response.py", "counts.py", "entropy.py", "publishing.py"}
FLOATING = {"float", "complex", "math", "decimal", "fractions", "divide", "true_divide", "inexact", "double", "half"}


def banned_sources(tree: ast.AST) -> Iterator[str]:
    """Imports and names of generators that are not the operating system's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in BANNED_MODULES)
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in [node.module or "", *full] if name in BANNED_MODULES)
            yield from (alias.name for alias in node.names if alias.name in BANNED_NAMES)
        elif isinstance(node, ast.Attribute) and (
            node.attr in BANNED_NAMES or ast.unparse(node) in ("np.random", "numpy.random")
        ):
            yield ast.unparse(node)


def banned_parameters(tree: ast.AST, also: frozenset[str] = frozenset()) -> Iterator[str]:
    """Parameters, in definitions and in calls, by which noise could be made to repeat."""
    for node in ast.walk(tree):
        name = node.arg if isinstance(node, ast.arg | ast.keyword) else None
        if name in BANNED_PARAMETERS | also:
            yield f"parameter {name}"


def floating_point(tree: ast.AST) -> Iterator[str]:
    """Constants, divisions, names and types of floating point."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            yield repr(node.value)
        elif isinstance(node, ast.Div):
            yield "true division"
        else:
            name = _name(node)
            if name in FLOATING or name.startswith(("float", "complex")):
                yield name


def _name(node: ast.AST) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
            return name
        case ast.ImportFrom(module=str(name)):
            return name
    return ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_the_systems_entropy(path: Path) -> None:
    """No other generator is imported or named, and no parameter could bring one in."""
    tree = ast.parse(path.read_text())
    also = frozenset({"seed"}) if path.name in WITHOUT_ANY_SEED else frozenset()
    assert [*banned_sources(tree), *banned_parameters(tree, also)] == []


def test_every_module_that_makes_noise_was_read() -> None:
    """The names above are those of files that exist."""
    assert {path.name for path in SOURCES} >= WITHOUT_ANY_SEED


def test_the_sampler_computes_in_integers() -> None:
    """No floating point in the module of the comparison."""
    assert list(floating_point(ast.parse(inspect.getsource(response)))) == []


def test_one_source_of_noise_and_it_takes_no_seed() -> None:
    """Besides the port's protocol one class makes keystreams, from nothing that a caller could give."""
    makers = {
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(member, ast.FunctionDef) and member.name == "keystream" for member in node.body)
    }
    assert makers == {"Entropy", "OsEntropy"}
    for maker in (OsEntropy, AesKeyStream, OsEntropy().keystream, OsEntropy().seed32):
        assert not inspect.signature(maker).parameters
    first, second = OsEntropy().keystream(), OsEntropy().keystream()
    assert len({first(32), first(32), second(32), second(32)}) == 4
    assert [len(first(length)) for length in (0, 1, 1 << 20, (1 << 20) + 1)] == [0, 1, 1 << 20, (1 << 20) + 1]


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import numpy.random as r",
        "from random import getrandbits",
        "from numpy import random",
        "from numpy.random import default_rng",
        "noise = np.random.bytes(8)",
        "stream = secrets.SystemRandom()",
        "from secrets import SystemRandom",
        "def f(vector, rng=None): pass",
        "perturb(vector, random_state=7)",
    ],
)
def test_the_gate_sees_planted_sources(source: str) -> None:
    """What it must never let through."""
    tree = ast.parse(source)
    assert [*banned_sources(tree), *banned_parameters(tree)]


@pytest.mark.parametrize(
    "source",
    [
        "x = 0.5",
        "x = a / b",
        "x /= 2",
        "x = float(a)",
        "x = a.astype(np.float32)",
        "import math",
        "from math import exp",
    ],
)
def test_the_gate_sees_planted_floats(source: str) -> None:
    """Whatever way they come."""
    assert list(floating_point(ast.parse(source)))
