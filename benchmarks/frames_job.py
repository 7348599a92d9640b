"""The program that `scripts/bench frames` measures, for both formats.

It runs in the Python environment of the measured Spark, in which the rest of this package is
missing. Before and after each step, the program prints one line of JSON and waits for a line, so
that its parent measures CPU and memory at this moment.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MICRO_BATCHES_S = 20.0
WARM_UP_BATCHES = 5


def main(task: dict[str, Any]) -> None:
    """Run every step once. A step that fails ends the program."""
    began = time.monotonic()
    spark = session(task)
    say(step="session", seconds=time.monotonic() - began, version=spark.version)
    frames = Frames(spark, task)
    measured("first row", lambda: len(frames.read(task["topic"]).limit(1).collect()))
    measured("next row", lambda: len(frames.read(task["topic"]).limit(1).collect()))
    measured("count", lambda: frames.read(task["topic"]).count())
    measured("count again", lambda: frames.read(task["topic"]).count())
    measured("to Parquet", frames.to_parquet)
    measured("from Parquet", frames.from_parquet)
    frames.micro_batches()
    spark.stop()


def session(task: dict[str, Any]) -> Any:
    """Return a session with the same settings for both formats, and for Twinlog's with those that
    docs/dataframes.md recommends.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", task["driver_memory"])
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    if task["jars"]:
        builder = builder.config("spark.jars", task["jars"])
    if task["format"] == "twinlog":
        builder = builder.config("spark.python.daemon.module", "twinlog.records.daemon")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if task["format"] == "twinlog":
        from twinlog.records import register

        register(spark)
    return spark


class Frames:
    """The reads and writes, which differ between the formats only in the format's name and in
    `partitioned`.
    """

    def __init__(self, spark: Any, task: dict[str, Any]) -> None:
        self.spark, self.task = spark, task
        self.kafka = {"kafka.bootstrap.servers": task["bootstrap"]}
        self.folder = Path(task["folder"])

    def read(self, topic: str) -> Any:
        reader = self.spark.read.format(self.task["format"]).options(**self.kafka)
        return reader.option("subscribe", topic).load()

    def to_parquet(self) -> int:
        rows = self.read(self.task["topic"]).select("key", "value")
        rows.write.mode("overwrite").parquet(str(self.folder / "rows"))
        return int(self.task["records"])

    def from_parquet(self) -> int:
        options = {**self.kafka, **self.task["producer"], "topic": self.task["into"]}
        rows = self.spark.read.parquet(str(self.folder / "rows"))
        if self.task["format"] == "twinlog":
            from twinlog.records import partitioned

            rows = partitioned(rows, options)
        rows.write.format(self.task["format"]).options(**options).mode("append").save()
        return int(self.task["records"])

    def micro_batches(self) -> None:
        """Run a query that reads a topic with steady traffic and discards the rows. Prints the
        durations of its micro-batches.
        """
        reader = self.spark.readStream.format(self.task["format"]).options(**self.kafka)
        rows = reader.option("subscribe", self.task["steady"]).load()
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )
        say(step="micro-batch", event="begin")
        time.sleep(MICRO_BATCHES_S)
        found = [one for one in query.recentProgress if one["numInputRows"]][WARM_UP_BATCHES:]
        query.stop()
        say(
            step="micro-batch",
            rows=sum(one["numInputRows"] for one in found),
            seconds=MICRO_BATCHES_S,
            times_ms=[one["durationMs"] for one in found],
        )


def measured(step: str, run: Callable[[], int]) -> None:
    """Run one step, and print a line before and after it."""
    say(step=step, event="begin")
    began = time.monotonic()
    rows = run()
    say(step=step, rows=rows, seconds=time.monotonic() - began)


def say(**what: Any) -> None:
    """Print a line of JSON, and wait until the parent responds."""
    print(json.dumps(what), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
