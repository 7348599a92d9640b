"""The leases of different flows change at different times."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.client import eventually
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.control.lanes.lanes import Job
from twinlog.control.running.flow_run import FlowRun
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

LEASE_S = 8.0
_TRIES = 4


def test_lease_changes_of_different_flows_are_apart(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    """A lease is a Spark job whose tasks are lanes, and the next lease starts before the current
    one ends. If this happened at the same time in all flows, there would be twice as many lanes for
    a moment. So the first leases of two flows must have different lengths.
    """
    # both aliases are one cluster, so each flow has its own topic
    for topic in (fresh_topic, f"{fresh_topic}-2"):
        create_topic(source_cluster, topic)
    one, other = (f"{name}{uuid.uuid4().hex[:8]}" for name in "ab")
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {one}, {other}, B\n"
        f"{one}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"{other}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{one}->B.enabled = true\n{other}->B.enabled = true\n"
        f"{one}->B.topics = {fresh_topic}\n{other}->B.topics = {fresh_topic}-2\n"
        "replication.factor = 1\n"
    )
    # try again, because a machine that stalls for a second shifts a change; a defect would shift it
    # each time
    for _ in range(_TRIES):
        lasted = _first_leases(Mirror(path, lanes=1, lease_s=LEASE_S))
        # they should be a quarter of a lease apart, and none should last longer than a lease
        if max(lasted) - min(lasted) > LEASE_S / 8 and max(lasted) < LEASE_S * 1.2:
            return
    raise AssertionError(f"lease changes are not apart: {lasted}")


def _first_leases(mirror: Mirror) -> list[float]:
    """Return the duration of each flow's first lease, in seconds."""
    began: defaultdict[FlowRun, list[float]] = defaultdict(list)
    start = mirror.supervisor.start_lease

    def noted(run: FlowRun, lanes: int) -> tuple[int, Job]:
        began[run].append(time.monotonic())
        return start(run, lanes)

    mirror.supervisor.start_lease = noted  # type: ignore[method-assign]
    with mirror:
        eventually(
            lambda: len(began) == 2 and all(len(times) > 1 for times in [*began.values()]),
            what="a first lease and a change of each flow",
        )
        mirror.stop()
    return [times[1] - times[0] for times in began.values()]
