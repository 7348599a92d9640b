"""With `client.rack`, partitions are read from the replica in the same rack, and from the leader if
that replica fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.rig import Rig
from tests.support.topics import create_topic, leader
from twinlog.sandbox import QUICK_JVM, LocalCluster

pytestmark = pytest.mark.broker

NOTES_WHO_BROUGHT_RECORDS = """
from twinlog.lane.sides.source_side import SourceSide
read = SourceSide.on_readable
def noting(self, node, connection):
    before = [state.copy.intake.position for state in self.partitions.values()]
    read(self, node, connection)
    if [state.copy.intake.position for state in self.partitions.values()] != before:
        with open({notes!r}, "a") as out:
            out.write(str(node))
SourceSide.on_readable = noting
"""

CANNOT_REACH = """
from twinlog.lane.sides.cluster_side import ClusterSide
connection_to = ClusterSide.connection_to
def reached(self, node):
    is_cut_off = self.settings.alias == {alias!r} and node == {node}
    return None if is_cut_off else connection_to(self, node)
ClusterSide.connection_to = reached
"""


@pytest.fixture
def racks() -> Iterator[LocalCluster]:
    """Three brokers in different racks, which offer replicas by rack."""
    with LocalCluster(
        "racks",
        brokers=3,
        jvm_flags=QUICK_JVM,
        config={
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "group.initial.rebalance.delay.ms": "0",
        },
        node_config={node: {"broker.rack": f"rack-{node}"} for node in (1, 2, 3)},
    ) as cluster:
        yield cluster


def test_the_replica_in_our_rack_is_read_until_it_fails(
    racks: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    notes = tmp_path / "nodes"
    with Rig(racks, target_cluster, tmp_path) as rig:
        create_topic(racks, rig.topic, replication_factor=3)
        led_by = leader(racks, rig.topic, 0)
        near = next(node for node in (1, 2, 3) if node != led_by)
        rig.put(range(10))

        def brought() -> str:
            return notes.read_text() if notes.exists() else ""

        keys = {f"{rig.alias}.consumer.client.rack": f"rack-{near}"}
        prelude = NOTES_WHO_BROUGHT_RECORDS.format(notes=str(notes))
        with rig.mirror(keys=keys, prelude=prelude) as mirror:
            eventually(lambda: str(near) in brought(), what="records from the near replica")
            assert str(led_by) not in brought()
            rig.put(range(10, 20))
            mirror.eventually(lambda parts: sum(p.records for p in parts) == 20)
            assert str(led_by) not in brought()
            racks.kill(near)
            rig.put(range(20, 30))
            mirror.eventually(lambda parts: sum(p.records for p in parts) == 30)
            assert str(led_by) in brought(), "the leader was read when the replica was gone"
            mirror.stop()
        rig.same()
        rig.offsets_are_exact()


def test_leader_is_read_if_the_lane_cannot_reach_the_replica_that_the_leader_names(
    racks: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    """The replica is in sync, so the leader names it in each response to a Fetch with the rack, and
    returns no records.
    """
    with Rig(racks, target_cluster, tmp_path) as rig:
        create_topic(racks, rig.topic, replication_factor=3)
        led_by = leader(racks, rig.topic, 0)
        near = next(node for node in (1, 2, 3) if node != led_by)
        rig.put(range(10))
        keys = {f"{rig.alias}.consumer.client.rack": f"rack-{near}"}
        with rig.mirror(
            keys=keys, prelude=CANNOT_REACH.format(alias=rig.alias, node=near)
        ) as mirror:
            mirror.eventually(lambda parts: sum(p.records for p in parts) == 10)
            mirror.stop()
        rig.same()
