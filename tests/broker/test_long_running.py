"""A process that runs for long does not keep data about removed partitions and ended leases (Spark
jobs whose tasks are lanes).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.rig import Rig
from tests.support.topics import create_topic, delete_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]


def test_leases_that_are_over_are_forgotten(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        rig.create()
        with rig.mirror(lease_s=0.5) as mirror:
            eventually(lambda: 1 in mirror.supervisor.leases._runs)
            eventually(lambda: 1 not in mirror.supervisor.leases._runs, what="another lease")
            rig.put([1])
            rig.copied(1)
            mirror.stop()


@pytest.mark.witness("the state of partitions that left a flow is removed")
def test_partitions_that_left_are_forgotten(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RELEASED_SHOWN_S", "DELETED_SHOWN_S"):
        monkeypatch.setattr(f"twinlog.control.lanes.partitions.{name}", 1.0)
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        names = {rig.topic, f"{rig.topic}.gone"}
        for name in names:
            create_topic(rig.source, name)
        keys = {
            f"{rig.flow}.topics": f"{rig.topic}.*",
            "refresh.topics.interval.seconds": "1",
        }
        with rig.mirror(keys=keys) as mirror:

            def shown() -> set[str]:
                return {part.topic for flow in mirror.snapshots for part in flow.partitions}

            eventually(lambda: shown() == names)
            for name in names:
                produce(rig.source, name, [Outgoing(value=b"x")])
            mirror.eventually(lambda parts: all(part.records == 1 for part in parts))
            delete_topic(rig.source, f"{rig.topic}.gone")
            eventually(lambda: shown() == {rig.topic}, what="it is not shown any more")
            (flow,) = mirror.supervisor.flows
            assert flow.run is not None
            assert {tp.topic for tp in flow.run.partitions} == {rig.topic}
            mirror.stop()
