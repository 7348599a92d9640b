"""A stream that writes is killed at random moments: the driver with its JVM, or executors of a
cluster. A batch with a `writeId` is run again after its driver was killed. Each row is written
once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.client import eventually, read_all
from tests.support.eventually import PATIENCE_S
from tests.support.standalone import executors, standalone
from tests.support.topics import create_topic, delete_topic
from tests.support.write_loop import options_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.transactions import Transactions
from twinlog.errors import TwinlogError
from twinlog.records.write.transaction import OFFSETS_TOPIC, transactions
from twinlog.sandbox import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
]

FILES, ROWS = 12, 200

QUERY = """
import sys
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
bootstrap, topic, folder, master = sys.argv[1:]
spark = (
    SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "3").config("spark.speculation", "true")
    .config("spark.speculation.multiplier", "1.1").config("spark.speculation.quantile", "0.1")
    .getOrCreate()
)
register(spark)
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.max.request.size": "500"}
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
rows = partitioned(rows.selectExpr("string(id) AS key", "string(id) AS value"), options)
(
    rows.writeStream.format("twinlog").options(**options)
    .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    .awaitTermination()
)
"""

SPECULATIVE = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
bootstrap, topic, folder, master = sys.argv[1:]
spark = (
    SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    .config("spark.speculation", "true").config("spark.speculation.quantile", "0.5")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10").getOrCreate()
)
register(spark)
def slow(batches):
    context = TaskContext.get()
    run = f"run-{context.partitionId()}-"
    Path(folder, f"{run}{context.attemptNumber()}").touch()
    for number, batch in enumerate(batches):
        yield batch
        # the first run of this task waits for the second one, with rows in the log
        while number == 5 and run == "run-1-" and not Path(folder, "run-1-1").exists():
            time.sleep(0.1)
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.max.request.size": "5000"}
rows = spark.range(6000, numPartitions=2).selectExpr(
    "string(id) AS key", "lpad(string(id), 300, '0') AS value"
)
rows = partitioned(rows, options)
rows.mapInArrow(slow, rows.schema).write.format("twinlog").options(**options).mode("append").save()
"""

BEHIND_A_SHUFFLE = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
bootstrap, topic, folder, master = sys.argv[1:]
spark = (
    SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "4")
    .config("spark.sql.adaptive.enabled", "false").getOrCreate()
)
register(spark)
def waits(batches):
    Path(folder, f"writes-{TaskContext.get().partitionId()}").touch()
    for batch in batches:
        yield batch
    while not Path(folder, "killed").exists():
        time.sleep(0.1)
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.max.request.size": "500"}
rows = spark.range(6000, numPartitions=4).selectExpr("id % 3000 AS id").groupBy("id").count()
rows = partitioned(rows.selectExpr("string(id) AS key", "string(id) AS value"), options)
rows.mapInArrow(waits, rows.schema).write.format("twinlog").options(**options).mode("append").save()
"""
"""Script whose tasks wait after their rows were written to the log."""


WRITE = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
bootstrap, topic, write_id, folder, moment = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10").getOrCreate()
)
register(spark)
def waits(batches):
    Path(folder, "task").touch()
    for number, batch in enumerate(batches):
        while number == {"begun": 0, "rows": 3}.get(moment, -1):
            time.sleep(60)
        yield batch
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.max.request.size": "1000"}
rows = spark.range(3000, numPartitions=2).selectExpr("string(id) AS key", "string(id) AS value")
rows = partitioned(rows, options)
rows = rows.mapInArrow(waits, rows.schema)
rows.write.format("twinlog").options(**options).option("writeId", write_id).mode("append").save()
while moment:
    time.sleep(60)
"""
"""Script whose write does not end before the test kills it."""

BATCH_ROWS = 3000


class Killed:
    """A streaming query in its own process, which is killed and restarted from the same
    checkpoint.
    """

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path, master: str) -> None:
        self.cluster, self.topic, self.folder = cluster, topic, folder
        self.arguments = [cluster.bootstrap, topic, str(folder), master]
        (folder / "in").mkdir()
        self.files = 0
        self.fill(FILES)

    def fill(self, files: int) -> None:
        """Write input files until there are `files`. Each file becomes a micro-batch."""
        for number in range(self.files, files):
            ids = range(number * ROWS, (number + 1) * ROWS)
            text = "".join(json.dumps({"id": one}) + "\n" for one in ids)
            (self.folder / "in" / f"{number:03}.json").write_text(text)
        self.files = max(self.files, files)

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", QUERY, *self.arguments],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def noted(self) -> int:
        """Return the number of micro-batches that Spark has recorded as committed."""
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def begun(self) -> int:
        return len(list((self.folder / "checkpoint" / "offsets").glob("[0-9]*")))

    def finish(self) -> None:
        assert self.start().wait() == 0
        seen = read_all(self.cluster, self.topic, isolation="read_committed")
        assert sorted(int(one.value or b"-1") for one in seen) == list(range(self.files * ROWS))


class Write:
    """A batch write (`df.write`) in its own process, which is started repeatedly."""

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path) -> None:
        self._cluster, self._topic, self._folder = cluster, topic, folder
        self._write_id = f"write-{uuid.uuid4()}"
        self._options = options_for(cluster.bootstrap, topic, self._write_id)

    def start(self, moment: str = "") -> subprocess.Popen[bytes]:
        """Start the write, and return its process. `moment`: the point at which the test will kill
        it.
        """
        (self._folder / "task").unlink(missing_ok=True)
        arguments = [self._cluster.bootstrap, self._topic, self._write_id, str(self._folder)]
        return subprocess.Popen(
            [sys.executable, "-c", WRITE, *arguments, moment],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, moment: str) -> None:
        """Start the write, and kill its driver at the given moment."""
        running = self.start(moment)
        with ClusterClient(self._options.cluster()) as client:
            opened = transactions(client, self._options)

            def is_open() -> bool:
                assert running.poll() is None, "it has failed"
                return has_begun(opened)

            def is_marked() -> bool:
                return any(tp.topic == OFFSETS_TOPIC for tp in opened.describe().tps)

            eventually((self._folder / "task").exists, what="a task")
            if moment in ("rows", "marked"):
                eventually(is_open, what="an open transaction")
            if moment == "rows":
                eventually(lambda: self.rows("read_uncommitted"), what="rows")
            while moment == "marked" and is_open() and not is_marked():
                pass  # poll without a pause, because this state lasts only some milliseconds
            if moment == "committed":
                eventually(lambda: len(self.rows("read_committed")) == BATCH_ROWS, what="a commit")
            assert running.poll() is None
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            assert moment != "rows" or opened.describe().is_open

    def rows(self, isolation: str) -> list[int]:
        seen = read_all(self._cluster, self._topic, isolation=isolation)
        return sorted(int(one.value or b"-1") for one in seen)


def has_begun(opened: Transactions) -> bool:
    """Return True if a transaction is open."""
    try:
        return opened.describe().is_open
    except TwinlogError:
        return False  # the transactional ID does not exist yet


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic, 3)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.mark.parametrize(
    "who", ["driver", "batch driver", "executors", "the slower run", "a shuffle"]
)
def test_killed_at_any_moment(
    source_cluster: LocalCluster,
    topic: str,
    tmp_path: Path,
    conf: Path,
    who: str,
) -> None:
    assert conf.is_dir()
    if who == "the slower run":
        run_a_task_twice_at_once(source_cluster, topic, tmp_path)
        return
    if who == "a shuffle":
        lose_an_executor_with_what_was_shuffled(source_cluster, topic, tmp_path)
        return
    if who == "batch driver":
        write = Write(source_cluster, topic, tmp_path)
        for moment in ("begun", "rows", "marked", "committed"):
            write.kill(moment)
        assert write.start().wait() == 0
        assert write.rows("read_committed") == list(range(BATCH_ROWS))
        return
    if who == "driver":
        query = Killed(source_cluster, topic, tmp_path, "local[2,4]")
        kill_the_driver(query, random.Random(11))
        query.finish()
        return
    with standalone(tmp_path) as master:
        query = Killed(source_cluster, topic, tmp_path, master)
        running = query.start()
        # the transactional ID is derived from the checkpoint
        options = options_for(source_cluster.bootstrap, topic, f"{tmp_path}/checkpoint")
        with ClusterClient(options.cluster()) as client:
            opened = transactions(client, options)
            for wanted in (1, 4, 7):
                eventually(lambda wanted=wanted: query.noted() >= wanted, what="a commit")  # type: ignore[misc]
                eventually(lambda: has_begun(opened), what="the transaction of the next one")
                mine = [one for one in executors() if one.cwd().startswith(str(tmp_path))]
                mine[0].kill()
        assert running.wait() == 0
        query.finish()


def run_a_task_twice_at_once(source_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    """Spark runs a task twice by speculation. The slower run has written some of its rows. Each row
    must be in the topic once.
    """
    with standalone(tmp_path, ("127.0.0.1", "127.0.0.2")) as master:
        arguments = [source_cluster.bootstrap, topic, str(tmp_path), master]
        done = subprocess.run(
            [sys.executable, "-c", SPECULATIVE, *arguments],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    runs = sorted(one.name for one in tmp_path.glob("run-*"))
    assert {"run-1-0", "run-1-1"} <= set(runs), runs
    seen = read_all(source_cluster, topic, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == list(range(6000))


def lose_an_executor_with_what_was_shuffled(
    source_cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """The written rows come from a `groupBy`, and an executor is lost with its shuffled data. Spark
    runs the stage again, or fails the job (since 4.2). The topic must have all rows or none.
    """
    with standalone(tmp_path) as master:
        arguments = [source_cluster.bootstrap, topic, str(tmp_path), master]

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-c", BEHIND_A_SHUFFLE, *arguments],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )

        running = start()
        eventually(lambda: len(list(tmp_path.glob("writes-*"))) >= 2, what="tasks that write")
        mine = [one for one in executors() if one.cwd().startswith(str(tmp_path))]
        mine[0].kill()
        (tmp_path / "killed").touch()
        _, said = running.communicate(timeout=PATIENCE_S)
        seen = read_all(source_cluster, topic, isolation="read_committed")
        if running.returncode:
            assert seen == []
            assert "checksum" in said.lower(), said[-4000:]
            again = start()
            _, said = again.communicate(timeout=PATIENCE_S)
            assert again.returncode == 0, said[-4000:]
            seen = read_all(source_cluster, topic, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == list(range(3000))


def kill_the_driver(query: Killed, chance: random.Random) -> None:
    """Kill the driver and its JVM at twenty random moments at which it has rows to write."""
    kills = 0
    while kills < 20:
        before = query.begun()
        query.fill(before + FILES)
        running = query.start()
        eventually(
            lambda running=running, before=before: (  # type: ignore[misc]
                running.poll() is not None or query.begun() > before
            ),
            what="a micro-batch",
        )
        assert running.poll() is None, "it ends before its input does"
        time.sleep(chance.uniform(0, 4))  # a random moment
        kills += query.noted() < query.files
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
