"""Other versions of Kafka on either side. The tests here run the oldest pair, and `scripts/matrix`
runs every pair.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support import surgery
from tests.support.client import Outgoing, produce, produce_transaction, read_all
from tests.support.data_frames import spark_session
from tests.support.groups import Pair, committed
from tests.support.kafka_versions import SOURCES, TARGETS, cluster_of
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.rig import Rig
from tests.support.rig import kill as kill_pids
from tests.support.share import begin_at
from tests.support.topics import create_topic
from twinlog.cli.main import run
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.records import partitioned
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("versions")]

OLDEST = (SOURCES[0], TARGETS[0])
WRITES_OLD_FORMATS = "2.8.2"
"""The last version that writes the old formats. Versions from 3.0 on always write magic 2, whatever
message.format.version is.
"""

BEFORE_WRITERS = "2.8.2"
"""The last version without DescribeTransactions, which writing DataFrames needs."""

WITH_SHARE_GROUPS = ("4.3.0",)
"""Versions in which start offsets of share groups can be set."""

MAGIC_AT = 16
"""Offset of the magic byte in a batch of any format: after the base offset, the length, and the
epoch or checksum.
"""

EVERY = [(source, target) for source in SOURCES for target in TARGETS]


PAIRS = EVERY if os.environ.get("TWINLOG_MATRIX") else [OLDEST]


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=[f"{old}-to-{new}" for old, new in PAIRS])
def test_copy_is_exact_between_these_versions(
    old: str,
    new: str,
    source_cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A copy between two versions with batches, transactions with gaps, a killed lane, and a start
    from an existing copy. Both logs must be equal in the end.
    """
    with (
        cluster_of("older", old) as source,
        cluster_of("newer", new) as target,
        Rig(source, target, tmp_path) as rig,
    ):
        rig.create()
        with rig.mirror() as mirror, Load(source, rig.topic) as load:
            mirror.eventually(lambda parts: all(p.records > 200 for p in parts))
            kill_pids(mirror.leases.pids())
            count = load.stop()
            rig.copied(count)
            assert mirror.snapshots[0].guarantee == "exact"
            mirror.stop()
        for turn, commit in enumerate((True, False, True)):
            first = count + 20 * turn
            more = [rig.outgoing(number) for number in range(first, first + 20)]
            produce_transaction(source, rig.topic, more, commit=commit)
        rig.copy_once()
        rig.same()
        rig.offsets_are_exact()
        assert run(["verify", str(rig.config()), "--deep"]) == 0
        assert "identical" in capsys.readouterr().out
        if new not in WITH_SHARE_GROUPS:
            share_groups_are_left_out(source_cluster, target, tmp_path)
        if old == WRITES_OLD_FORMATS:
            for magic, written_by in enumerate(("0.9.0", "0.10.0")):
                old_format_is_copied(source, target, tmp_path, magic, written_by)


@pytest.mark.long
def test_data_frames_with_older_brokers(source_cluster: LocalCluster, tmp_path: Path) -> None:
    """DataFrames read the same rows as another client, and can write to Kafka 3.0 and later. In
    rows of a copy, `_upstream` names the source records.
    """
    with spark_session() as spark:
        for version in SOURCES[:-1]:
            with cluster_of("older", version) as cluster:
                frames_are_exact(spark, cluster, can_write=version != BEFORE_WRITERS)
                if version in TARGETS:
                    copies_say_what_they_are(spark, source_cluster, cluster, tmp_path)


def copies_say_what_they_are(
    spark: SparkSession, source: LocalCluster, target: LocalCluster, folder: Path
) -> None:
    """Copy a source with gaps of transactions. Check that each row of the copy has its source
    record, although the copy has no gaps.
    """
    with Rig(source, target, folder) as rig:
        rig.create()
        for turn, commit in enumerate((True, False, True)):
            some = [rig.outgoing(number) for number in range(20 * turn, 20 * turn + 20)]
            produce_transaction(source, rig.topic, some, commit=commit)
        rig.copy_once()
        there = {"kafka.bootstrap.servers": target.bootstrap, "subscribe": rig.remote}
        rows = spark.read.format("twinlog").options(**there, upstream=rig.alias).load()
        found = {
            (one._upstream.cluster, one._upstream.topic, one._upstream.offset, bytes(one.value))
            for one in rows.collect()
        }
        records = read_all(source, rig.topic, isolation="read_committed")
        assert found == {(rig.alias, rig.topic, one.offset, one.value) for one in records}
        assert len(records) == 40


def frames_are_exact(spark: SparkSession, cluster: LocalCluster, *, can_write: bool) -> None:
    theirs, ours = "theirs", "ours"
    create_topic(cluster, theirs, 2)
    create_topic(cluster, ours, 3)
    there = {"kafka.bootstrap.servers": cluster.bootstrap}
    records = [Outgoing(b"%d" % at, b"%d" % at, partition=at % 2) for at in range(100)]
    produce(cluster, theirs, records)
    produce_transaction(cluster, theirs, records[:20], commit=False)
    rows = spark.read.format("twinlog").options(**there, subscribe=theirs).load()
    assert sorted(int(row.value) for row in rows.collect()) == list(range(100))
    into = {**there, "topic": ours, "writeId": "once"}
    writer = partitioned(rows.select("key", "value"), into).write.format("twinlog")
    writer = writer.options(**into).mode("append")
    if can_write:
        for _ in range(2):
            writer.save()
    else:
        with pytest.raises(Exception, match=r"\[UNSUPPORTED\]"):
            writer.save()
    seen = read_all(cluster, ours, isolation="read_committed")
    assert sorted(int(one.value or b"-1") for one in seen) == [*range(100 if can_write else 0)]
    assert all(one.partition == partition_for_key(one.key or b"", 3) for one in seen)


def share_groups_are_left_out(source: LocalCluster, target: LocalCluster, folder: Path) -> None:
    """Check that share groups are skipped with the reason in one line, and that other groups are
    set.
    """
    pair = Pair(folder, source, target, both_ways=False)
    create_topic(source, pair.topic)
    produce(source, pair.topic, [Outgoing(value=b"%d" % number) for number in range(10)])
    share, consumers = f"{pair.group}-share", pair.stop_at(4)
    begin_at(source, pair.topic, {share: 4})
    said: list[str] = []
    for _ in range(2):
        with Mirror(pair.config, once=True) as mirror:
            (flow,) = mirror.wait()
        said.append(flow.skipped_groups[share])
        assert set(flow.skipped_groups) == {share}
    assert all("do not support start offsets of share groups" in reason for reason in said)
    assert committed(target, consumers, pair.remote) == 4


def old_format_is_copied(
    source: LocalCluster, target: LocalCluster, folder: Path, magic: int, written_by: str
) -> None:
    """Copy messages in the formats before 0.11, uncompressed and in compressed wrappers. Check that
    they arrive.
    """
    with Rig(source, target, folder) as rig:
        rig.create(message_format_version=written_by)
        sent = [b"%d" % number + b"." * 100 for number in range(60)]
        for codec, first in (("none", 0), ("gzip", 20), ("lz4", 40)):
            records = [Outgoing(b"k", value) for value in sent[first : first + 20]]
            plain = {"enable.idempotence": False}  # the old formats have no producer IDs
            produce(source, rig.topic, records, codec=codec, config=plain)
        written = surgery.log_file(source, rig.here).read_bytes()
        assert written[MAGIC_AT] == magic, "the source's own format"
        rig.copy_once()
        here, there = (read_all(*one) for one in ((source, rig.topic), (target, rig.remote)))
        assert [record.value for record in there] == sent
        assert [(r.offset, r.key, r.value) for r in there] == [
            (r.offset, r.key, r.value) for r in here
        ]
        if magic:
            assert [r.timestamp for r in there] == [r.timestamp for r in here]
