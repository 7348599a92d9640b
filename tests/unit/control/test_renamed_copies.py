"""The names under which a flow has begun its copies are used by a discovery and by a cutover."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.properties import IDENTITY, flows_of
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.copies import FlowUpstreams
from twinlog.control.loops.guard import LoopGuard
from twinlog.control.loops.neighbours import SiblingFlows
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import TopicId
from twinlog.survey.cluster_state import ClusterState
from twinlog.survey.discovery import TopicVerdicts

RENAME = "A->B.twinlog.rename = orders:eu-orders"


def id_of(cluster: str, name: str) -> TopicId:
    return TopicId(f"{cluster}{name}".encode().hex().ljust(32, "0")[:32])


def metadata(cluster: str, *names: str) -> ClusterMetadata:
    topics = {
        name: TopicMetadata(
            name=name, topic_id=id_of(cluster, name), is_internal=False, error=0, partitions=()
        )
        for name in names
    }
    return ClusterMetadata(cluster_id=cluster, controller=0, brokers={}, topics=topics)


def row(remote: str, topic: str, *, renamed: bool = False, begun: bool = True) -> CopyRow:
    return CopyRow(
        lineage=(),
        ended=False,
        flow="A->B",
        topic=remote,
        topic_id=id_of("b", remote) if remote else id_of("b", f"A.{topic}"),
        target_cluster_id="b",
        source_cluster_id="a",
        source_topic=topic,
        source_topic_id=id_of("a", topic),
        begun=begun,
        renamed=renamed,
    )


def of_another_flow(remote: str, *, begun: bool, ended: bool = False) -> CopyRow:
    elsewhere = {"source_cluster_id": "c", "source_topic_id": id_of("c", "orders")}
    mine = row(remote, "orders", renamed=True, begun=begun)
    return structs.replace(mine, flow="C->B", ended=ended, **elsewhere)


@dataclass(frozen=True, kw_only=True)
class Counting(ClusterState):
    asked: list[str] = field(default_factory=list)

    def copied_by(self, flow: str) -> list[CopyRow]:
        self.asked.append(flow)
        return super().copied_by(flow)


def judged(
    monkeypatch: pytest.MonkeyPatch,
    flow: FlowConfig,
    target: ClusterState,
    here: ClusterMetadata,
    there: ClusterMetadata,
) -> TopicVerdicts:
    states = ClusterState(cluster_id="a"), target
    monkeypatch.setattr(LoopGuard, "_states", lambda *_: states)
    monkeypatch.setattr(LoopGuard, "_write", lambda *_: None)
    guard = LoopGuard(
        config=flow,
        policy=policy_of(flow),
        neighbours=SiblingFlows([flow]),
        log_once=lambda _: None,
    )
    nobody: ClusterClient = None  # type: ignore[assignment]
    return guard.admit(nobody, nobody, here.topics, here, there)


@pytest.mark.parametrize("rules", [(), (RENAME,)], ids=["plain", "renames"])
def test_a_look_goes_through_the_rows_once_and_not_once_per_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: tuple[str, ...]
) -> None:
    flow = flows_of(tmp_path, "A->B.topics = .*", *rules)["A->B"]
    names = [f"topic-{number}" for number in range(20)]
    rows = {("A->B", f"A.{name}"): row(f"A.{name}", name) for name in names}
    state = Counting(cluster_id="b", rows=rows)
    there = metadata("b", *(f"A.{name}" for name in names))
    verdict = judged(monkeypatch, flow, state, metadata("a", *names), there)
    assert sorted(verdict.rows) == sorted(names)
    assert len(state.asked) <= 2, "a look judges at most twice"


@pytest.mark.parametrize(
    ("known", "topics", "codes"),
    [
        ([row("A.orders", "orders")], ["orders"], {"orders": "RENAME_CHANGED"}),
        ([row("", "orders")], ["orders"], {"orders": "RENAME_CHANGED"}),
        ([row("A.eu-orders", "eu-orders")], ["orders"], {"orders": "RENAME_CLASH"}),
        ([row("A.orders", "orders", begun=False)], ["orders"], {}),
        ([row("A.gone", "orders")], ["orders"], {}),
        ([row("A.pay", "pay")], ["orders", "pay"], {}),
        (
            [row("A.orders", "orders"), row("A.eu-orders", "orders", renamed=True)],
            ["orders"],
            {},
        ),
        ([of_another_flow("A.eu-orders", begun=True)], ["orders"], {"orders": "RENAME_CLASH"}),
        ([of_another_flow("A.eu-orders", begun=False)], ["orders"], {"orders": "RENAME_CLASH"}),
        ([of_another_flow("A.eu-orders", begun=True, ended=True)], ["orders"], {}),
        (
            [structs.replace(row("A.eu-orders", "orders", renamed=True), flow="C->B")],
            ["orders"],
            {"orders": "COPIED_TWICE"},
        ),
        (
            [
                row("A.eu-orders", "orders", renamed=True),
                of_another_flow("A.eu-orders", begun=True),
            ],
            ["orders"],
            {},
        ),
    ],
    ids=[
        *("changed", "by-map", "taken", "intention", "gone", "others", "begun-twice"),
        *("another flow", "another flow's intention", "another flow has ended"),
        *("another alias of the source", "ours is begun"),
    ],
)
def test_the_owner_of_a_name_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: list[CopyRow],
    topics: list[str],
    codes: dict[str, str],
) -> None:
    flow = flows_of(tmp_path, "A->B.topics = .*", RENAME)["A->B"]
    by_name = {(one.flow, one.topic): one for one in known if one.topic}
    older = tuple(one for one in known if not one.topic)
    state = ClusterState(cluster_id="b", rows=by_name, older=older)
    there = metadata("b", "A.orders", "A.eu-orders", "A.pay")
    verdict = judged(monkeypatch, flow, state, metadata("a", *topics), there)
    assert {name: error.code for name, error in verdict.errors.items()} == codes
    assert {*verdict.rows} == {*topics} - {*codes}


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    ("lines", "stale", "now"),
    [
        ((RENAME,), "A.orders", "A.eu-orders"),
        ((), "A.eu-orders", "A.orders"),
        ((IDENTITY,), "A.orders", "orders"),
    ],
    ids=["renamed-since", "plain-again", "identity-since"],
)
def test_a_cutover_takes_the_copy_that_the_flow_writes_now(
    tmp_path: Path, lines: tuple[str, ...], stale: str, now: str, *, newest_first: bool
) -> None:
    flow = flows_of(tmp_path, "A->B.topics = .*", *lines)["A->B"]
    upstreams = FlowUpstreams.of(flow, [row(stale, "orders"), row(now, "orders")])
    there = metadata("b", *((now, stale) if newest_first else (stale, now)))
    found = upstreams.copies(there.topics)
    assert found == {now: "orders"}


def test_a_begun_copy_counts_and_an_intention_does_not(tmp_path: Path) -> None:
    flow = flows_of(tmp_path, "A->B.topics = .*", RENAME)["A->B"]
    rows = [row("A.orders", "orders"), row("A.eu-orders", "orders", begun=False)]
    there = metadata("b", "A.eu-orders", "A.orders")
    assert FlowUpstreams.of(flow, rows).copies(there.topics) == {"A.orders": "orders"}
