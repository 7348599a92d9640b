"""Duties leave alone what the copy itself does not write: each of these remote topics held the only
copy of something, and was emptied by a retention that came from the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.rig import DAY_MS, Rig
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    delete_topic,
    leader,
    partition_count,
    topic_configs,
)
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import admin
from twinlog.cluster.topics.topic_admin import TopicCreation
from twinlog.codes import PartitionState
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

SYNC: Final = {
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "1",
    "refresh.topics.interval.seconds": "2",
}
RETENTION: Final = "retention.ms"
FOR_EVER: Final = {RETENTION: "-1"}


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def await_refusal(caplog: pytest.LogCaptureFixture, remote: str, code: str) -> None:
    """A round of the sync has seen the topic, and said why it does nothing."""
    wanted = f"configs of {remote} are left as they are while it stands with {code}"
    eventually(lambda: any(wanted in one.getMessage() for one in caplog.records), what=wanted)


@pytest.mark.witness("a source topic made anew with a retention of its own does not empty the copy")
def test_source_topic_that_was_created_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    create_topic(rig.source, rig.topic, configs=FOR_EVER)
    rig.put(range(20), age_ms=30 * DAY_MS)
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        delete_topic(rig.source, rig.topic)
        create_topic(rig.source, rig.topic, configs={RETENTION: "1000"})
        mirror.eventually(lambda parts: [p.code for p in parts] == ["SOURCE_RECREATED"])
        await_refusal(caplog, rig.remote, "SOURCE_RECREATED")
        assert topic_configs(rig.target, rig.remote) == FOR_EVER
        mirror.stop()
    assert len(read_all(rig.target, rig.remote)) == 20


@pytest.mark.witness("the old cluster's retention does not empty a topic that clients went over to")
def test_topic_that_clients_went_over_to(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.prefixed = False
    rig.create()
    rig.put(range(20))
    with rig.mirror(keys=SYNC) as mirror:
        rig.copied(20)
        produce(rig.target, rig.topic, [Outgoing(key=b"f", value=b"app")] * 10)
        mirror.eventually(lambda parts: [p.state for p in parts] == [PartitionState.TAKEN_OVER])
        alter_topic_configs(rig.source, rig.topic, {RETENTION: "1000"})
        await_refusal(caplog, rig.topic, "TAKEN_OVER")
        assert RETENTION not in topic_configs(rig.target, rig.topic)
        mirror.stop()
    # at a start nothing is done before the lane has found it out again
    with rig.mirror(keys=SYNC) as mirror:
        mirror.eventually(lambda parts: [p.state for p in parts] == [PartitionState.TAKEN_OVER])
        mirror.stop()
    assert RETENTION not in topic_configs(rig.target, rig.topic)
    assert len(read_all(rig.target, rig.topic)) == 30


@pytest.mark.witness("a stranger's topic of the remote name is neither grown, configured nor begun")
def test_topic_of_somebody_else(rig: Rig) -> None:
    create_topic(rig.target, rig.remote, 2, configs=FOR_EVER)
    old_ms = rig.began_ms - 30 * DAY_MS
    theirs = [Outgoing(key=b"x", value=b"theirs", timestamp=old_ms, partition=0)] * 10
    produce(rig.target, rig.remote, theirs)
    create_topic(rig.source, rig.topic, 3, configs={RETENTION: "3600000"})
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 3) for n in range(30)]
    produce(rig.source, rig.topic, ours)
    with rig.mirror(keys=SYNC) as mirror:
        parts = mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
        assert len(parts) == 3, "the topic as a whole"
        assert f"{rig.remote}-0" in parts[0].message
        mirror.look_for_topics()
        mirror.stop()
    assert partition_count(rig.target, rig.remote) == 2
    assert topic_configs(rig.target, rig.remote) == FOR_EVER
    assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10


@pytest.mark.witness("a topic that somebody makes while we do is judged before it is begun")
def test_topic_that_somebody_makes_at_the_same_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's answer to our creation is that it exists: whose it is, is not known yet."""
    create_topic(rig.source, rig.topic, 3)
    ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 3) for n in range(30)]
    produce(rig.source, rig.topic, ours)
    create = admin.create_topic
    theirs = [Outgoing(key=b"x", value=b"theirs", partition=0)] * 10
    is_made: list[str] = []

    def late(client: ClusterClient, name: str, **more: Any) -> TopicCreation:
        if name == rig.remote and not is_made:
            is_made.append(name)
            create_topic(rig.target, rig.remote, 3)
            produce(rig.target, rig.remote, theirs)
        return create(client, name, **more)

    monkeypatch.setattr("twinlog.survey.discovery.admin.create_topic", late)
    with rig.mirror(keys=SYNC) as mirror:
        parts = mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
        assert len(parts) == 3, "the topic as a whole"
        mirror.stop()
    assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10


@pytest.mark.witness("a topic that cannot be read now is neither grown nor begun")
def test_topic_whose_records_have_no_leader(
    fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path
) -> None:
    with Rig(fault_source, target3, tmp_path) as rig:
        create_topic(rig.target, rig.remote, 3)
        theirs = [Outgoing(key=b"x", value=b"theirs", partition=0)] * 10
        produce(rig.target, rig.remote, theirs)
        create_topic(rig.source, rig.topic, 4)
        ours = [Outgoing(key=b"k", value=b"%d" % n, partition=n % 4) for n in range(40)]
        produce(rig.source, rig.topic, ours)
        lost = leader(rig.target, rig.remote)
        rig.target.kill(lost)
        keys = SYNC | {"twinlog.state.topic.replication.factor": "3"}
        with rig.mirror(keys=keys) as mirror:
            parts = mirror.eventually(
                lambda parts: len(parts) == 4 and {p.state for p in parts} == {"FAILED"}
            )
            assert {p.code for p in parts} == {"LEADER_NOT_AVAILABLE"}
            rig.target.restart(lost)
            mirror.eventually(lambda parts: {p.code for p in parts} == {"FOREIGN_DATA"})
            mirror.stop()
        assert partition_count(rig.target, rig.remote) == 3
        assert [one.value for one in read_all(rig.target, rig.remote)] == [b"theirs"] * 10
