"""Spark finds the format without registration, by the module `pyspark_twinlog`."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import LongType, StructType

from pyspark_twinlog import DefaultSource
from twinlog.errors import EnvironmentMissing
from twinlog.model import TopicPartition
from twinlog.records.batch_reader import FilteringReader
from twinlog.records.source import TwinlogSource
from twinlog.records.spark_api import HAS_FILTERS

SCHEMA = StructType().add("offset", LongType())
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_it_is_the_same_source() -> None:
    """Spark imports the class `DefaultSource` by its name and creates an instance, which must be
    the Twinlog source.
    """
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == TwinlogSource.name()
    found = pickle.loads(pickle.dumps(DefaultSource))(options=GIVEN)  # noqa: S301 (our own)
    assert type(found) is TwinlogSource
    assert found.options == GIVEN


def test_looking_loads_nothing_of_twinlog() -> None:
    script = (
        "import sys, pyspark_twinlog\n"
        "print([name for name in sys.modules if name.startswith(('twinlog', 'pyarrow'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "twinlog" not in done.stdout


def test_without_pyarrow_it_is_an_error_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentMissing, match=r"pip install .*'pyarrow>=18'"):
        DefaultSource(GIVEN)


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark passes no filters before 4.1")
def test_filters_narrow_only_a_reader_with_that_option() -> None:
    """Only a reader with the option `pushFilters` overrides the method `pushFilters`, because Spark
    pushes filters to every reader that does.
    """
    found = [
        TwinlogSource({**GIVEN, **more}).reader(SCHEMA) for more in ({}, {"pushFilters": "true"})
    ]
    assert [type(one).pushFilters is DataSourceReader.pushFilters for one in found] == [True, False]
    reader = found[1]
    assert isinstance(reader, FilteringReader)
    filters = [datasource.EqualTo(("partition",), 1), datasource.GreaterThan(("offset",), 4)]
    kept = [*reader.pushFilters(filters)]
    assert all(one is other for one, other in zip(kept, filters, strict=True))
    bounds = reader._bounds
    assert bounds.admit(TopicPartition("orders", 1))
    assert not bounds.admit(TopicPartition("orders", 0))
