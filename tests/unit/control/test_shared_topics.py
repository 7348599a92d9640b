"""Groups that skip records because another flow copies to the same topic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.properties import flow_of, loader
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_offsets import Committed
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.groups import left_out
from twinlog.control.groups.left_out import other_flows, skipping_groups
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import TopicId, TopicPartition
from twinlog.survey.cluster_state import ClusterState

HERE, EARLIER = TopicId("a" * 32), TopicId("b" * 32)


@pytest.fixture
def flow(tmp_path: Path) -> FlowConfig:
    return flow_of(loader(tmp_path)())


def row(flow: str, topic: str, topic_id: TopicId = HERE, **more: bool) -> CopyRow:
    return CopyRow(
        flow=flow,
        topic=topic,
        topic_id=topic_id,
        target_cluster_id="b",
        source_cluster_id=flow[0],
        source_topic=topic,
        source_topic_id=HERE,
        lineage=(),
        **{"begun": True, "ended": False, **more},  # type: ignore[arg-type]
    )


def test_which_flows_have_begun_to_copy_to_a_topic(
    monkeypatch: pytest.MonkeyPatch, flow: FlowConfig
) -> None:
    rows = [
        row(str(flow.flow), "orders"),
        row("C->B", "orders"),
        row("D->B", "orders", begun=False),
        row("E->B", "orders", ended=True),
        row("C->B", "sales", EARLIER),
        row("C->B", "gone"),
        row("C->B", "unasked"),
        row(str(flow.flow), "alone"),
    ]
    state = ClusterState(cluster_id="b", rows={(one.flow, one.topic): one for one in rows})
    monkeypatch.setattr(left_out, "cluster_state", lambda _: state)
    target = SimpleNamespace(
        metadata=lambda names: SimpleNamespace(
            topics={n: SimpleNamespace(error=3 * (n == "gone"), topic_id=HERE) for n in names}
        )
    )
    found = other_flows(
        flow, cast("ClusterClient", target), ["orders", "orders", "sales", "gone", "alone"]
    )
    assert found == {"orders": {"C->B"}}


def test_one_line_names_the_topics_and_groups_of_each_set_of_flows(flow: FlowConfig) -> None:
    remotes = {"orders": "orders", "sales": "sales", "own": "own"}
    others = {"orders": {"C->B"}, "sales": {"C->B"}, "own": frozenset[str]()}

    def at(*topics: str) -> dict[TopicPartition, Committed]:
        return {TopicPartition(one, n): Committed(offset=4) for one in topics for n in range(2)}

    groups = {"shop": at("orders", "own"), "till": at("sales"), "own": at("own", "elsewhere")}
    (line,) = skipping_groups(flow, remotes, others, groups)
    assert "orders, sales on B also gets the records of C->B. Offsets translated by A->B" in line
    assert "(shop, till)" in line
    assert [*skipping_groups(flow, remotes, others, {"own": groups["own"]})] == []
    assert len([*skipping_groups(flow, remotes, others | {"sales": {"D->B"}}, groups)]) == 2
