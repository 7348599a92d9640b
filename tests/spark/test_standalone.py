"""A Spark cluster with a standalone master and two workers. Its daemons and the mirror share a
secret that is set in their `conf/spark-defaults.conf`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import spark_mirror
from tests.support.client import produce, read_all
from tests.support.command import Command
from tests.support.spark_mirror import PARTITIONS, Orders, arrived, as_copied
from tests.support.standalone import Cluster, spark_submit
from tests.support.topics import create_topic
from tests.support.verified import page_script

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

PARTITION_ENDS = 3000 // PARTITIONS
FRAMES = """
import sys
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from twinlog.records import partitioned, register
here, there, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
source = {"kafka.bootstrap.servers": here, "subscribe": topic, "includeHeaders": "true"}
target = {**source, "kafka.bootstrap.servers": there, "subscribe": f"A.{topic}", "upstream": "A"}
records = spark.read.format("twinlog").options(**source).load()
copies = spark.read.format("twinlog").options(**target, minPartitions="8").load()
same = [records[one] == copies["_upstream"][one] for one in ("topic", "partition", "offset")]
same += [records[one].eqNullSafe(copies[one]) for one in ("key", "value", "headers", "timestamp")]
print(records.join(copies, same).count(), copies.where("_upstream IS NOT NULL").count())
stream = spark.readStream.format("twinlog").options(**target, startingOffsets="earliest").load()
back = stream.where("_upstream.cluster = 'A'").drop("_upstream", "topic", "offset", "timestampType")
to = {"kafka.bootstrap.servers": here, "topic": f"{topic}-back"}
query = partitioned(back, to).writeStream.format("twinlog").options(**to)
query = query.option("checkpointLocation", sys.argv[0] + ".checkpoint").trigger(availableNow=True)
query.start().awaitTermination()
nothing = partitioned(records.where("false").select("key", "value"), to)
admin = AdminClient({"bootstrap.servers": here})
for grown in admin.create_partitions([NewPartitions(to["topic"], 99)]).values():
    grown.result()
nothing.write.format("twinlog").options(**to).mode("append").save()
"""


def submit(master: str, file: Path, script: str, *arguments: str) -> list[str]:
    """Submit a script that runs with this Python. Return the output lines of the script and of
    Spark.
    """
    file.write_text(script)
    python = {"PYSPARK_PYTHON": sys.executable}
    python["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return spark_submit("--master", master, str(file), *arguments, **python)


def test_executors_need_only_a_python_and_the_archive(
    orders: Orders, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, topic, file = orders.source, orders.target, orders.topic, str(orders.file)
    master = cluster.start(workers=2)
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    without = subprocess.run(
        [bare, "-c", "import twinlog"], capture_output=True, check=False, cwd=tmp_path
    )
    assert b"No module named 'twinlog'" in without.stderr
    archive = tmp_path / "executors.zip"
    with Command(tmp_path / "pack", "pack", "--output", str(archive)) as packing:
        assert packing.wait() == 0, packing.stderr
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    arguments = ("mirror", file, "--once", "--master", master, "--archive", str(archive))
    with Command(tmp_path / "run", *arguments) as mirror:
        assert mirror.wait() == 0, mirror.stderr
    assert orders.are_identical()
    question = ("verify", file, "--master", master, "--archive", str(archive))
    with Command(tmp_path / "same", *question) as verify:
        assert verify.wait() == 0, verify.stderr
    assert "3,000 records are equal" in verify.stdout
    produce(target, f"A.{topic}", spark_mirror.orders(1))
    with Command(tmp_path / "more", *question) as verify:
        assert verify.wait() == 1, verify.stderr
    line = r"extra: .*, 1 record: the source has no such record at this position$"
    assert re.search(line, verify.stdout, re.MULTILINE), verify.stdout
    both = (source.bootstrap, target.bootstrap)
    names = dict(zip(("localhost:9092", "localhost:9093"), both, strict=True))
    script = page_script({"mm2.properties": file, "spark://host:7077": master, **names})
    said = submit(master, tmp_path / "verify.py", script.replace("# command +=", "command +="))
    assert "different" in said
    (found,) = [line for line in said if line.startswith("extra")]
    assert found == f"extra {topic} 0 None [{PARTITION_ENDS}, {PARTITION_ENDS + 1}]"
    create_topic(source, f"{topic}-back", partitions=PARTITIONS)
    said = submit(master, tmp_path / "frames.py", FRAMES, *both, topic)
    assert "3000 3000" in said, said
    grown = f"-back has 99 partitions, but `partitioned` was called when it had {PARTITIONS}, "
    assert sum(grown in line for line in said) == 1, said
    here, back = (
        read_all(source, name, isolation="read_committed") for name in (topic, f"{topic}-back")
    )
    assert Counter(as_copied(back)) == Counter(as_copied(here))


def test_a_master_without_a_secret_is_refused_unless_named(
    orders: Orders, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    master = cluster.start(workers=2)
    arguments = ("mirror", str(orders.file), "--once", "--master", master)
    with Command(tmp_path / "refused", *arguments) as mirror:
        assert mirror.wait() == 2, mirror.stderr
    assert "[SPARK_UNAUTHENTICATED]" in mirror.stderr
    assert "`spark.authenticate.secret` in conf/spark-defaults.conf" in mirror.stderr
    assert arrived(orders.target, orders.topic) == 0
    with Command(tmp_path / "named", *arguments, "--allow-unauthenticated-spark") as mirror:
        assert mirror.wait() == 0, mirror.stderr
    assert "every client that reaches Spark's ports" in mirror.stderr
    assert orders.are_identical()
