"""A flow is found by the name of its source, and by the source's alias."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.errors import ConfigError
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, Flow, TopicId
from twinlog.survey import cluster_state
from twinlog.survey.cluster_state import ClusterState, Upstream, find_upstream


def row(flow: str, topic: str, source_topic: str = "orders", **more: object) -> CopyRow:
    usual = {"topic_id": NO_TOPIC_ID, "lineage": (), "begun": True, "ended": False}
    fields = {"source_cluster_id": "a", "target_cluster_id": "b", **usual, **more}
    return CopyRow(
        flow=flow,
        topic=topic,
        source_topic=source_topic,
        source_topic_id=TopicId("c" * 32),
        **fields,  # type: ignore[arg-type]
    )


def found(monkeypatch: pytest.MonkeyPatch, name: str, *rows: CopyRow) -> Upstream | None:
    state = ClusterState(cluster_id="b", rows={(one.flow, one.topic): one for one in rows})
    monkeypatch.setattr(cluster_state, "cluster_state", lambda _: state)
    return find_upstream(cast("ClusterClient", SimpleNamespace(alias="B")), name)


@pytest.mark.parametrize("name", ["site1", "source"])
@pytest.mark.parametrize(
    "known",
    [
        row("source->target", "orders", source_alias="site1"),
        row("source->target", "site1.renamed", source_alias="site1", renamed=True),
        row("source->target", "site1.orders"),
        row("source->target", "site1__orders"),
    ],
    ids=["identity", "renamed", "earlier release", "earlier release, separator"],
)
def test_a_source_is_found_by_its_alias_and_by_its_name(
    monkeypatch: pytest.MonkeyPatch, known: CopyRow, name: str
) -> None:
    other = row("A->target", "A.orders")
    upstream = Upstream(Flow("source", "target"), "site1")
    assert found(monkeypatch, name, other, known) == upstream
    assert found(monkeypatch, "A", other, known) == Upstream(Flow("A", "target"), "A")


def test_an_unknown_name_or_an_intention_is_no_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "B", row("A->B", "A.orders")) is None
    assert found(monkeypatch, "A", row("A->B", "A.orders", begun=False)) is None


def test_the_alias_comes_before_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A given name is the alias of one flow's source, and the name of another flow's source. The
    alias is tried first, because users see it in topic names.
    """
    rows = row("A->B", "x.orders", source_alias="x"), row("C->B", "A.orders", source_alias="A")
    assert found(monkeypatch, "A", *rows) == Upstream(Flow("C", "B"), "A")
    assert found(monkeypatch, "x", *rows) == Upstream(Flow("A", "B"), "x")


def test_an_alias_of_several_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = row("A->B", "x.orders", source_alias="x"), row("C->B", "x.logs", source_alias="x")
    with pytest.raises(ConfigError, match=r"instead \(A, C\)"):
        found(monkeypatch, "x", *rows)
    assert found(monkeypatch, "C", *rows) == Upstream(Flow("C", "B"), "x")
    own = row("A->B", "A.orders"), row("C->B", "A.logs", source_alias="A")
    assert found(monkeypatch, "A", *own) == Upstream(Flow("A", "B"), "A")
