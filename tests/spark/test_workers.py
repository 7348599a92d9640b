"""What our tasks leave in Spark's own Python workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.eventually import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TASKS = """
import gc, json, os, time
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from twinlog.records.batch_reader import BatchReader
from twinlog.records.options import parse_options

class Looking(DataSourceReader):
    # reads nothing as our reader does, then says what a collection has to look at
    def __init__(self, reader):
        self.reader = reader

    def read(self, partition):
        assert list(self.reader.read(InputPartition(None))) == []
        began = time.perf_counter()
        gc.collect()
        yield (json.dumps([os.getpid(), len(gc.get_objects()), time.perf_counter() - began]),)

class LookingSource(DataSource):
    @classmethod
    def name(cls):
        return "looking"

    def schema(self):
        return "said string"

    def reader(self, schema):
        given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}
        return Looking(BatchReader(parse_options(given, is_stream=False), ["value"]))

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
spark.dataSource.register(LookingSource)
for _ in range(3):
    print(spark.read.format("looking").load().collect()[0].said)
spark.stop()
"""


def test_what_lives_on_is_collected_once() -> None:
    """Spark collects garbage behind each task, and the next one waits for it."""
    done = subprocess.run(
        [sys.executable, "-c", TASKS],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *later = [json.loads(line) for line in done.stdout.splitlines()]
    worker, loaded, _ = first
    assert loaded > 30_000
    assert [pid for pid, _, _ in later] == [worker] * 2
    assert all(left < 5_000 for _, left, _ in later), done.stdout
