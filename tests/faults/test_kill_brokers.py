"""Of three brokers, one is killed, frozen or restarted under load, so leaders move. No record is
lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.client import eventually
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.rig import Rig
from tests.support.topics import create_topic, end_offsets, leader
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

PARTITIONS = 3
SAFE = {"min.insync.replicas": "2"}
THREE = {"replication.factor": "3", "twinlog.state.topic.replication.factor": "3"}


@pytest.fixture
def flow(fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    """A flow into three brokers. The gate starts no other cluster of three brokers for these
    tests.
    """
    with Rig(fault_source, target3, tmp_path) as rig:
        create_topic(fault_source, rig.topic, PARTITIONS)
        yield rig


@pytest.fixture
def flow_from_three(source3: LocalCluster, target3: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    with Rig(source3, target3, tmp_path) as rig:
        create_topic(source3, rig.topic, PARTITIONS, replication_factor=3, configs=SAFE)
        yield rig


def ends(rig: Rig) -> dict[int, int]:
    try:
        return end_offsets(rig.target, rig.remote)
    except KafkaException as error:
        raise AssertionError("a leader does not know its log end yet") from error


def leads(cluster: LocalCluster, topic: str) -> int:
    """Return the partition's leader like `leader`. Raises AssertionError, so that callers retry, if
    the client's query went to a frozen broker.
    """
    try:
        return leader(cluster, topic)
    except KafkaException as error:
        raise AssertionError("nobody has said who leads") from error


def goes_on(rig: Rig) -> None:
    """Check that new records of every partition are copied."""
    before = eventually(lambda: ends(rig))
    eventually(
        lambda: all(end > before[p] for p, end in ends(rig).items()),
        what="new records in every partition",
    )


def finish(rig: Rig, mirror: Mirror, load: Load) -> None:
    count = load.stop()
    eventually(lambda: sum(ends(rig).values()) >= count, what="everything that was produced")
    mirror.stop()
    rig.same()


@pytest.mark.witness("one of three target brokers is killed and restarted")
def test_broker_killed_and_restarted(flow: Rig) -> None:
    is_killed_and_restarted(flow, flow.target, flow.remote)


def test_source_broker_killed_and_restarted(flow_from_three: Rig) -> None:
    flow = flow_from_three
    is_killed_and_restarted(flow, flow.source, flow.topic)


def is_killed_and_restarted(flow: Rig, cluster: LocalCluster, topic: str) -> None:
    """Kill the leader of a partition of this topic under load, and restart it. Check that the copy
    continues after the kill and after the restart.
    """
    mirror = Mirror(flow.config(THREE), lanes=2)
    with mirror, Load(flow.source, flow.topic, partitions=PARTITIONS) as load:
        mirror.eventually(lambda parts: all(p.records > 100 for p in parts))
        killed = leader(cluster, topic)
        cluster.kill(killed)
        try:
            eventually(lambda: leads(cluster, topic) not in (killed, -1), what="a new leader")
            goes_on(flow)
        finally:
            cluster.restart(killed)
        goes_on(flow)
        finish(flow, mirror, load)


def test_frozen_target_broker_is_given_up_and_does_no_harm_when_it_continues(flow: Rig) -> None:
    hurry = {"t.producer.request.timeout.ms": "4000"}
    mirror = Mirror(flow.config(THREE | hurry), lanes=2)
    mirror.leases.prelude = "import twinlog.lane.sides.cluster_side as c; c.ANSWER_WITHIN_S = 4.0\n"
    with mirror, Load(flow.source, flow.topic, partitions=PARTITIONS) as load:
        mirror.eventually(lambda parts: all(p.records > 100 for p in parts))
        # the frozen broker may also be the group's coordinator, but this test is not about the lead
        frozen = leader(flow.target, flow.remote)
        flow.target.freeze(frozen)
        try:
            eventually(
                lambda: leads(flow.target, flow.remote) not in (frozen, -1),
                what="a new leader",
            )
            goes_on(flow)
        finally:
            flow.target.thaw(frozen)
        goes_on(flow)
        finish(flow, mirror, load)


@pytest.mark.long
def test_no_target_broker_for_longer_than_a_lead_lasts(rig: Rig) -> None:
    rig.create()
    with rig.mirror() as mirror, Load(rig.source, rig.topic, per_second=200) as load:
        mirror.eventually(lambda parts: all(p.records > 20 for p in parts))
        rig.target.kill(1)
        try:
            # the lead ends by this process's own clock, and no other process can take it in the
            # meantime
            eventually(lambda: mirror.snapshots[0].generation is None, what="the end of the lead")
            assert mirror.snapshots[0].state == "DEGRADED"
        finally:
            rig.target.restart(1)
        eventually(lambda: mirror.snapshots[0].generation == 1, what="a new generation")
        goes_on(rig)
        finish(rig, mirror, load)
