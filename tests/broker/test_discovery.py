"""A running mirror discovers changes of its source's topics: new topics, added partitions and
configs.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.mirror import Mirror
from tests.support.rounds import REPORT, lane_rounds
from tests.support.topics import (
    add_partitions,
    create_topic,
    delete_topic,
    end_offsets,
    partition_count,
    topic_configs,
    topic_names,
)
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

SOON = {"refresh.topics.interval.seconds": "1"}


class Follower:
    """A flow that copies all topics with this test's prefix."""

    def __init__(self, folder: Path, source: LocalCluster, target: LocalCluster) -> None:
        self.source, self.target = source, target
        self.mark = f"f{uuid.uuid4().hex[:8]}"
        self.alias = f"a{self.mark}"
        self._path = folder / "mm2.properties"

    def topic(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def remote(self, name: str) -> str:
        return f"{self.alias}.{self.topic(name)}"

    def put(self, name: str, partitions: int, count: int = 5) -> None:
        records = [
            Outgoing(value=b"%d" % n, partition=p) for n in range(count) for p in range(partitions)
        ]
        produce(self.source, self.topic(name), records)

    def arrived(self, name: str, ends: Mapping[int, int]) -> None:
        def has_arrived() -> bool:
            remote = self.remote(name)
            return remote in topic_names(self.target) and end_offsets(self.target, remote) == ends

        eventually(has_arrived, what=f"{name} on the target")

    def remotes(self) -> set[str]:
        """Return the remote topics, except the checkpoints topic."""
        found = {n for n in topic_names(self.target) if n.startswith(f"{self.alias}.")}
        return found - {f"{self.alias}.checkpoints.internal"}

    def mirror(self, keys: Mapping[str, str], *, once: bool = False) -> Mirror:
        lines = {
            "clusters": f"{self.alias}, B",
            f"{self.alias}.bootstrap.servers": self.source.bootstrap,
            "B.bootstrap.servers": self.target.bootstrap,
            f"{self.alias}->B.enabled": "true",
            "topics": f"{self.mark}-.*",
            "replication.factor": "1",
            **keys,
        }
        self._path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        return Mirror(self._path, once=once, lanes=1)


@pytest.fixture
def follower(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster
) -> Follower:
    return Follower(tmp_path, source_cluster, target_cluster)


@pytest.mark.witness("new topics and partitions are found")
def test_new_topics_and_partitions_are_picked_up_at_the_refresh(follower: Follower) -> None:
    create_topic(follower.source, follower.topic("first"), 2)
    follower.put("first", 2)
    with follower.mirror(SOON) as mirror:
        follower.arrived("first", {0: 5, 1: 5})
        create_topic(follower.source, follower.topic("second"), 3)
        follower.put("second", 3)
        add_partitions(follower.source, follower.topic("first"), 4)
        follower.put("first", 4)
        follower.arrived("second", {0: 5, 1: 5, 2: 5})
        follower.arrived("first", {0: 10, 1: 10, 2: 5, 3: 5})
        mirror.eventually(lambda parts: len(parts) == 7 and not any(p.code for p in parts))
        mirror.stop()
    assert partition_count(follower.target, follower.remote("first")) == 4
    here = read_all(follower.source, follower.topic("first"))
    assert read_all(follower.target, follower.remote("first")) == here


def test_without_the_refresh_only_topics_that_exist_at_the_start_are_mirrored(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = lane_rounds(monkeypatch)
    create_topic(follower.source, follower.topic("first"))
    with follower.mirror({**SOON, "refresh.topics.enabled": "false"}) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == ["AT_END"])
        create_topic(follower.source, follower.topic("second"))
        follower.put("first", 1)
        follower.arrived("first", {0: 5})
        # with `SOON` as its keys, the mirror would have discovered new topics in this time
        rounds.pass_by(REPORT)
        assert [part.topic for part in mirror.snapshots[0].partitions] == [follower.topic("first")]
        mirror.stop()
    assert follower.remotes() == {follower.remote("first")}


def test_a_remote_topic_is_made_with_the_configs_of_its_source_but_for_the_excluded_ones(
    follower: Follower,
) -> None:
    set_there = {
        "retention.ms": "7200000",
        "cleanup.policy": "compact,delete",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
        "follower.replication.throttled.replicas": "*",
        "message.timestamp.type": "LogAppendTime",
    }
    create_topic(follower.source, follower.topic("first"), configs=set_there)
    with follower.mirror({}, once=True) as mirror:
        mirror.wait()
    copied = topic_configs(follower.target, follower.remote("first"))
    assert copied["retention.ms"] == "7200000"
    assert copied["cleanup.policy"] == "compact,delete"
    # configs that MirrorMaker 2's list excludes, or that are not set, are not copied
    assert "min.insync.replicas" not in copied
    assert "unclean.leader.election.enable" not in copied
    assert "follower.replication.throttled.replicas" not in copied
    assert "message.timestamp.type" not in copied
    assert "segment.bytes" not in copied


@pytest.mark.witness("excluded configs are not copied")
def test_the_list_of_excluded_configs_can_be_changed(follower: Follower) -> None:
    configs = {"retention.ms": "7200000", "min.insync.replicas": "1"}
    create_topic(follower.source, follower.topic("first"), configs=configs)
    keys = {"config.properties.exclude": "retention\\.ms"}
    with follower.mirror(keys, once=True) as mirror:
        mirror.wait()
    copied = topic_configs(follower.target, follower.remote("first"))
    assert "retention.ms" not in copied
    assert copied["min.insync.replicas"] == "1"


def test_internal_topics_and_copies_from_the_target_are_left_out(follower: Follower) -> None:
    for name in ("first", "x.internal", "x-internal", "skipped"):
        create_topic(follower.source, follower.topic(name))
    back = f"B.{follower.mark}-first"
    create_topic(follower.source, back)
    keys = {
        "topics": f"{follower.mark}-.*, B\\.{follower.mark}-.*",
        "topics.exclude": f".*[\\-\\.]internal, {follower.mark}-skipped",
    }
    with follower.mirror(keys, once=True) as mirror:
        mirror.wait()
    assert follower.remotes() == {follower.remote("first")}


FACTOR_3 = {"B.replication.factor": "3", "twinlog.state.topic.replication.factor": "1"}


def test_a_replication_factor_above_the_live_brokers_creates_nothing(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.flow.managed_flow.ONCE_GIVES_UP_S", 1.0)
    create_topic(follower.source, follower.topic("first"))
    keys = {**FACTOR_3, f"{follower.alias}->B.replication.factor": "3"}
    with follower.mirror(keys, once=True) as mirror:
        (flow,) = mirror.wait()
    assert (flow.state, flow.code) == ("FAILED", "REPLICATION_FACTOR")
    assert "replication.factor = 3, but only 1 broker of B is alive, so 1 topic " in flow.reason
    # the cause may also be a broker that is down for a minute, so the exit code is 1, and not the
    # one of a usage error or configuration error
    assert [error.exit_code for error in mirror.supervisor.errors] == [1]
    assert follower.remotes() == set()


def test_a_mirror_waits_for_the_brokers_that_a_replication_factor_needs(
    follower: Follower,
) -> None:
    create_topic(follower.source, follower.topic("first"))
    with follower.mirror({**FACTOR_3, f"{follower.alias}->B.replication.factor": "3"}) as mirror:
        tried = "REPLICATION_FACTOR"
        eventually(lambda: any(f.errors.get(tried, 0) >= 2 for f in mirror.snapshots))
        assert mirror.snapshots[0].state == "DEGRADED"
        create_topic(follower.target, follower.remote("first"))
        follower.put("first", 1)
        mirror.eventually(lambda parts: [p.records for p in parts] == [5])
        mirror.stop()


def test_topics_that_cannot_be_made_do_not_keep_the_others(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.flow.managed_flow.ONCE_GIVES_UP_S", 1.0)
    for name in ("first", "second", "third"):
        create_topic(follower.source, follower.topic(name))
        follower.put(name, 1)
    create_topic(follower.target, follower.remote("second"))
    keys = {**FACTOR_3, f"{follower.alias}->B.replication.factor": "3"}
    with follower.mirror(keys, once=True) as mirror:
        (flow,) = mirror.wait()
    found = {p.topic: (p.state, p.code, p.records) for p in flow.partitions}
    assert found[follower.topic("second")] == ("DONE", "", 5)
    assert {found[follower.topic(name)][1] for name in ("first", "third")} == {"REPLICATION_FACTOR"}
    assert follower.remotes() == {follower.remote("second")}


def test_a_name_that_is_too_long_for_kafka_has_a_code_of_its_own(follower: Follower) -> None:
    long = follower.topic("x" * (249 - len(follower.topic(""))))
    create_topic(follower.source, long)
    create_topic(follower.source, follower.topic("first"))
    follower.put("first", 1)
    with follower.mirror({}, once=True) as mirror:
        (flow,) = mirror.wait()
    assert {p.topic: p.code for p in flow.partitions} == {
        long: "NAME_TOO_LONG",
        follower.topic("first"): "",
    }
    assert follower.remotes() == {follower.remote("first")}


# -- no topic is created


def test_with_creation_off_a_missing_topic_waits_until_a_client_creates_it(
    follower: Follower,
) -> None:
    create_topic(follower.source, follower.topic("first"), 2, configs={"retention.ms": "7200000"})
    create_topic(follower.source, follower.topic("second"))
    create_topic(follower.target, follower.remote("second"))
    follower.put("first", 2)
    follower.put("second", 1)
    with follower.mirror({**SOON, "B.topic.creation.enable": "false"}) as mirror:
        follower.arrived("second", {0: 5})
        parts = mirror.eventually(lambda parts: any(p.code for p in parts) and len(parts) == 3)
        waiting = [p for p in parts if p.code]
        assert [(p.topic, p.partition, p.code) for p in waiting] == [
            (follower.topic("first"), number, "TARGET_TOPIC_MISSING") for number in (0, 1)
        ]
        assert f"{follower.remote('first')} does not exist on B" in waiting[0].message
        assert follower.remotes() == {follower.remote("second")}
        create_topic(follower.target, follower.remote("first"), 2)
        follower.arrived("first", {0: 5, 1: 5})
        mirror.eventually(lambda parts: [p.code for p in parts] == [""] * 3)
        mirror.stop()
    assert topic_configs(follower.target, follower.remote("first")) == {}, "nothing is altered"


def test_with_creation_off_partitions_that_are_there_are_copied(follower: Follower) -> None:
    create_topic(follower.source, follower.topic("first"), 3)
    create_topic(follower.target, follower.remote("first"), 2)
    follower.put("first", 3)
    with follower.mirror({**SOON, "topic.creation.enable": "false"}) as mirror:
        follower.arrived("first", {0: 5, 1: 5})
        parts = mirror.eventually(lambda parts: len(parts) == 3)
        short = [(p.partition, p.code) for p in parts if p.code]
        assert short == [(2, "TARGET_TOPIC_TOO_SMALL")]
        assert partition_count(follower.target, follower.remote("first")) == 2
        add_partitions(follower.target, follower.remote("first"), 3)
        follower.arrived("first", {0: 5, 1: 5, 2: 5})
        mirror.stop()


def test_a_smaller_remote_topic_is_grown_and_a_larger_one_is_left_unchanged(
    follower: Follower,
) -> None:
    create_topic(follower.source, follower.topic("first"), 3)
    create_topic(follower.source, follower.topic("second"), 2)
    create_topic(follower.target, follower.remote("first"), 1)
    create_topic(follower.target, follower.remote("second"), 4)
    follower.put("first", 3)
    follower.put("second", 2)
    with follower.mirror({}, once=True) as mirror:
        (flow,) = mirror.wait()
    assert {(p.state, p.code) for p in flow.partitions} == {("DONE", "")}
    assert end_offsets(follower.target, follower.remote("first")) == {0: 5, 1: 5, 2: 5}
    assert end_offsets(follower.target, follower.remote("second")) == {0: 5, 1: 5, 2: 0, 3: 0}


@pytest.mark.witness("topic deletions are never copied")
def test_a_deletion_is_reported_and_never_passed_on(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("first", "second"):
        create_topic(follower.source, follower.topic(name))
        follower.put(name, 1)
    with caplog.at_level(logging.WARNING), follower.mirror(SOON) as mirror:
        follower.arrived("first", {0: 5})
        follower.arrived("second", {0: 5})
        delete_topic(follower.source, follower.topic("first"))
        mirror.eventually(lambda parts: "SOURCE_DELETED" in {p.state for p in parts})
        (gone,) = [p for p in mirror.snapshots[0].partitions if p.state == "SOURCE_DELETED"]
        assert (gone.topic, gone.code) == (follower.topic("first"), "")
        assert follower.remote("first") in gone.message
        assert gone.since_ms > 0
        told = [r.getMessage() for r in caplog.records if "deleted at" in r.getMessage()]
        assert [follower.remote("first") in line for line in told] == [True], "once"
        mirror.stop()
    assert {follower.remote("first"), follower.remote("second")} <= follower.remotes()
    assert end_offsets(follower.target, follower.remote("first")) == {0: 5}
