"""When the leases of several flows change."""

from __future__ import annotations

import itertools
import time
import uuid
from pathlib import Path

import pytest

from tests.support.client import eventually
from tests.support.lanes import ProcessJob
from tests.support.mirror import Mirror
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

LEASE_S = 8.0


def test_lease_changes_of_different_flows_are_apart(
    tmp_path: Path, source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> None:
    """All at once would double the lanes of all flows at once."""
    # one cluster by two names: each flow has a topic of its own
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
    mirror = Mirror(path, lanes=1, lease_s=LEASE_S)
    began: list[float] = []
    start = mirror.leases.start

    def noted(lease: int, lanes: int) -> ProcessJob:
        began.append(time.monotonic())
        return start(lease, lanes)

    mirror.leases.start = noted  # type: ignore[method-assign]
    with mirror:
        eventually(lambda: len(began) >= 4, what="a first lease and a change of each flow")
        mirror.stop()
    first, changes = began[:2], began[2:4]
    assert first[1] - first[0] < LEASE_S / 8, "both start at once"
    apart = [after - before for before, after in itertools.pairwise(changes)]
    assert min(apart) > LEASE_S / 8, "a quarter of a lease, they should be"
    assert max(changes) - min(first) < LEASE_S * 1.2, "and nobody waits longer than a lease"
