"""A data frame's column into a set by a real Spark in local mode: the very bits that an upload would have set."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from harness.service_process import ServiceProcess
from harness.vectors import expected_vector, raw_vector
from veilset import spark
from veilset.errors import FailedPrecondition, InvalidInput, NotFound

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 or later on PATH"),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed: pip install 'veilset[spark]'"),
    pytest.mark.timeout(900),  # a Java machine and its Python workers start slowly where others work too
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Py4J leaves sockets to the garbage collector
]

BITS = (66 << 23) + 77  # more chunks than one of Spark's partitions takes
ELEMENTS = 5_000
PARTITIONS = 5


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """Spark on two threads of this machine."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setitem(os.environ, "PYSPARK_PYTHON", sys.executable)
        patch.setitem(os.environ, "PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        made = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate()
        yield made
        made.stop()


def create(service: ServiceProcess, name: str, **more: Any) -> Any:
    """A set with a vector of 67 chunks."""
    with service.connect() as connection:
        return connection.create_set(
            name,
            size=ELEMENTS,
            epsilon=2,
            adjacency="add-remove",
            bits=BITS,
            hashes=3,
            normalization="email",
            allow_poor_utility=True,
            **more,
        )


def test_a_column_becomes_what_an_upload_makes_of_it(service: ServiceProcess, set_name: str, session: Any) -> None:
    """Bit for bit, over many partitions, normalised by the executors; a repetition under the same id changes nothing;
    what is published then is noise, charged, as ever."""
    shape = create(service, set_name).filter
    frame = session.range(0, ELEMENTS, 1, PARTITIONS).selectExpr("concat(' User', id, '@EXAMPLE.com') AS email", "id")
    with service.connect() as connection:
        result = spark.add_column(connection, set_name, frame, "email", upload_id="u")
        assert (result.upload_id, result.length, result.resumed) == ("u", shape.vector_bytes, 0)
        elements = [b"user%d@example.com" % number for number in range(ELEMENTS)]
        assert raw_vector(service.state, set_name) == expected_vector(shape, elements)
        again = spark.add_column(service.address, set_name, frame.limit(3), "email", upload_id="u")
        assert again.resumed == 67
        assert connection.publish(set_name).state == "published"
        assert connection.budget(set_name).charges == 1
    assert raw_vector(service.state, set_name) == expected_vector(shape, elements)


def test_a_keyed_scheme_is_hashed_by_the_executors(service: ServiceProcess, set_name: str, session: Any) -> None:
    """With the secret; the service never has it."""
    key = bytes(range(40))
    create(service, set_name, scheme="blake2b-1", key=key)
    frame = session.createDataFrame([("a@example.com",), ("b@example.com",)], "email string")
    with service.connect() as connection:
        for wrong in (None, key[::-1]):
            with pytest.raises(InvalidInput):
                spark.add_column(connection, set_name, frame, "email", key=wrong)
        spark.add_column(connection, set_name, frame, "email", key=key)
        merged = raw_vector(service.state, set_name)
        connection.add(set_name, ["a@example.com", "b@example.com"], key=key)
    assert any(merged)
    assert raw_vector(service.state, set_name) == merged


def test_bad_columns_are_refused_before_anything_is_sent(service: ServiceProcess, set_name: str, session: Any) -> None:
    """Missing, of another type, with nulls or with what is no element: how many, and none of them by name."""
    create(service, set_name)
    rows = [("secret@example.com", 1), (None, 2), ("secret without a sign", 3), ("secret again", 4), (None, 5)]
    frame = session.createDataFrame(rows, "email string, number int")
    with service.connect() as connection:
        for column, of, told in (
            ("mail", frame, "email, number"),
            ("number", frame, "string or binary"),
            ("email", frame, "there are 2;"),
            ("email", frame.dropna(), "and 2 values are none"),
        ):
            with pytest.raises(InvalidInput, match=told) as refused:
                spark.add_column(connection, set_name, of, column)
            assert refused.value.field == "column"
            assert "secret" not in str(refused.value)
        with pytest.raises(NotFound):
            spark.add_column(connection, f"{set_name}-none", frame, "email")
        with pytest.raises(FailedPrecondition, match="no finished upload"):
            connection.publish(set_name)
    assert not any(raw_vector(service.state, set_name))
