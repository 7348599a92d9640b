"""Flows and hops are derived from the names and the records of heartbeats topics."""

from __future__ import annotations

from twinlog.client.topology import topology
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.model import Flow

POLICY = DefaultReplicationPolicy()


def test_names_tell_flows_and_the_shortest_way() -> None:
    seen = topology(
        POLICY, "C", ["heartbeats", "B.heartbeats", "B.A.heartbeats", "A.heartbeats"], {}
    )
    assert [(one.alias, one.hops, one.way) for one in seen.clusters] == [
        ("A", 1, ("A", "C")),
        ("B", 1, ("B", "C")),
    ]
    assert {(str(one.flow), one.hops) for one in seen.flows} == {
        ("B->C", 1),
        ("A->B", 2),
        ("A->C", 1),
    }
    assert all(one.copies and one.last_heartbeat_ms is None for one in seen.flows)


def test_records_tell_when_a_flow_was_last_alive() -> None:
    beats = {Flow("A", "B"): 7, Flow("B", "C"): 8}
    seen = topology(POLICY, "C", ["heartbeats", "B.heartbeats", "B.A.heartbeats"], beats)
    assert {one.flow: one.last_heartbeat_ms for one in seen.flows} == {"A->B": 7, "B->C": 8}
    assert [one.hops for one in seen.clusters] == [1, 2]


def test_a_flow_that_only_beats_is_no_way() -> None:
    """MirrorMaker 2 writes heartbeats for B->A to A although only A->B is enabled, and B gets them
    through A. Such a flow copies nothing, so it is not counted as a path.
    """
    seen = topology(POLICY, "B", ["heartbeats", "A.heartbeats"], {Flow("B", "A"): 5})
    assert [one.alias for one in seen.clusters] == ["A"]
    back = next(one for one in seen.flows if one.flow == "B->A")
    assert (back.copies, back.hops, back.last_heartbeat_ms) == (False, None, 5)


def test_a_circle_of_flows_ends() -> None:
    seen = topology(POLICY, "A", ["B.heartbeats", "B.A.heartbeats"], {})
    assert [(one.alias, one.hops) for one in seen.clusters] == [("B", 1)]
    assert {str(one.flow) for one in seen.flows} == {"B->A", "A->B"}


def test_without_heartbeats_nothing_is_known() -> None:
    assert topology(POLICY, "A", ["orders", "B.orders"][:0], {}).flows == ()
