"""A third encoding in a folder of its own goes through the whole product by one line of registration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import toy_encoding
import veilset
from harness.releases import release_bytes
from harness.service_process import ServiceProcess, running
from harness.shapes import FilterParameters
from toy_encoding.parameters import CellParameters
from veilset._report.facts import describe_release
from veilset._report.page import release_page
from veilset._service.spec import Spec
from veilset.core.encodings import ENCODINGS
from veilset.errors import BudgetExceeded, InvalidInput, NotComparable, ReleaseRejected, Unsupported

MEMBERS = [f"member-{number}" for number in range(2000)]
OTHERS = [f"other-{number}" for number in range(2000)]


@pytest.fixture(scope="module")
def toy_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that knows the toy encoding."""
    program = [str(Path(toy_encoding.__file__).with_name("serve.py"))]
    with running(ServiceProcess(tmp_path_factory.mktemp("toy") / "state", program=program)) as process:
        yield process


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy encoding, known to this process too."""
    monkeypatch.setitem(ENCODINGS, CellParameters.encoding, CellParameters)


@pytest.mark.usefixtures("registered")
def test_create_add_publish_and_ask(toy_service: ServiceProcess, set_name: str, tmp_path: Path) -> None:
    """Planned or by its dimensions; local and remote; charged, described, saved, and compared no further than it can be."""
    with toy_service.connect() as service:
        made = service.create_set(
            set_name, size=2000, epsilon=5, delta=1e-9, adjacency="add-remove", encoding="cells", budget_epsilon=12
        )
        assert made.encoding == CellParameters.calibrate(made.privacy, {"cells": 16_000})
        service.add(set_name, MEMBERS)
        release = service.publish(set_name)
        assert (release.header.privacy.delta, release.header.encoding) == (0.0, made.encoding)
        own = service.publish(set_name, epsilon=2, cells=40_000)
        assert own.header.encoding.dimensions() == {"cells": 40_000}
        service.publish(set_name)
        assert service.budget(set_name).epsilon_spent == 12
    view = veilset.open(toy_service.redis, set_name, sequence=1, public_keys=[toy_service.public_key])
    detected, mistaken = view.contains_many(MEMBERS).mean(), view.contains_many(OTHERS).mean()
    assert abs(detected - view.decoder.true_positive_rate) < 0.05
    assert abs(mistaken - view.decoder.false_positive_rate) < 0.06
    with veilset.remote(toy_service.redis, set_name, sequence=1) as remote:
        assert remote.scores(MEMBERS[:50]).tolist() == view.scores(MEMBERS[:50]).tolist()
    assert 500 < view.overlap(MEMBERS[:1000] + OTHERS[:1000]).estimate < 1500
    view.save(tmp_path / "saved")
    assert veilset.open(tmp_path / "saved").header == view.header
    facts = describe_release(view, pinned=True)
    assert (facts["encoding"], facts["cells"], facts["size"]) == ("cells", 16_000, None)
    assert "16,000" in release_page(view, pinned=True)
    with pytest.raises(Unsupported):
        view.compare(veilset.open(toy_service.redis, set_name, sequence=3))
    with pytest.raises(NotComparable, match="encoding"):
        view.compare(veilset.open(release_bytes(["a"], FilterParameters(64, 1), 3.0)))


@pytest.mark.usefixtures("registered")
def test_a_spec_names_it() -> None:
    """And its dimensions."""
    spec = Spec.plan(size=100, epsilon=3, adjacency="add-remove", encoding="cells")
    assert spec.fields()["encoding"] == "cells"
    assert spec.fields()["cells"] == 800


def test_who_does_not_know_it_says_so(toy_service: ServiceProcess, service: ServiceProcess, set_name: str) -> None:
    """A reader, and a service."""
    program = {"size": 100, "epsilon": 3, "adjacency": "add-remove"}
    with toy_service.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENCODINGS, CellParameters.encoding, CellParameters)
        connection.create_set(set_name, encoding="cells", **program)  # type: ignore[arg-type]
        connection.add(set_name, MEMBERS)
        connection.publish(set_name)
        with service.connect() as other, pytest.raises(InvalidInput, match="encoding must be one of bloom"):
            other.create_set(set_name, encoding="cells", **program)  # type: ignore[arg-type]
    with pytest.raises(ReleaseRejected, match="encoding must be one of bloom, linear, not 'cells'"):
        veilset.open(toy_service.redis, set_name)


def test_a_release_may_have_an_epsilon_and_an_encoding_of_its_own(service: ServiceProcess, set_name: str) -> None:
    """Charged as they are; a repeated request has to say the same; what the budget does not hold is refused."""
    with service.connect() as connection:
        connection.create_set(set_name, size=2000, epsilon=4, adjacency="add-remove", budget_epsilon=10)
        connection.add(set_name, MEMBERS)
        made = connection.publish(set_name, request_id="partner", epsilon=3, encoding="linear")
        assert made.header.encoding.encoding == "linear"
        assert (made.header.privacy.epsilon, connection.budget(set_name).epsilon_spent) == (3, 3)
        again = connection.publish(set_name, request_id="partner", epsilon=3, encoding="linear")
        assert (again.sequence, connection.budget(set_name).epsilon_spent) == (made.sequence, 3)
        for change in ({"epsilon": 2}, {}):
            with pytest.raises(veilset.errors.FailedPrecondition, match="request_id"):
                connection.publish(set_name, request_id="partner", encoding="linear", **change)  # type: ignore[arg-type]
        own = connection.publish(set_name, bits=64_000, hashes=2)
        assert own.header.encoding.dimensions() == {"bits": 64_000, "hashes": 2}
        with pytest.raises(BudgetExceeded):
            connection.publish(set_name, epsilon=3.1)
        with pytest.raises(InvalidInput, match="epsilon"):
            connection.publish(set_name, epsilon=65)
        with pytest.raises(InvalidInput, match="cells"):
            connection.publish(set_name, cells=65)
    view = veilset.open(service.redis, set_name, sequence=made.sequence)
    assert view.contains_many(MEMBERS).mean() > 0.85
    assert view.contains_many(OTHERS).mean() < 0.2
