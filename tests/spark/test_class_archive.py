"""When Spark starts, its JVM loads classes from an archive if one exists. The process imports no
Python module that only DataFrames need.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import PATIENCE_S
from twinlog.spark import gateway
from twinlog.spark.session import start_spark, stop_spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def maps_of_the_jvm() -> str:
    """Start Spark and run a job. Return the list of files that its JVM has mapped."""
    engine = start_spark(None, 1)
    try:
        assert engine.context.parallelize([1, 2], 2).count() == 2
        shell = psutil.Process(engine.gateway.process.pid)
        (jvm,) = (one for one in shell.children(recursive=True) if one.name() == "java")
        return Path(f"/proc/{jvm.pid}/maps").read_text()
    finally:
        stop_spark(engine)


DRIVER = f"""
import json, sys
from pathlib import Path
import psutil
from twinlog.spark.session import start_spark, stop_spark
{inspect.getsource(maps_of_the_jvm)}
maps = maps_of_the_jvm()
print(json.dumps([maps, *{{name.partition(".")[0] for name in sys.modules}}]))
"""


def test_it_loads_classes_of_an_archive_and_neither_pandas_nor_arrow() -> None:
    archive = gateway.spark_archive()
    assert archive.exists(), "scripts/setup makes it"
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    maps, *loaded = json.loads(done.stdout)
    assert str(archive) in maps
    assert "pyspark" in loaded
    assert {"pandas", "pyarrow", "numpy", "starlette", "pydantic"}.isdisjoint(loaded)


def test_with_a_damaged_one_it_starts_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"no archive" * 1000)
    monkeypatch.setattr(gateway, "spark_archive", lambda: archive)
    assert str(archive) not in maps_of_the_jvm()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
