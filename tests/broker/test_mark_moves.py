"""The commit mark (`cluster.groups.commit_mark`) of a stream that `format("twinlog")` writes,
together with a mirror. The mark is a group's offset. No mirror translates it, a writer does not
accept a mark that was set elsewhere, and `offsets rewrite-checkpoint` moves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.client import Outgoing, produce, produce_transaction, read_all
from tests.support.command import write_config
from tests.support.data_frames import Query
from tests.support.groups import commit, committed, numbered
from tests.support.mirror import Mirror
from tests.support.settings import settings_of
from tests.support.topics import create_topic, delete_topic
from twinlog.cli.main import run
from twinlog.client import MirrorClient, TopicPartition
from twinlog.client.spark_checkpoint import query_of
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.commit_mark import CommitMark, mark_group, read_mark
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import GroupOffsets, commit_offsets, fetch_offsets
from twinlog.errors import or_raise
from twinlog.records import partitioned
from twinlog.records.spark_api import HAS_STREAM_WRITERS
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.layout import free_ports
from twinlog.wire.mm2_records import Checkpoint

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not HAS_STREAM_WRITERS, reason="df.writeStream needs Spark 4.1"),
]

IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


@pytest.fixture
def sink(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> Iterator[str]:
    """A topic that exists with the same name on both clusters."""
    for cluster in (source_cluster, target_cluster):
        create_topic(cluster, fresh_topic)
    yield fresh_topic
    for cluster in (source_cluster, target_cluster):
        delete_topic(cluster, fresh_topic)


@pytest.fixture
def mirror_file(
    source_cluster: LocalCluster, target_cluster: LocalCluster, sink: str, tmp_path: Path
) -> Path:
    """A configuration file of an identity mirror whose `groups.exclude` is empty."""
    here, there = f"A{sink[-8:]}", f"B{sink[-8:]}"
    return write_config(
        tmp_path / "mm2.properties",
        {
            "clusters": f"{here}, {there}",
            f"{here}.bootstrap.servers": source_cluster.bootstrap,
            f"{there}.bootstrap.servers": target_cluster.bootstrap,
            f"{here}->{there}.enabled": "true",
            "topics": f"{sink}.*",
            "groups": ".*",
            "groups.exclude": "",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            **IDENTITY,
            "replication.factor": 1,
        },
    )


def values(cluster: LocalCluster, topic: str) -> list[int]:
    seen = read_all(cluster, topic, isolation="read_committed")
    return sorted(int(one.value or b"-1") for one in seen)


def marks(cluster: LocalCluster, query_id: str) -> dict[str, GroupOffsets]:
    """Return the cluster's groups whose offsets are the marks of a query."""
    with ClusterClient(settings_of(cluster)) as client:
        there = Coordinators(client)
        names = [name for name in list_groups(there) if name.endswith(query_id)]
        return {name: or_raise(one) for name, one in fetch_offsets(there, names).items()}


def test_a_stream_that_moves_to_the_copy_of_its_topic(
    spark: SparkSession,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    sink: str,
    mirror_file: Path,
    tmp_path: Path,
) -> None:
    """A stream moves to the copy of its output topic. Commit marks are not translated, so the
    stream finds none and stops with MARK_DIFFERS. The offset of a mark is the number of a
    micro-batch. Translated, it would be higher, because two other records precede the copy.
    """
    produce(target_cluster, sink, [Outgoing(b"k", b"100"), Outgoing(b"k", b"101")])
    options = {"kafka.bootstrap.servers": source_cluster.bootstrap, "topic": sink}
    query = Query(spark, options, tmp_path)
    for value in (1, 2, 3):
        query.add(value)
        query.run()
    commit(source_cluster, f"app-{sink}", sink, 2)
    with Mirror(mirror_file, once=True) as mirror:
        mirror.wait()
    assert committed(target_cluster, f"app-{sink}", sink) > 0
    assert marks(target_cluster, query_of(query.checkpoint)) == {}
    query.add(4)
    query.add(5)
    query.options["kafka.bootstrap.servers"] = target_cluster.bootstrap
    with pytest.raises(Exception, match=r"\[MARK_DIFFERS\]"):
        query.run()
    assert values(target_cluster, sink) == [1, 2, 3, 100, 101]
    query.run(missingMark="write")
    assert values(target_cluster, sink) == [1, 2, 3, 4, 5, 100, 101]


@pytest.mark.witness("no command translates or resets offsets of Twinlog's own groups")
def test_offsets_that_are_no_positions(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    sink: str,
    mirror_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Commit marks (`cluster.groups.commit_mark`) are stored as group offsets, but are not
    positions of consumers, so no command translates them. This also applies to a mark in a
    checkpoint of MirrorMaker 2, and to a lost source.
    """
    own = [f"__twinlog-{kind}-{sink}" for kind in ("1f2e.query", "failback-B->A")]
    produce(source_cluster, sink, [Outgoing(b"k", b"1"), Outgoing(b"k", b"2")])
    for group in (f"app-{sink}", *own):
        commit(source_cluster, group, sink, 1, metadata="as it was")
    with Mirror(mirror_file, once=True) as mirror:
        mirror.wait()
    alias = f"A{sink[-8:]}"
    checkpoints = f"{alias}.checkpoints.internal"
    known = MirrorClient({**target_cluster.client_properties(), **IDENTITY})
    everything = re.compile(".*")
    with known:
        assert set(known.remote_consumer_offsets(everything, alias)) == {f"app-{sink}"}
        rows = [
            Checkpoint(
                group=group,
                topic_partition=TopicPartition(sink, 0),
                upstream_offset=1,
                downstream_offset=1,
            )
            for group in own
        ]
        produce(target_cluster, checkpoints, [Outgoing(one.key(), one.value()) for one in rows])
        assert set(known.remote_consumer_offsets(everything, alias)) == {f"app-{sink}"}
        assert known.exact_consumer_offsets(own[0], alias) == {}
    lost = mirror_file.with_name("lost.properties")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    lost.write_text(mirror_file.read_text().replace(source_cluster.bootstrap, address))
    both, gone = str(mirror_file), str(lost)
    here = ["offsets", "reset", both, "--cluster", alias, "--to-earliest"]
    for command in (
        ["groups", "ready", both],
        ["switchover", "plan", both],
        ["failover", "plan", gone],
        [*here, "--all", "--dry-run"],
        ["diff", both, "--all"],
        ["verify", both],
    ):
        run([*command, "--format", "json"])
        said = "".join(capsys.readouterr())
        assert command[0] in ("diff", "verify") or f"app-{sink}" in said, command
        assert "__twinlog-" not in said, command
    for command in (
        ["offsets", "translate", both, "--group", own[0]],
        ["offsets", "translate", gone, "--group", own[0]],
        ["offsets", "translate", both, "--group", own[0], "--reverse"],
        [*here, "--group", own[0], "--yes"],
    ):
        assert run(command) == 1
        assert "[NO_OFFSETS]" in "".join(capsys.readouterr()), command
    assert [committed(source_cluster, group, sink) for group in own] == [1, 1]
    assert [committed(target_cluster, group, sink) for group in own] == [-1, -1]


@pytest.mark.witness("the position of a writing query moves with its checkpoint")
def test_a_mark_moves_if_its_topic_is_copied(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    sink: str,
    mirror_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read, old, query = f"{sink}-in", tmp_path / "on-A", f"query-{sink}"
    create_topic(source_cluster, read)
    produce(source_cluster, read, numbered(0, 5))
    for name in ("offsets", "commits"):
        (old / name).mkdir(parents=True)
    (old / "metadata").write_text(f'{{"id":"{query}"}}')
    (old / "offsets" / "3").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"{read}":{{"0":5}}}}')
    (old / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":0}')
    group = mark_group(f"twinlog-{sink}", query)

    def mark(batch: int) -> None:
        newest = CommitMark(batch=batch, rows=1, topics=frozenset((sink,)))
        with ClusterClient(settings_of(source_cluster)) as client:
            offsets = newest.offsets(client.metadata([]).cluster_id)
            answer = commit_offsets(Coordinators(client), {group: offsets})[group]
            assert not any(or_raise(answer).values())

    def rewrite(name: str) -> str:
        words = ["offsets", "rewrite-checkpoint", str(mirror_file), str(old), str(tmp_path / name)]
        assert run(words) == 0
        return " ".join(capsys.readouterr().out.split())

    def copy() -> None:
        with Mirror(mirror_file, once=True) as mirror:
            mirror.wait()

    produce_transaction(source_cluster, sink, numbered(0, 3), commit=True)
    mark(3)
    copy()
    produce_transaction(source_cluster, sink, numbered(3, 1), commit=True)
    assert f"the flow has not copied all of {sink}-0" in rewrite("too-soon")
    assert marks(target_cluster, query) == {}
    copy()
    rewrite("on-B")
    with ClusterClient(settings_of(target_cluster)) as client:
        moved, invalid = read_mark(
            marks(target_cluster, query)[group], client.metadata([]).cluster_id
        )
    assert (moved, invalid) == (CommitMark(batch=3, rows=1, topics=frozenset((sink,))), [])
    mark(2)
    assert "mark there is already at micro-batch 3" in rewrite("again")
    for cluster in (source_cluster, target_cluster):
        delete_topic(cluster, read)


def test_the_mark_moves_with_the_checkpoint(
    spark: SparkSession,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    sink: str,
    mirror_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark died before it wrote its last micro-batch to the checkpoint's commit log. The
    micro-batch's rows are on both clusters. `rewrite-checkpoint` moves the commit mark
    (`cluster.groups.commit_mark`), so the rows must not be written again.
    """
    read, old = f"{sink}-in", tmp_path / "on-A"
    create_topic(source_cluster, read)
    produce(target_cluster, sink, [Outgoing(b"k", b"100"), Outgoing(b"k", b"101")])

    def stream(cluster: LocalCluster, checkpoint: Path, **more: str) -> None:
        kafka = {"kafka.bootstrap.servers": cluster.bootstrap}
        rows = spark.readStream.format("twinlog").options(**kafka, subscribe=read)
        rows = rows.option("startingOffsets", "earliest")
        writer = partitioned(rows.load().select("value"), {**kafka, "topic": sink}).writeStream
        writer = writer.format("twinlog").options(**kafka, topic=sink).options(**more)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def rewrite(new: Path) -> str:
        assert run(["offsets", "rewrite-checkpoint", str(mirror_file), str(old), str(new)]) == 0
        return " ".join(capsys.readouterr().out.split())

    def copy() -> None:
        with Mirror(mirror_file, once=True) as mirror:
            mirror.wait()

    for value in (b"1", b"2"):
        produce(source_cluster, read, [Outgoing(b"k", value)])
        stream(source_cluster, old)
    produce(source_cluster, read, [Outgoing(b"k", b"3")])
    for note in (old / "commits").glob("*1*"):
        note.unlink()
    copy()
    produce_transaction(source_cluster, sink, [Outgoing(b"k", b"50")], commit=True)
    said = rewrite(tmp_path / "too-soon")
    assert f"the flow has not copied all of {sink}-0" in said
    (group,) = marks(source_cluster, query_of(old))
    own = {"kafka.transactional.id": group.rpartition(".")[0].removeprefix("__")}
    assert marks(target_cluster, query_of(old)) == {}
    copy()
    assert f"or set {own['kafka.transactional.id']} if it has none" in rewrite(tmp_path / "on-B")
    stream(target_cluster, tmp_path / "on-B", **own)
    assert values(target_cluster, sink) == [1, 2, 3, 50, 100, 101]
    produce(target_cluster, read, [Outgoing(b"k", b"4")])
    stream(target_cluster, tmp_path / "on-B", **own)
    assert values(target_cluster, sink) == [1, 2, 3, 4, 50, 100, 101]
    delete_topic(source_cluster, read)
    delete_topic(target_cluster, read)
