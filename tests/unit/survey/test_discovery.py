"""Topics are copied only if one of both clusters has topic IDs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.properties import flow_of, loader
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from twinlog.mirror.names.filters import policy_of
from twinlog.model import NO_TOPIC_ID, TopicId
from twinlog.survey import topic_configs
from twinlog.survey.discovery import discover

ID = TopicId("a" * 32)


def cluster(topic_id: TopicId, *names: str) -> ClusterClient:
    """Return a client for a cluster whose topics all have this ID."""
    partition = PartitionMetadata(
        number=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), error=0
    )
    topics = {
        name: TopicMetadata(
            name=name, topic_id=topic_id, is_internal=False, error=0, partitions=(partition,)
        )
        for name in names
    }
    metadata = ClusterMetadata(cluster_id="", controller=1, brokers={}, topics=topics)
    return cast("ClusterClient", SimpleNamespace(metadata=lambda *_, **__: metadata))


@pytest.mark.parametrize("source_id", [ID, NO_TOPIC_ID], ids=["source", "source without IDs"])
@pytest.mark.parametrize("target_id", [ID, NO_TOPIC_ID], ids=["target", "target without IDs"])
def test_topics_without_any_id_would_share_the_rows_of_the_map(
    source_id: TopicId, target_id: TopicId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_configs, "describe_topic_configs", lambda *_: {})
    flow = flow_of(loader(tmp_path)())
    source = cluster(source_id, "orders", "bills")
    target = cluster(target_id, "A.orders", "A.bills")
    found = discover(flow, policy_of(flow), source, target, create=False)
    keys = {plan.map_key for plan in found.plans}
    failed = {problem.topic: problem.error.code for problem in found.problems}
    if source_id == target_id == NO_TOPIC_ID:
        assert (keys, failed) == (set(), dict.fromkeys(("orders", "bills"), "UNSUPPORTED"))
    else:
        assert (len(found.plans), failed) == (2, {})
