"""Twinlog's internal topics have the replication factor of their own key, not the one of remote
topics.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rig import Rig
from tests.support.topics import offset_map_topic
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

KEY = "twinlog.state.topic.replication.factor"


@pytest.mark.parametrize(("factor", "replicas"), [("2", 2), ("-1", 3)])
def test_replicas_of_the_offset_map(
    source3: LocalCluster, target3: LocalCluster, tmp_path: Path, factor: str, replicas: int
) -> None:
    with Rig(source3, target3, tmp_path) as rig:
        rig.create()
        rig.put(range(3))
        rig.copy_once({KEY: factor})
        topics = (offset_map_topic(rig.alias), rig.remote)
        found = rig.target_client.metadata(topics).topics
        counts = [{len(p.replicas) for p in found[name].partitions} for name in topics]
        assert counts == [{replicas}, {1}], "the brokers' own default is three"
