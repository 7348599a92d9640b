"""A client that reuses leaders looks them up again if a partition had none."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.support.settings import HURRIED, settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs import per_leader
from twinlog.cluster.logs.offsets import EpochEnd, log_ends
from twinlog.cluster.net.metadata import (
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from twinlog.errors import TwinlogError, Unreachable
from twinlog.model import TopicId, TopicPartition

MOVED: Final = TopicPartition("moved", 0)
QUIET: Final = TopicPartition("quiet", 0)


@dataclass
class Leaders:
    """The leader of each topic's partition, or -1, and the topics of each Metadata request."""

    of: dict[str, int]
    asked: list[list[str]] = field(default_factory=list)


class LeadersClient(ClusterClient):
    """A client of a cluster in memory: only a leader responds, with its node as the log end."""

    def __init__(self, leaders: Leaders) -> None:
        super().__init__(settings_for("b:1"), patience=HURRIED)
        self._leaders = leaders

    def _query_metadata(self, topics: Any, allow_missing: bool) -> ClusterMetadata:
        self._leaders.asked.append(list(topics))
        return ClusterMetadata(
            cluster_id="c",
            controller=1,
            brokers={n: Broker(node=n, host="b", port=n, rack=None) for n in (1, 2)},
            topics={name: self._topic(name) for name in topics},
        )

    def _topic(self, name: str) -> TopicMetadata:
        partition = PartitionMetadata(
            number=0,
            leader=self._leaders.of[name],
            leader_epoch=0,
            replicas=(1,),
            isr=(1,),
            error=0,
        )
        return TopicMetadata(
            name=name,
            topic_id=TopicId("a" * 32),
            is_internal=False,
            error=0,
            partitions=(partition,),
        )

    def attempt(self, node: int | None, request: Any, **_: Any) -> Any:
        if node not in self._leaders.of.values():
            raise Unreachable(f"broker {node} is down")
        topics = [
            SimpleNamespace(
                topic=topic.topic,
                partitions=[
                    SimpleNamespace(partition=0, leader_epoch=0, end_offset=node, error_code=0)
                ],
            )
            for topic in request.topics
        ]
        return SimpleNamespace(topics=topics)


def ends(client: ClusterClient) -> list[int | str]:
    found: list[int | str] = []
    for answer in log_ends(client, [MOVED, QUIET]).values():
        assert isinstance(answer, EpochEnd | TwinlogError)
        found.append(answer.end_offset if isinstance(answer, EpochEnd) else answer.code)
    return found


def test_partition_that_was_without_a_leader_gets_its_new_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(per_leader, "NO_LEADER_S", 0.0)
    leaders = Leaders({"moved": 1, "quiet": 2})
    client = LeadersClient(leaders)
    client.keep_leaders()
    assert sorted(ends(client)) == [1, 2]
    leaders.of["moved"] = -1
    assert set(ends(client)) == {2, "LEADER_NOT_AVAILABLE"}
    leaders.of["moved"] = 2
    leaders.asked.clear()
    assert ends(client) == [2, 2]
    assert leaders.asked == [["moved"]], "the leader of the other topic is reused"
    assert ends(client) == [2, 2]
    assert len(leaders.asked) == 1
