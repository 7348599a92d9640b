"""The heartbeats and offset syncs of a configuration file, by MirrorMaker 2's rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from twinlog.config.flow.schema import FlowConfig, MirrorConfig, OffsetSyncsConfig
from twinlog.config.load import load
from twinlog.errors import ConfigError

TWO = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"


def read(tmp_path: Path, *lines: str, clusters: Sequence[str] = ()) -> MirrorConfig:
    file = tmp_path / "mm2.properties"
    file.write_text(TWO + "".join(f"{line}\n" for line in lines))
    return load(file, clusters, environment={})


def beats(config: FlowConfig) -> list[str]:
    """Return the flow's heartbeats as texts such as `S->T into target`."""
    return [
        f"{one.source_alias}->{one.target_alias} into {'target' if one.into_target else 'source'}"
        for one in config.heartbeats
    ]


def test_a_pair_that_is_not_enabled_beats_too(tmp_path: Path) -> None:
    """Heartbeats are written for B->A, too, although only A->B is enabled. They show the target
    that the source is running.
    """
    (flow,) = read(tmp_path).flows
    assert beats(flow) == ["A->B into target", "B->A into source"]
    assert {one.interval_seconds for one in flow.heartbeats} == {1}
    assert {one.replication_factor for one in flow.heartbeats} == {None}


def test_enabled_pairs_beat_themselves(tmp_path: Path) -> None:
    flows = read(tmp_path, "B->A.enabled = true").flows
    assert [beats(flow) for flow in flows] == [["A->B into target"], ["B->A into target"]]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["emit.heartbeats.enabled = false"], []),
        (["B->A.emit.heartbeats.enabled = false"], ["A->B into target"]),
        (["A->B.emit.heartbeats.enabled = false"], ["B->A into source"]),
        (
            ["emit.heartbeats.enabled = false", "B->A.emit.heartbeats.enabled = true"],
            ["B->A into source"],
        ),
        (["emit.heartbeats.interval.seconds = -1"], []),
    ],
)
def test_pairs_are_switched_off_one_by_one(
    tmp_path: Path, lines: list[str], expected: list[str]
) -> None:
    (flow,) = read(tmp_path, *lines).flows
    assert beats(flow) == expected


def test_one_flow_beats_for_each_other_pair_and_none_for_a_cluster_that_no_flow_enters(
    tmp_path: Path,
) -> None:
    lines = ["clusters = A, B, C, D", "A->C.enabled = true", "C.bootstrap.servers = c:1"]
    flows = {str(one.flow): beats(one) for one in read(tmp_path, *lines).flows}
    assert flows == {
        "A->B": [
            "A->B into target",
            "B->A into source",
            "C->A into source",
            "C->B into target",
            "D->A into source",
            "D->B into target",
        ],
        "A->C": ["A->C into target", "B->C into target", "D->C into target"],
    }


def test_only_into_the_clusters_that_are_near(tmp_path: Path) -> None:
    (flow,) = read(tmp_path, clusters=["B"]).flows
    assert beats(flow) == ["A->B into target"]


def test_intervals_and_replicas_are_those_of_the_pair(tmp_path: Path) -> None:
    (flow,) = read(
        tmp_path,
        "emit.heartbeats.interval.seconds = 5",
        "B->A.emit.heartbeats.interval.seconds = 7",
        "B->A.heartbeats.topic.replication.factor = 1",
    ).flows
    assert [(one.interval_seconds, one.replication_factor) for one in flow.heartbeats] == [
        (5, None),
        (7, 1),
    ]


def test_aliases_may_have_other_names(tmp_path: Path) -> None:
    (flow,) = read(tmp_path, "A->B.source.cluster.alias = west").flows
    assert beats(flow)[0] == "west->B into target"


@pytest.mark.parametrize(
    "line",
    [
        "emit.heartbeats.interval.seconds = 0",
        "heartbeats.topic.replication.factor = 0",
        "offset-syncs.topic.replication.factor = 0",
        "offset-syncs.topic.location = nowhere",
        "B->A.emit.heartbeats.interval.seconds = soon",
    ],
)
def test_wrong_values_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=r"mm2\.properties:5"):
        read(tmp_path, line)


def test_offset_syncs(tmp_path: Path) -> None:
    (flow,) = read(tmp_path).flows
    assert flow.offset_syncs == OffsetSyncsConfig(
        on_target=False, lag_max=100, replication_factor=None
    )
    (flow,) = read(
        tmp_path,
        "offset-syncs.topic.location = target",
        "A->B.offset.lag.max = 0",
        "offset-syncs.topic.replication.factor = 2",
    ).flows
    assert flow.offset_syncs == OffsetSyncsConfig(on_target=True, lag_max=0, replication_factor=2)
    (flow,) = read(tmp_path, "emit.offset-syncs.enabled = false").flows
    assert flow.offset_syncs is None
