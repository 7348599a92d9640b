"""A map belongs to one pair of logs, so it is not used for a source topic that was re-created."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.client.group_translation import FlowTranslation
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, OffsetResult
from twinlog.config.load import load
from twinlog.errors import FlowError, TwinlogError, Unreachable
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, PartitionMap, Run, Term
from twinlog.mirror.names.filters import policy_of
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey import ends, exact_map
from twinlog.survey.exact_map import ExactMap
from twinlog.survey.replica import Maps

FILE = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = orders
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
TP = TopicPartition("orders", 0)
COPIED, OTHER, REMOTE = TopicId("a" * 32), TopicId("b" * 32), TopicId("c" * 32)

READ: dict[int, TwinlogError] = {}


class Source:
    """The metadata of the source cluster, with the topic `orders` or without it."""

    def __init__(self, topic_id: TopicId | None) -> None:
        self._id = topic_id
        self.asked = 0

    def metadata(self, topics: list[str]) -> Any:
        self.asked += 1
        if self._id is None:
            raise Unreachable("cluster A does not answer")
        return SimpleNamespace(
            topics={name: SimpleNamespace(error=0, topic_id=self._id) for name in topics}
        )


def translation(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    source: Source,
    copied: TopicId = COPIED,
    unread: dict[int, TwinlogError] = READ,
) -> FlowTranslation:
    """Return the translation of a flow that has copied the offsets [0, 10) of `orders` to [5,
    15).
    """
    key = PartitionKey(copied, REMOTE, 0)
    known = PartitionMap(key=key, topic="orders")
    mark = Mark(10, 15, is_final=True)
    runs = (Run(0, 0, 5),)
    known.apply(ChunkRow(key=key, term=Term(1, 0), chunk=0, topic="orders", runs=runs, mark=mark))
    reader = SimpleNamespace(read=lambda: Maps({key: known}, unread, 1))
    bounds = {EARLIEST: 5, LATEST: 15}
    monkeypatch.setattr(exact_map, "MapReader", lambda *_: reader)
    monkeypatch.setattr(
        ends,
        "list_offsets",
        lambda _, tps, at, **__: {
            tp: OffsetResult(offset=bounds[at], timestamp=-1, leader_epoch=0) for tp in tps
        },
    )
    target = SimpleNamespace(
        alias="B",
        metadata=lambda topics: SimpleNamespace(
            topics={
                name: SimpleNamespace(name=name, error=0, topic_id=REMOTE, partitions=[0])
                for name in topics or ["orders"]
            }
        ),
    )
    file = folder / "mm2.properties"
    file.write_text(FILE)
    (flow,) = load(str(file), environment={}).flows
    out = object.__new__(FlowTranslation)
    out._config, out._policy, out._is_lost = flow, policy_of(flow), False
    out._source = cast("ClusterClient", source)
    out._target = cast("ClusterClient", target)
    out._map = ExactMap(out._target, out._policy, flow.flow)
    return out


@pytest.mark.parametrize("reverse", [False, True], ids=["there", "back"])
def test_a_recreated_source_topic_has_no_counterpart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reverse: bool
) -> None:
    offset, other = (9, 4) if reverse else (4, 9)
    same = translation(monkeypatch, tmp_path, Source(COPIED))
    (found,) = same.all_of({TP: offset}, reverse=reverse)
    assert (found.to_offset, found.is_exact) == (other, True)
    recreated = translation(monkeypatch, tmp_path, Source(OTHER))
    with pytest.raises(FlowError, match=f"source topic of {TP} was deleted") as caught:
        recreated.all_of({TP: offset}, reverse=reverse)
    assert caught.value.code == "SOURCE_RECREATED"
    with pytest.raises(FlowError, match="created again"):
        recreated.translate(TP, offset, reverse=reverse)


@pytest.mark.parametrize(
    ("source", "copied"),
    [(Source(None), COPIED), (Source(NO_TOPIC_ID), COPIED), (Source(OTHER), NO_TOPIC_ID)],
    ids=["lost", "source without IDs", "map without IDs"],
)
def test_an_unknown_id_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Source, copied: TopicId
) -> None:
    known = translation(monkeypatch, tmp_path, source, copied)
    for _ in range(2):
        (found,) = known.all_of({TP: 4}, reverse=False)
        assert (found.to_offset, found.is_exact) == (9, True)
    assert source.asked == (1 if known._is_lost else 2), "a lost source is not asked again"


def test_a_map_that_cannot_all_be_read_translates_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A partition of the map topic cannot be read, so rows that describe a gap may be missing. A
    translated offset could be after records that a group has not read, so nothing is translated.
    """
    unread: dict[int, TwinlogError] = {0: Unreachable("no leader")}
    known = translation(monkeypatch, tmp_path, Source(COPIED), unread=unread)
    (found,) = known.all_of({TP: 4}, reverse=False)
    assert found.to_offset is None
    with pytest.raises(FlowError, match="no offset map"):
        known.translate(TP, 4, reverse=True)
