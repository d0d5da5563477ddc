"""A data frame's column into a set by a real Spark in local mode: exactly the digests that an upload would have brought."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dying_tasks
import pytest

from harness.service_process import ServiceProcess
from harness.vectors import held_digests
from veilset import spark
from veilset._service.service import Service
from veilset.core.elements.hashing import digests
from veilset.core.params import HashScheme
from veilset.errors import AlreadyExists, FailedPrecondition, InvalidInput, NotFound
from veilset.spark import UploadPartition

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 or later on PATH"),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed: pip install 'veilset[spark]'"),
    pytest.mark.timeout(900),  # a Java machine and its Python workers start slowly where others work too
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Py4J leaves sockets to the garbage collector
]

ELEMENTS = 5_000
USERS = "concat(' User', id, '@EXAMPLE.com') AS email"


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """Spark on two threads of this machine, which runs a task that died again."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setitem(os.environ, "PYSPARK_PYTHON", sys.executable)
        patch.setitem(os.environ, "PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
        made = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate()
        made.sparkContext.addPyFile(dying_tasks.__file__)
        yield made
        made.stop()


def create(connection: Service, name: str, **more: Any) -> Any:
    """A set of e-mail addresses."""
    return connection.create_set(
        name, size=ELEMENTS, epsilon=2, adjacency="add-remove", normalization="email", allow_poor_utility=True, **more
    ).hashing


def expected(shape: Any, numbers: range, key: bytes | None = None) -> set[int]:
    """The digests of some users."""
    elements = [b"user%d@example.com" % number for number in numbers]
    return set(digests(elements, shape.scheme, shape.seed, key).tolist())


def test_a_column_becomes_what_an_upload_makes_of_it(service: ServiceProcess, set_name: str, session: Any) -> None:
    """Over many partitions, normalised by the executors, each distinct element of a partition sent once; a repetition under the
    same id changes nothing, and other data under it are refused."""
    with service.connect() as connection:
        shape = create(connection, set_name)
        frame = session.range(0, 2 * ELEMENTS, 1, 5).selectExpr("concat(' User', id DIV 2, '@EXAMPLE.com') AS email")
        result = spark.upload_column(connection, set_name, frame, "email", upload_id="u")
        assert (result.upload_id, result.elements, result.invalid) == ("u", ELEMENTS, 0)
        assert held_digests(service.state, set_name) == expected(shape, range(ELEMENTS))
        again = spark.upload_column(service.address, set_name, frame, "email", upload_id="u")
        assert again.elements == ELEMENTS
        with pytest.raises(AlreadyExists):
            spark.upload_column(connection, set_name, frame.limit(3), "email", upload_id="u")
        assert held_digests(service.state, set_name) == expected(shape, range(ELEMENTS))
        assert connection.publish(set_name).state == "published"


def test_a_column_is_removed_or_becomes_the_content(service: ServiceProcess, set_name: str, session: Any) -> None:
    with service.connect() as connection:
        shape = create(connection, set_name)
        frame = session.range(0, 100, 1, 3).selectExpr(USERS)
        spark.upload_column(connection, set_name, frame, "email")
        some = session.range(50, 150, 1, 3).selectExpr(USERS)
        spark.upload_column(connection, set_name, some, "email", operation="remove")
        assert held_digests(service.state, set_name) == expected(shape, range(50))
        spark.upload_column(connection, set_name, some, "email", operation="replace")
        assert held_digests(service.state, set_name) == expected(shape, range(50, 150))
        spark.upload_column(connection, set_name, some.limit(0), "email", operation="replace")
        assert held_digests(service.state, set_name) == set()


def test_a_task_that_is_killed_is_run_again(
    service: ServiceProcess, set_name: str, session: Any, tmp_path: Path
) -> None:
    """In every partition once, half through its data: nothing is lost, and nothing is in the set twice over."""
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    with service.connect() as connection:
        shape = create(connection, set_name)
        frame = session.range(0, ELEMENTS, 1, 3).selectExpr(USERS)
        dying = frame.mapInArrow(partial(dying_tasks.die_once, str(tmp_path)), "email string")
        result = spark.upload_column(connection, set_name, dying, "email")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
        assert result.elements == ELEMENTS
        assert held_digests(service.state, set_name) == expected(shape, range(ELEMENTS))


def test_a_task_that_is_killed_behind_its_upload_finds_it_there(
    service: ServiceProcess, set_name: str, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is sealed, and the same digests in the same order are what it holds."""
    monkeypatch.setattr(
        spark, "UploadPartition", lambda *given: dying_tasks.DyingPartition(UploadPartition(*given), str(tmp_path))
    )
    with service.connect() as connection:
        shape = create(connection, set_name)
        frame = session.range(0, ELEMENTS, 1, 3).selectExpr(USERS)
        result = spark.upload_column(connection, set_name, frame, "email", upload_id="u")
        assert len(list(tmp_path.iterdir())) == 3
        assert result.elements == ELEMENTS
        assert held_digests(service.state, set_name) == expected(shape, range(ELEMENTS))


def test_five_hundred_partitions_are_one_upload(service: ServiceProcess, set_name: str, session: Any) -> None:
    """Empty ones among them."""
    with service.connect() as connection:
        shape = create(connection, set_name)
        frame = session.range(0, ELEMENTS, 1, 500).where("id < 4000 OR id >= 4100").selectExpr(USERS)
        assert spark.upload_column(connection, set_name, frame, "email").elements == ELEMENTS - 100
        assert held_digests(service.state, set_name) == expected(shape, range(4000)) | expected(
            shape, range(4100, ELEMENTS)
        )


def test_a_keyed_scheme_is_hashed_by_the_executors(service: ServiceProcess, set_name: str, session: Any) -> None:
    """With the secret; the service never has it."""
    key = bytes(range(40))
    with service.connect() as connection:
        shape = create(connection, set_name, scheme="blake2b-1", key=key)
        assert shape.scheme is HashScheme.BLAKE2B
        frame = session.range(0, 2, 1, 1).selectExpr(USERS)
        for wrong in (None, key[::-1]):
            with pytest.raises(InvalidInput):
                spark.upload_column(connection, set_name, frame, "email", key=wrong)
        spark.upload_column(connection, set_name, frame, "email", key=key)
    assert held_digests(service.state, set_name) == expected(shape, range(2), key)


def test_bad_columns_change_nothing(service: ServiceProcess, set_name: str, session: Any) -> None:
    """Missing, of another type, with nulls or with what is no element: how many, and none of them by name."""
    rows = [("secret@example.com", 1), (None, 2), ("secret without a sign", 3), ("secret again", 4), (None, 5)]
    frame = session.createDataFrame(rows, "email string, number int")
    with service.connect() as connection:
        shape = create(connection, set_name)
        for column, of, told in (
            ("mail", frame, "email, number"),
            ("number", frame, "string or binary"),
            ("email", frame, "holds 2 nulls; drop"),
            ("email", frame.dropna(), "2 values that are no elements"),
        ):
            with pytest.raises(InvalidInput, match=told) as refused:
                spark.upload_column(connection, set_name, of, column)
            assert refused.value.field == "column"
            assert "secret" not in str(refused.value)
        with pytest.raises(NotFound):
            spark.upload_column(connection, f"{set_name}-none", frame, "email")
        with pytest.raises(FailedPrecondition, match="no finished upload"):
            connection.publish(set_name)
        result = spark.upload_column(connection, set_name, frame.dropna(), "email", skip_invalid=True)
        assert (result.elements, result.invalid) == (1, 2)
        assert held_digests(service.state, set_name) == set(digests([b"secret@example.com"], seed=shape.seed).tolist())
