"""A Spark session of this process with `format("twinlog")`, and streams that write to topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from twinlog.records import partitioned, register
from twinlog.spark.gateway import start_jvm
from twinlog.spark.options import SparkOptions
from twinlog.spark.session import reset_pyspark
from twinlog.transforms.session import SETTINGS

__all__ = ["Query", "spark_session"]

ROOT: Final = Path(__file__).parents[2]
DAEMON: Final = "twinlog.records.daemon"
ROWS: Final = 20
"""Number of rows in an Arrow batch. It is small, so that a failing task has already written some of
its rows.
"""


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session on two cores, with the small JVM of mirrors. A task is tried up to three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")  # so that workers find their daemon
        # Spark 4.0 finds the data source with this Python
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        jvm = start_jvm(SparkOptions(), [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2,3]")
            .appName("data frames")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.liveUpdate.period", SETTINGS["spark.ui.liveUpdate.period"])
            .config("spark.python.daemon.module", DAEMON)
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        jvm.restore_environment()
        session.sparkContext.setLogLevel("OFF")
        register(session)
        yield session
    session.stop()
    reset_pyspark()
    jvm.stop()


class Query:
    """A streaming query that reads files, one for each micro-batch, and writes to a topic. It can
    be restarted from its checkpoint.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str], folder: Path) -> None:
        self.spark, self.options, self.folder = spark, dict(options), folder
        (folder / "in").mkdir()

    def add(self, *values: int) -> None:
        """Add the input file of one micro-batch."""
        name = f"{len(list((self.folder / 'in').iterdir())):03}.json"
        text = "".join(f'{{"id": {one}}}\n' for one in values)
        (self.folder / name).write_text(text)
        (self.folder / name).rename(self.folder / "in" / name)

    def run(
        self, change: Callable[[DataFrame], DataFrame] = lambda rows: rows, **more: str
    ) -> None:
        files = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        rows = files.json(str(self.folder / "in"))
        rows = rows.selectExpr("string(id) AS key", "string(id) AS value")
        query = (
            change(partitioned(rows, self.options))
            .writeStream.format("twinlog")
            .options(**self.options)
            .options(**{name.replace("_", "."): value for name, value in more.items()})
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def forget_the_last_commit(self) -> None:
        """Remove Spark's last commit file, as if Spark had died before it wrote this file."""
        notes = self.checkpoint / "commits"
        last = max(notes.glob("[0-9]*"), key=lambda file: int(file.name))
        (notes / f".{last.name}.crc").unlink(missing_ok=True)
        last.unlink()
