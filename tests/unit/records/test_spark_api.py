"""Features that an older PySpark lacks are refused with the version that has them. Features that
are slow in it cause a warning.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.sql.types import BinaryType, StructField, StructType

from twinlog.errors import EnvironmentMissing
from twinlog.records import register, source
from twinlog.records.source import TwinlogSource
from twinlog.wire.kernels.chosen import CHOSEN, VARIABLE, ChosenKernels

LEAST = {"kafka.bootstrap.servers": "nobody.invalid:1", "subscribe": "orders"}
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_that_spark_would_not_ask_for(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    limited = TwinlogSource({**LEAST, limit: "8"})
    monkeypatch.setattr(source, "HAS_LIMITS", True)
    assert isinstance(limited.streamReader(SCHEMA).partitions({}, {}), list)
    monkeypatch.setattr(source, "HAS_LIMITS", False)
    with pytest.raises(EnvironmentMissing, match=r"micro-batches needs Spark 4\.2 or newer"):
        limited.streamReader(SCHEMA)
    unlimited = TwinlogSource(LEAST)
    assert isinstance(unlimited.streamReader(SCHEMA).partitions({}, {}), list)


def test_streams_that_spark_cannot_write_with_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HAS_STREAM_WRITERS", False)
    written = TwinlogSource({"kafka.bootstrap.servers": "nobody.invalid:1", "topic": "orders"})
    with pytest.raises(EnvironmentMissing, match=r"df\.writeStream needs Spark 4\.1 or newer"):
        written.streamWriter(SCHEMA, overwrite=False)


def test_filters_that_spark_would_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = TwinlogSource({**LEAST, "pushFilters": "true"})
    monkeypatch.setattr(source, "HAS_FILTERS", False)
    with pytest.raises(EnvironmentMissing, match=r"pushFilters needs Spark 4\.1 or newer"):
        filtered.reader(SCHEMA)
    assert TwinlogSource({**LEAST, "pushFilters": "false"}).reader(SCHEMA)


def test_each_query_says_that_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    read = TwinlogSource(LEAST)
    read.reader(SCHEMA)
    read.streamReader(SCHEMA)
    assert len(caplog.messages) == (0 if CHOSEN.is_compiled else 2)
    caplog.clear()
    source.warn_of_slow_kernels(ChosenKernels(tmp_path / "no library"))
    (line,) = caplog.messages
    assert "[KERNELS_MISSING]" in line
    assert "install a wheel for this platform, or install a C compiler" in line


def session(context: object) -> Any:
    source_of_sources = SimpleNamespace(register=lambda _: None)
    return SimpleNamespace(sparkContext=context, dataSource=source_of_sources)


@pytest.mark.parametrize(
    ("exit_code", "warns"), [(1, True), (0, False)], ids=["without", "with Twinlog"]
)
def test_workers_with_another_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, exit_code: int, *, warns: bool
) -> None:
    """Without PYSPARK_PYTHON, Spark uses the first python3 in PATH for workers. Only if this Python
    cannot import twinlog, a warning says so.
    """
    other = tmp_path / "python3"
    other.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    other.chmod(0o755)
    register(session(SimpleNamespace(pythonExec=str(other))))
    said = f"run {other}, which cannot import twinlog"
    assert (said in caplog.text) is warns
    assert (f"PYSPARK_PYTHON={sys.executable}" in caplog.text) is warns


def test_workers_with_this_python_or_one_that_is_not_here(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", None)  # fails if the other Python is run
    for python in (sys.executable, "/only/on/executors/python"):
        register(session(SimpleNamespace(pythonExec=python)))

    class Connect:
        dataSource = SimpleNamespace(register=lambda _: None)

        @property
        def sparkContext(self) -> object:
            raise PySparkAttributeError("no such attribute")

    over_connect: Any = Connect()
    register(over_connect)
    assert caplog.text == ""
