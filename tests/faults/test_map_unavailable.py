"""The offset map topic is deleted, or its partitions have no leader or too few replicas. Partitions
that need the map report this and recover. Other partitions are copied, and no partition silently
restarts from its beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction, read_all
from tests.support.groups import commit, committed
from tests.support.map_rows import rows, transactions
from tests.support.rig import COUNTS_ROUNDS, KEEPS_LEADERLESS, MAP_PARTITIONS, OLD, Rig, kill
from tests.support.rounds import Rounds
from tests.support.surgery import cut_log
from tests.support.topics import (
    alter_topic_configs,
    apply_topic_configs,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    leader,
    offset_map_topic,
    topic_names,
)
from twinlog.cli.main import run
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.control.groups.checkpoints import CheckpointDuty
from twinlog.mirror.map.offset_map import map_home
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

ONE_REPLICA: Final = {"replication.factor": "1", "twinlog.state.topic.replication.factor": "1"}

HOLDS_ITS_ROWS: Final = """
import os
from twinlog.lane.map_writer import MapWriter
pump = MapWriter.pump
def hold(*arguments):
    if not os.path.exists({flag!r}):
        pump(*arguments)
MapWriter.pump = hold
"""

WAITS_FOR_ITS_MAP: Final = {"MAP_UNWRITABLE", "MAP_UNREADABLE"}
"""Codes of a partition that waits for its map. MAP_UNREADABLE appears if the dead broker also led
the remote partition: its new leader's log is searched, which needs the map.
"""


@pytest.fixture
def rig3(
    source_cluster: LocalCluster, target3: LocalCluster, tmp_path: Path, lasting_lead: None
) -> Iterator[Rig]:
    """A flow into a target of three brokers. The flow's lead survives the death of any broker."""
    with Rig(source_cluster, target3, tmp_path) as made:
        yield made


def map_topic(rig: Rig) -> str:
    return offset_map_topic(rig.alias)


@pytest.mark.witness("a deleted map is reported, and not re-created")
def test_map_deleted_under_a_running_mirror_is_reported_and_not_recreated(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    with rig.mirror() as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        delete_topic(rig.target, map_topic(rig))
        transactions(rig, range(10, 13))
        (part,) = mirror.eventually(lambda parts: parts[0].code == "MAP_MISSING")
        assert part.lag
        assert "twinlog offsets rebuild" in part.message
        mirror.stop()
    end = rig.end()
    with rig.mirror(once=True) as mirror:
        (flow,) = mirror.wait()
    assert (flow.state, flow.code) == ("FAILED", "MAP_MISSING")
    assert rig.end() == end, "nothing is copied by guess"
    assert map_topic(rig) not in topic_names(rig.target)


def test_emptied_partition_whose_rows_are_gone_does_not_begin_again(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    apply_topic_configs(rig.target, map_topic(rig), {"cleanup.policy": "delete"})
    delete_records(rig.target, map_topic(rig), map_home(rig.here, MAP_PARTITIONS))
    apply_topic_configs(rig.target, map_topic(rig), {"cleanup.policy": "compact"})
    delete_records(rig.target, rig.remote)
    rig.put(range(10, 20))
    code, message = rig.fail_once()
    assert code == "MAP_MISSING", message
    assert "Other partitions of its topic may hold the only copy of records" in message
    assert message.index("twinlog export") < message.index("Only then")
    assert rig.end() == 10


def test_map_deleted_together_with_all_that_was_copied_begins_again(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    rig.copy_once()
    delete_topic(rig.target, map_topic(rig))
    delete_topic(rig.target, rig.remote)
    rig.copy_once()
    assert rig.numbers() == list(range(10))


def test_map_partition_without_a_leader_delays_only_partitions_that_need_it(
    rig3: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig, count = rig3, 8
    create_topic(rig.source, rig.topic, count)
    create_topic(rig.target, rig.remote, count, replication_factor=3)
    with rig.mirror(keys=ONE_REPLICA) as mirror:
        produce(rig.source, rig.topic, [Outgoing(value=b"1", partition=p) for p in range(count)])
        eventually(lambda: sum(end_offsets(rig.target, rig.remote).values()) == count)
        homes = {p: map_home(TopicPartition(rig.topic, p), 8) for p in range(count)}
        leads = {p: leader(rig.target, map_topic(rig), homes[p]) for p in range(count)}
        dead = leads[0]
        held = {p for p in leads if leads[p] == dead}
        assert 0 < len(held) < count

        def others_have(records: int) -> None:
            """Wait until the partitions whose map is available have this many records. The log's
            end is used because a lag of 0 may be older than the source's newest records.
            """
            others = set(range(count)) - held
            eventually(
                lambda: {end_offsets(rig.target, rig.remote)[p] for p in others} == {records},
                what=f"{records} records in {others}",
            )

        rig.target.kill(dead)
        try:
            eventually(lambda: leader(rig.target, map_topic(rig), homes[0]) == -1)
            # a marker precedes each record, so each record begins a run of consecutive offsets. The
            # map must have this run before the record is written
            for p in range(count):
                for value in (b"2", b"3"):
                    produce_transaction(
                        rig.source, rig.topic, [Outgoing(value=value, partition=p)], commit=True
                    )
            others_have(3)
            parts = mirror.eventually(
                lambda parts: all(
                    p.code in WAITS_FOR_ITS_MAP if p.partition in held else p.lag == 0
                    for p in parts
                )
            )
            assert {p.partition for p in parts if p.lag} == held

            # lanes that start again also begin only the partitions whose map rows can be read
            with caplog.at_level(logging.WARNING):
                caplog.clear()
                kill(mirror.leases.pids())
                mirror.eventually(
                    lambda parts: all(
                        p.code == "MAP_UNREADABLE" if p.partition in held else p.state == "AT_END"
                        for p in parts
                    )
                )
                produce(
                    rig.source, rig.topic, [Outgoing(value=b"4", partition=p) for p in range(count)]
                )
                others_have(4)
                mirror.eventually(
                    lambda parts: all(p.lag == 0 for p in parts if p.partition not in held)
                )
        finally:
            rig.target.restart(dead)
        eventually(lambda: min(end_offsets(rig.target, rig.remote).values()) >= 4)
        mirror.eventually(lambda parts: all(p.lag == 0 and not p.code for p in parts))
        mirror.stop()
    assert set(end_offsets(rig.target, rig.remote).values()) == {4}


def test_map_under_min_isr_is_retried_seldom_reported_and_resumed(
    rig3: Rig, tmp_path: Path
) -> None:
    rig, counter = rig3, tmp_path / "rounds"
    rig.create()
    create_topic(rig.target, rig.remote, replication_factor=3)
    rig.put(range(10))
    keys = {"replication.factor": "3", "twinlog.state.topic.replication.factor": "3"}
    with rig.mirror(keys=keys, prelude=COUNTS_ROUNDS.format(path=str(counter))) as mirror:
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].lag == 0)
        home = leader(rig.target, map_topic(rig), map_home(rig.here, 8))
        dead = next(n for n in (1, 2, 3) if n not in {home, leader(rig.target, rig.remote)})
        alter_topic_configs(rig.target, map_topic(rig), {"min.insync.replicas": "3"})
        rig.target.kill(dead)
        try:
            before = rounds(counter)
            began = time.monotonic()
            numbers = iter(range(10, 1000))

            def is_told() -> bool:
                transactions(rig, range(n := next(numbers), n + 1))
                parts = mirror.snapshots[0].partitions
                return [part.code for part in parts] == ["MAP_UNWRITABLE"]

            eventually(is_told, what="the code on what waits")
            per_second = (rounds(counter) - before) / (time.monotonic() - began)
            assert per_second < 20, "it was 1,270"
        finally:
            rig.target.restart(dead)
        written = next(numbers)
        rig.copied(written)
        mirror.eventually(lambda parts: parts[0].lag == 0 and not parts[0].code)
        mirror.stop()
    assert rig.numbers() == list(range(written))
    rig.offsets_are_exact()


def test_rows_that_the_map_lost_are_written_again_by_the_partitions_next_lane(
    rig3: Rig,
) -> None:
    """The offset map lost rows whose writer had ended before it could notice the new leader epoch.
    The partition's next lane must write them again.
    """
    rig = rig3
    rig.create()
    create_topic(rig.target, rig.remote, replication_factor=3)
    home = TopicPartition(map_topic(rig), map_home(rig.here, MAP_PARTITIONS))
    with rig.mirror(keys=ONE_REPLICA, lease_s=4.0) as mirror:
        rig.put(range(5))
        transactions(rig, range(5, 10))
        # no marker follows these records, so the map has everything that the lane hands over
        rig.put(range(10, 12))
        rig.copied(12)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        before, offsets = rows(rig)[-1], row_offsets(rig, home)
        dead = leader(rig.target, *home)
        rig.target.kill(dead)
        try:
            eventually(lambda: leader(rig.target, *home) == -1, what="no leader")
            newest = max(job.lease for job in mirror.leases.jobs)

            def is_handed_over() -> bool:
                lane = mirror.partition(rig.here).lane
                return lane is not None and lane.lease > newest

            eventually(is_handed_over, what="a lane that never saw a leader of the map")
            cut_log(rig.target, home, offsets[1], dead)
        finally:
            rig.target.restart(dead)
        eventually(lambda: rows(rig)[-1].runs == before.runs, what="the lost row once more")
        rig.offsets_are_exact()
        mirror.stop()


@pytest.mark.usefixtures("lasting_lead")
def test_group_is_not_set_by_rows_that_the_map_has_lost(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offset map loses rows that describe gaps, so a translated offset is too high. The group
    must not be set to this offset, because a group is never moved back.
    """
    group, flag = f"app-{rig.alias}", tmp_path / "held"
    keys = {
        "groups": group,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
    }
    checks = Rounds(monkeypatch, CheckpointDuty, "round", lambda duty: duty._flow.name)
    rig.create()
    rig.put(range(5))
    home = TopicPartition(map_topic(rig), map_home(rig.here, MAP_PARTITIONS))
    prelude = KEEPS_LEADERLESS + HOLDS_ITS_ROWS.format(flag=str(flag))
    with rig.mirror(keys=keys, prelude=prelude) as mirror:
        rig.copied(5)
        commit(rig.source, group, rig.topic, 1)
        eventually(lambda: committed(rig.target, group, rig.remote) == 1)
        transactions(rig, range(5, 15))
        rig.copied(15)
        eventually(lambda: len(rows(rig)[-1].runs) == 11, what="all runs in the map")
        offsets = row_offsets(rig, home)
        flag.touch()  # simulates a lane that has not noticed the loss yet
        rig.target.kill(1)
        cut_log(rig.target, home, offsets[1])
        rig.target.restart(1)
        eventually(lambda: len(rows(rig)) == 1, what="rows that are lost")
        upstream = rig.source_end() - 8
        right = right_offset(rig, upstream)
        commit(rig.source, group, rig.topic, upstream)
        checks.pass_by(rig.flow, 3)
        assert committed(rig.target, group, rig.remote) in (1, right)
        flag.unlink()
        eventually(lambda: committed(rig.target, group, rig.remote) == right, what=f"{right}")
        mirror.stop()


def right_offset(rig: Rig, upstream: int) -> int:
    """Return the offset of the first target record whose source offset is at or after an upstream
    offset. Records are identified by content.
    """
    at = {r.value: r.offset for r in read_all(rig.source, rig.topic, isolation="read_committed")}
    return next(r.offset for r in read_all(rig.target, rig.remote) if at[r.value] >= upstream)


def row_offsets(rig: Rig, home: TopicPartition) -> list[int]:
    """Return the offsets of all rows in a partition of the map topic."""
    return [r.offset for r in read_to_end(rig.target_client, *home)]


def rounds(counter: Path) -> int:
    return len(counter.read_text()) if counter.exists() else 0


def test_rebuild_that_cannot_say_where_to_resume_lets_nothing_begin_again(rig: Rig) -> None:
    """A rebuild fails because it cannot find where to resume, but has already created the map
    topic. So the next start cannot notice that the map topic was missing. It must stop with
    MAP_MISSING instead of copying from the start of the log.
    """
    rig.create()
    rig.put(range(10), age_ms=OLD)
    rig.copy_once()
    rig.forgotten()
    delete_records(rig.target, rig.remote)
    delete_topic(rig.target, map_topic(rig))
    assert run(["offsets", "rebuild", str(rig.config()), "--yes"]) == 1
    assert map_topic(rig) in topic_names(rig.target)
    rig.put(range(10, 20))
    code, message = rig.fail_once()
    assert code == "MAP_MISSING"
    # the error must not advise again what has just failed
    assert "twinlog offsets rebuild" not in message
    assert "Use twinlog.start to set where to begin" in message
    assert message.index("twinlog export") < message.index("Only then")
    assert rig.numbers() == []
