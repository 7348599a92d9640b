"""Twinlog replaces MirrorMaker 1. Topics keep their names, and the copy begins at the offsets of
MirrorMaker 1's group.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.support.client import Outgoing, consumer, produce, read_all
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.groups import Pair, commit, commit_all
from tests.support.groups import committed as committed_there
from tests.support.mirror import Mirror
from tests.support.topics import (
    create_topic,
    delete_topic,
    partition_count,
    topic_configs,
    topic_names,
)
from twinlog.config.config_file import canonical
from twinlog.config.files.mirror_maker_1 import PairOptions, read_pair
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.load import load, load_raw
from twinlog.control.check.mirror_check import check
from twinlog.control.check.offline_status import offline_status
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = pytest.mark.broker

BY_DEFAULT = 2
"""Default partition count (num.partitions) of the target in this module."""


@pytest.fixture(scope="module")
def its_target() -> Iterator[LocalCluster]:
    """A target with a default partition count that differs from the shared target's."""
    settings = {"num.partitions": str(BY_DEFAULT)}
    with LocalCluster("mm1-target", config=settings, jvm_flags=QUICK_JVM) as cluster:
        yield cluster


def records(partitions: int, each: int, *, begin: int = 0) -> Iterable[Outgoing]:
    for number in range(begin, begin + each):
        for partition in range(partitions):
            yield Outgoing(key=b"%d" % number, value=b"v%d" % number, partition=partition)


def a_pair(
    folder: Path,
    source: LocalCluster,
    target: LocalCluster,
    topics: str,
    group: str,
    *more: str,
    interval_ms: int | None = None,
) -> MirrorConfig:
    consumer_file = folder / "consumer.properties"
    producer_file = folder / "producer.properties"
    consumer_file.write_text(
        f"bootstrap.servers={source.bootstrap}\ngroup.id={group}\n" + "\n".join(more)
    )
    producer_file.write_text(f"bootstrap.servers={target.bootstrap}\n")
    options = PairOptions(
        include=topics, commit_interval_ms=None if interval_ms is None else str(interval_ms)
    )
    raw = read_pair(consumer_file, producer_file, options)
    config = load_raw(raw, environment={})
    (folder / "mm2.properties").write_text(
        canonical(raw.settings, [cluster.alias for cluster in config.clusters])
    )
    return config


def committed(cluster: LocalCluster, group: str, topic: str, partitions: int) -> dict[int, int]:
    client = consumer(cluster, config={"group.id": group})
    try:
        asked = [TopicPartition(topic, each) for each in range(partitions)]
        return {one.partition: one.offset for one in client.committed(asked, timeout=PATIENCE_S)}
    finally:
        client.close()


@pytest.mark.witness("MirrorMaker 1's group offsets are used and committed")
def test_it_resumes_at_the_groups_offset_and_commits_its_progress(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    group = f"mm1.{fresh_topic}"
    create_topic(source_cluster, fresh_topic, 3)
    create_topic(target_cluster, fresh_topic, 3)
    produce(source_cluster, fresh_topic, records(3, 50))
    # the group never read the third partition, which begins as auto.offset.reset says
    read = [TopicPartition(fresh_topic, 0, 20), TopicPartition(fresh_topic, 1, 50)]
    commit_all(source_cluster, group, read)
    config = a_pair(
        tmp_path,
        source_cluster,
        target_cluster,
        fresh_topic,
        group,
        "auto.offset.reset=earliest",
    )
    (flow,) = offline_status(config)
    assert {part.partition: part.lag for part in flow.partitions} == {0: 30, 1: 0, 2: 50}
    for round_number in (1, 2):
        with Mirror(config, once=True) as mirror:
            (flow,) = mirror.wait()
        assert {p.code for p in flow.partitions} == {""}
        there = read_all(target_cluster, fresh_topic)
        expected = {0: 30, 1: 0, 2: 50}
        grown = 10 * (round_number - 1)
        found = {part: [s.value for s in there if s.partition == part] for part in range(3)}
        assert {part: len(values) for part, values in found.items()} == {
            part: count + grown for part, count in expected.items()
        }
        assert all(len(values) == len(set(values)) for values in found.values())
        end = 50 + grown
        assert committed(source_cluster, group, fresh_topic, 3) == dict.fromkeys(range(3), end)
        produce(source_cluster, fresh_topic, records(3, 10, begin=50))


def test_missing_topics_get_the_targets_number_of_partitions_and_no_configs(
    source_cluster: LocalCluster, its_target: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    """With twinlog.new.topic.partitions = default, missing topics get the target's default
    partition count and no configs. The key also works in mm2.properties.
    """
    shapes = {"equal": BY_DEFAULT, "more": BY_DEFAULT + 2, "one": 1}
    names = {shape: f"{fresh_topic}-{shape}" for shape in shapes}
    for shape, here in shapes.items():
        create_topic(source_cluster, names[shape], here, configs={"retention.ms": "86400000"})
        produce(source_cluster, names[shape], keyed(100, here))
    config = a_pair(
        tmp_path,
        source_cluster,
        its_target,
        f"{fresh_topic}-.*",
        f"mm1.{fresh_topic}",
        "auto.offset.reset=earliest",
    )
    (flow,) = check(config).flows
    (said,) = [one for one in flow.notes if "num.partitions" in one]
    assert f"2 topics would be created with {BY_DEFAULT} partitions" in said
    assert f"({names['more']}, {names['one']})" in said
    assert not [name for name in topic_names(its_target) if fresh_topic in name]
    converted = load(tmp_path / "mm2.properties", environment={})
    for end, given in ((100, config), (200, converted)):
        with Mirror(given, once=True) as mirror:
            (ended,) = mirror.wait()
        assert {p.code for p in ended.partitions} == {""}
        for shape, here in shapes.items():
            assert partition_count(its_target, names[shape]) == BY_DEFAULT
            assert "retention.ms" not in topic_configs(its_target, names[shape])
            check_placed(source_cluster, its_target, names[shape], here, BY_DEFAULT)
            produce(source_cluster, names[shape], keyed(100, here, begin=end))


def test_the_group_follows_a_running_copy_unless_it_has_members(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = f"mm1.{fresh_topic}"
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, records(1, 5))
    config = a_pair(
        tmp_path,
        source_cluster,
        target_cluster,
        fresh_topic,
        group,
        "auto.offset.reset=earliest",
        interval_ms=200,
    )
    with caplog.at_level(logging.WARNING), Mirror(config) as mirror:

        def follows(end: int) -> bool:
            return committed(source_cluster, group, fresh_topic, 1) == {0: end}

        eventually(lambda: follows(5))
        member = consumer(source_cluster, config={"group.id": group})
        member.subscribe([fresh_topic])
        eventually(lambda: bool(member.consume(1, 0.2)) or bool(member.assignment()))
        produce(source_cluster, fresh_topic, records(1, 5, begin=5))
        eventually(lambda: len(read_all(target_cluster, fresh_topic)) == 10)
        eventually(lambda: "the group has members" in caplog.text)
        assert follows(5)
        member.close()
        eventually(lambda: follows(10))
        mirror.stop()
    assert caplog.text.count("the group has members") == 1


@pytest.mark.witness("a deleted topic does not delay commits of other topics")
def test_a_deleted_topic_does_not_delay_commits_of_other_topics(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    group, doomed = f"mm1.{fresh_topic}", f"doomed-{fresh_topic}"
    for topic in (fresh_topic, doomed):
        create_topic(source_cluster, topic)
        produce(source_cluster, topic, records(1, 5))
    config = a_pair(
        tmp_path,
        source_cluster,
        target_cluster,
        f"{fresh_topic}|{doomed}",
        group,
        "auto.offset.reset=earliest",
        interval_ms=200,
    )
    with Mirror(config) as mirror:

        def follows(topic: str, end: int) -> bool:
            return committed(source_cluster, group, topic, 1) == {0: end}

        for topic in (fresh_topic, doomed):
            eventually(lambda: follows(topic, 5))  # noqa: B023
        delete_topic(source_cluster, doomed)
        for count in (10, 15):
            produce(source_cluster, fresh_topic, records(1, 5, begin=count - 5))
            eventually(lambda: follows(fresh_topic, count))  # noqa: B023
        mirror.stop()
    assert len(read_all(target_cluster, doomed)) == 5, "what was copied stays"


def keyed(count: int, partitions: int, *, begin: int = 0) -> Iterable[Outgoing]:
    """Return records with keys. Every fifth record has none."""
    for number in range(begin, begin + count):
        key = None if number % 5 == 0 else b"key-%d" % (number % 17)
        yield Outgoing(key=key, value=b"v%d" % number, partition=number % partitions)


def test_differing_partition_counts_place_records_by_key(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    shapes = {"equal": (2, 2), "wider": (2, 5), "narrower": (4, 3), "one": (2, 1)}
    names = {shape: f"{fresh_topic}-{shape}" for shape in shapes}
    group = f"mm1.{fresh_topic}"
    for shape, (here, there) in shapes.items():
        create_topic(source_cluster, names[shape], here)
        create_topic(target_cluster, names[shape], there)
        # another client has written to the topics before; its records must stay
        produce(target_cluster, names[shape], [Outgoing(key=b"k", value=b"theirs", partition=0)])
    config = a_pair(
        tmp_path,
        source_cluster,
        target_cluster,
        f"{fresh_topic}-.*",
        group,
        "auto.offset.reset=earliest",
    )
    for round_number in (1, 2, 3):
        for shape, (here, _) in shapes.items():
            more = keyed(200, here, begin=200 * (round_number - 1))
            produce(source_cluster, names[shape], more)
        with Mirror(config, once=True) as mirror:
            (flow,) = mirror.wait()
        assert {p.code for p in flow.partitions} == {""}
        for shape, (here, there) in shapes.items():
            assert partition_count(target_cluster, names[shape]) == there
            check_placed(source_cluster, target_cluster, names[shape], here, there)
            ends = committed(source_cluster, group, names[shape], here)
            assert sum(ends.values()) == 200 * round_number


def test_records_of_all_topics_are_placed_by_key(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    create_topic(target_cluster, fresh_topic, 2)
    produce(source_cluster, fresh_topic, keyed(200, 2))
    group = f"mm1.{fresh_topic}"
    earliest = "auto.offset.reset=earliest"
    a_pair(tmp_path, source_cluster, target_cluster, fresh_topic, group, earliest)
    file = tmp_path / "mm2.properties"
    given, all_keyed = (f"twinlog.target.partitions = {one}" for one in ("keyed", "all-keyed"))
    file.write_text(file.read_text().replace(given, all_keyed))
    config = load(file, environment={})
    (flow,) = check(config).flows
    source, target = flow.flow.split("->")
    placed = f"2 partitions on {target}, and 2 on {source}: records are placed by key"
    assert [note for note in flow.notes if placed in note], flow.notes
    with Mirror(config, once=True) as mirror:
        (ended,) = mirror.wait()
    assert {p.code for p in ended.partitions} == {""}
    check_placed(source_cluster, target_cluster, fresh_topic, 2, 2, keeps=False)


def check_placed(
    source: LocalCluster,
    target: LocalCluster,
    topic: str,
    here: int,
    there: int,
    *,
    keeps: bool | None = None,
) -> None:
    """Check that every record is once in its key's partition, and that records of one source
    partition are in order.

    `keeps`: True if records keep their partition, which is the default if the counts are equal.
    """
    copied = [one for one in read_all(target, topic) if one.value != b"theirs"]
    original = read_all(source, topic)
    assert Counter(one.value for one in copied) == Counter(one.value for one in original)
    home = {one.value: one.partition for one in original}
    for number in range(there):
        part = [one for one in copied if one.partition == number]
        for one in part:
            if (here == there) if keeps is None else keeps:
                assert home[one.value] == number
            elif one.key is not None:
                assert partition_for_key(one.key, there) == number
        for begin in range(here):
            order = [int((one.value or b"")[1:]) for one in part if home[one.value] == begin]
            assert order == sorted(order)


def belongs(record: Outgoing, partition: int) -> bool:
    """Return True if the record has a key that belongs to `partition`, in a topic of two
    partitions.
    """
    return record.key is not None and partition_for_key(record.key, 2) == partition


def test_groups_of_topics_placed_by_key_are_named_and_others_translated(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair(tmp_path, source_cluster, target_cluster, both_ways=False)
    keyed_topic = f"{pair.topic}-keyed"
    with pair.config.open("a") as file:
        file.write(f"topics = {pair.topic}.*\ntwinlog.target.partitions = keyed\n")
    for topic, there in ((pair.topic, 1), (keyed_topic, 2)):
        create_topic(source_cluster, topic)
        create_topic(target_cluster, f"{pair.alias_a}.{topic}", there)
        # all keys belong to the second target partition, so the first one is empty. It must not
        # count as the copy of the only source partition
        produce(source_cluster, topic, [one for one in keyed(40, 1) if belongs(one, 1)])
    one, both, other = (f"{pair.group}-{name}" for name in ("keyed", "both", "other"))
    for group, topics in (
        (one, [keyed_topic]),
        (both, [keyed_topic, pair.topic]),
        (other, [pair.topic]),
    ):
        for topic in topics:
            commit(source_cluster, group, topic, 4)
    with caplog.at_level(logging.WARNING), Mirror(pair.config) as mirror:

        def left_alone() -> dict[str, str]:
            return {g: r for flow in mirror.snapshots for g, r in flow.skipped_groups.items()}

        def translated(group: str) -> bool:
            return committed_there(target_cluster, group, pair.remote) == 4

        eventually(lambda: translated(both) and translated(other))
        eventually(lambda: set(left_alone()) == {one, both})
        assert f"records of {keyed_topic} are partitioned by key" in left_alone()[one]
        mirror.stop()
    said = "offsets of groups are not translated in 1 topic"
    assert caplog.text.count(said) == 1
    assert committed_there(target_cluster, one, f"{pair.alias_a}.{keyed_topic}") == -1
