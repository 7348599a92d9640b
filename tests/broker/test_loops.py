"""Configurations that would copy records twice or forever are refused before anything is written.

Each refusal is tested with `check` and with a start, which must report the same words. Both
clusters must have the same topics and log ends before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.circle_of_flows import (
    COUNT,
    IDENTITY,
    Circle,
    copied,
    once,
    problems,
    refused,
)
from tests.support.client import eventually
from tests.support.mirror import Mirror
from tests.support.topics import delete_topic
from twinlog.cli.main import run
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.fixture
def circle(tmp_path: Path, four_clusters: list[LocalCluster]) -> Circle:
    return Circle(tmp_path, four_clusters[:3])


# -- the identity policy -----------------------------------------------------------------------


def test_identity_both_ways_in_one_file(circle: Circle, capsys: pytest.CaptureFixture[str]) -> None:
    circle.put(0)
    config = circle.file({"A": 0, "B": 1}, ["A->B", "B->A"], replication_policy_class=IDENTITY)
    words = refused(circle, config, "COPIED_BACK", "A->B", "B->A")
    assert f"{circle.flow('B->A')}.topics.exclude" in words
    assert run(["check", str(config)]) == 1
    assert words in capsys.readouterr().out


def test_identity_both_ways_with_the_topic_on_both_sides(circle: Circle) -> None:
    circle.put(0)
    circle.put(1)
    config = circle.file({"A": 0, "B": 1}, ["A->B", "B->A"], replication_policy_class=IDENTITY)
    refused(circle, config, "COPIED_BACK", "A->B", "B->A")


def test_identity_both_ways_in_two_files(circle: Circle) -> None:
    """Two files have one direction each, so the second process can detect the first one only by its
    rows on the clusters. The second flow is refused, also if its file has other aliases.
    """
    circle.put(0)
    copied(circle.file({"A": 0, "B": 1}, ["A->B"], replication_policy_class=IDENTITY))
    back = circle.file({"A": 0, "B": 1}, ["B->A"], "back", replication_policy_class=IDENTITY)
    refused(circle, back, "COPIED_BACK", "B->A")
    other = circle.file({"X": 0, "Y": 1}, ["Y->X"], "other", replication_policy_class=IDENTITY)
    assert circle.flow("A->B") in refused(circle, other, "COPIED_BACK", "Y->X")


def test_identity_both_ways_with_topics_of_their_own(circle: Circle) -> None:
    """Two identity flows in opposite directions are accepted if they copy different topics. The
    next run is accepted as well, and copies new records.
    """
    circle.put(0, "pay")
    circle.put(1, "ship")
    config = circle.file(
        {"A": 0, "B": 1},
        ["A->B", "B->A"],
        replication_policy_class=IDENTITY,
        A_to_B__topics=circle.topic("pay"),
        B_to_A__topics=circle.topic("ship"),
    )
    copied(config)
    circle.put(0, "pay", begin=COUNT)
    copied(config)
    assert circle.values(1, circle.topic("pay")) == [f"0 {n}".encode() for n in range(2 * COUNT)]
    assert circle.values(0, circle.topic("ship")) == [f"1 {n}".encode() for n in range(COUNT)]


@pytest.mark.witness("a ring of three clusters with IdentityReplicationPolicy is refused")
def test_a_ring_of_three_under_identity_in_three_files(circle: Circle) -> None:
    circle.put(0)
    for flow, places in (("A->B", {"A": 0, "B": 1}), ("B->C", {"B": 1, "C": 2})):
        copied(circle.file(places, [flow], flow[0], replication_policy_class=IDENTITY))
    last = circle.file({"Q": 2, "P": 0}, ["Q->P"], "last", replication_policy_class=IDENTITY)
    refused(circle, last, "COPIED_BACK", "Q->P")


def test_a_ring_of_three_under_identity_in_one_file(circle: Circle) -> None:
    """Three flows in one file form a ring. The flow whose source has the topic is refused. The
    sources of the other two flows have no such topic, so they copy nothing.
    """
    circle.put(0)
    flows = ["A->B", "B->C", "C->A"]
    config = circle.file({"A": 0, "B": 1, "C": 2}, flows, replication_policy_class=IDENTITY)
    (words,) = problems(config)[circle.flow("A->B")]
    for flow in flows:
        assert circle.flow(flow) in words
    ended = {flow.flow: flow.code for flow in once(config)}
    assert ended[circle.flow("A->B")] == "COPIED_BACK"
    assert [circle.mine(at) for at in range(3)] == [{circle.topic()}, set(), set()]
    assert len(circle.values(0, circle.topic())) == COUNT


# -- who is who --------------------------------------------------------------------------------


@pytest.mark.witness("with swapped addresses nothing is copied back", case="identity")
@pytest.mark.parametrize("policy", [IDENTITY, ""], ids=["identity", "default"])
def test_addresses_swapped_between_two_runs(circle: Circle, policy: str) -> None:
    circle.put(0, "pay")
    circle.put(0, "two")
    circle.put(1, "two", count=7)
    keys = {"replication_policy_class": policy} if policy else {}
    copied(circle.file({"A": 0, "B": 1}, ["A->B"], **keys))
    swapped = circle.file({"A": 1, "B": 0}, ["A->B"], "swapped", **keys)
    words = refused(circle, swapped, "CLUSTERS_SWAPPED", "A->B")
    assert f"swap {circle.name('A')}.bootstrap.servers" in words
    circle.put(0, "pay", begin=COUNT)
    copied(circle.file({"A": 0, "B": 1}, ["A->B"], **keys))


@pytest.mark.parametrize("policy", [IDENTITY, ""], ids=["identity", "default"])
def test_an_alias_renamed(circle: Circle, policy: str) -> None:
    circle.put(0)
    keys = {"replication_policy_class": policy} if policy else {}
    first = circle.file({"A": 0, "B": 1}, ["A->B"], **keys)
    copied(first)
    renamed = circle.file({"Z": 0, "B": 1}, ["Z->B"], "renamed", **keys)
    words = refused(circle, renamed, "COPIED_TWICE", "Z->B")
    assert f"use the aliases of {circle.flow('A->B')}" in words
    target = circle.file({"A": 0, "Z": 1}, ["A->Z"], "target", **keys)
    refused(circle, target, "COPIED_TWICE", "A->Z")
    circle.put(0, begin=COUNT)
    copied(first)


def test_another_alias_may_copy_topics_that_the_first_one_does_not(circle: Circle) -> None:
    circle.put(0, "pay")
    circle.put(0, "ship")
    copied(circle.file({"A": 0, "B": 1}, ["A->B"], topics=circle.topic("pay")))
    copied(circle.file({"Z": 0, "B": 1}, ["Z->B"], "other", topics=circle.topic("ship")))
    remote = f"{circle.name('Z')}.{circle.topic('ship')}"
    assert len(circle.values(1, remote)) == COUNT


def test_another_alias_may_copy_when_the_first_copy_is_gone(circle: Circle) -> None:
    circle.put(0)
    copied(circle.file({"A": 0, "B": 1}, ["A->B"]))
    delete_topic(circle.clusters[1], f"{circle.name('A')}.{circle.topic()}")
    copied(circle.file({"Z": 0, "B": 1}, ["Z->B"], "renamed"))


@pytest.mark.witness("two aliases of one cluster are refused", case="default")
@pytest.mark.parametrize("policy", [IDENTITY, ""], ids=["identity", "default"])
def test_both_aliases_are_one_cluster(circle: Circle, policy: str) -> None:
    circle.put(0)
    keys = {"replication_policy_class": policy} if policy else {}
    refused(circle, circle.file({"A": 0, "X": 0}, ["A->X"], **keys), "SAME_CLUSTER", "A->X")


@pytest.mark.parametrize("twins", [{"A": 0, "A2": 0, "B": 1}, {"A": 0, "B": 1, "B2": 1}])
def test_two_aliases_of_one_cluster_in_two_flows(circle: Circle, twins: Mapping[str, int]) -> None:
    circle.put(0)
    flows = ["A->B", "A2->B"] if "A2" in twins else ["A->B", "A->B2"]
    refused(circle, circle.file(twins, flows), "SAME_CLUSTER", *flows)


def test_two_aliases_of_one_cluster_for_topics_of_their_own(circle: Circle) -> None:
    circle.put(0, "pay")
    circle.put(0, "ship")
    config = circle.file(
        {"A": 0, "A2": 0, "B": 1},
        ["A->B", "A2->B"],
        A_to_B__topics=circle.topic("pay"),
        A2_to_B__topics=circle.topic("ship"),
    )
    rounds(circle, config, 2)
    a, a2 = circle.name("A"), circle.name("A2")
    assert circle.mine(1) == {f"{a}.{circle.topic('pay')}", f"{a2}.{circle.topic('ship')}"}


def test_one_name_for_both_directions_in_files_that_call_their_clusters_the_same(
    circle: Circle,
) -> None:
    """Two files use the same flow name for opposite directions. The second flow is refused until
    its clusters have other aliases.
    """
    circle.put(0)
    there = circle.file({"source": 0, "target": 1}, ["source->target"])
    copied(there)
    places = {"source": 1, "target": 0}
    back = circle.file(places, ["source->target"], "back", topics=circle.topic("ship"))
    circle.put(1, "ship")
    assert "give its clusters other aliases" in refused(
        circle, back, "CLUSTERS_SWAPPED", "source->target"
    )
    named = circle.file({"b": 1, "a": 0}, ["b->a"], "named", topics=circle.topic("ship"))
    copied(named)


# -- names -------------------------------------------------------------------------------------


def rounds(circle: Circle, config: Path, count: int = 3) -> None:
    for _ in range(count):
        assert not any(problems(config).values())
        copied(config)


def test_aliases_that_contain_the_separator(circle: Circle) -> None:
    circle.put(0, "west")
    circle.put(1, "east")
    config = circle.file({"eu.west": 0, "us.east": 1}, ["eu.west->us.east", "us.east->eu.west"])
    rounds(circle, config)
    west, east = circle.topic("west"), circle.topic("east")
    assert circle.mine(0) == {west, f"{circle.name('us.east')}.{east}"}
    assert circle.mine(1) == {east, f"{circle.name('eu.west')}.{west}"}
    assert len(circle.values(1, f"{circle.name('eu.west')}.{west}")) == COUNT


def separators(circle: Circle, flows: Sequence[str], name: str) -> Path:
    return circle.file(
        {"A": 0, "B": 1},
        flows,
        name,
        **{
            flow.replace("->", "_to_") + "__replication_policy_separator": mark
            for flow, mark in (("A->B", "_"), ("B->A", "-"))
            if flow in flows
        },
    )


@pytest.mark.parametrize("files", [1, 2])
def test_another_separator_each_way(circle: Circle, files: int) -> None:
    """Both directions are accepted although each has its own separator. In one file, both
    separators are known, so a topic's name shows whether it is a copy. With two files, each process
    knows only its own separator, and finds the other flow in the state topic.
    """
    circle.put(0, "pay")
    circle.put(1, "ship")
    for _ in range(3):
        if files == 1:
            rounds(circle, separators(circle, ["A->B", "B->A"], "both"), 1)
        else:
            for flow in ("A->B", "B->A"):
                rounds(circle, separators(circle, [flow], flow[0]), 1)
    pay, ship = circle.topic("pay"), circle.topic("ship")
    assert circle.mine(0) == {pay, f"{circle.name('B')}-{ship}"}
    assert circle.mine(1) == {ship, f"{circle.name('A')}_{pay}"}
    assert len(circle.values(1, f"{circle.name('A')}_{pay}")) == COUNT


# -- what must go on ---------------------------------------------------------------------------


def test_both_ways_a_chain_and_a_ring_by_default_names(circle: Circle) -> None:
    for at in range(3):
        circle.put(at)
    flows = ["A->B", "B->A", "B->C", "C->A"]
    config = circle.file({"A": 0, "B": 1, "C": 2}, flows)
    assert not any(problems(config).values())
    a, b, c = (circle.name(alias) for alias in "ABC")
    pay = circle.topic()
    with Mirror(config, lanes=1) as mirror:
        eventually(lambda: len(circle.mine(2)) >= 3 and len(circle.mine(0)) >= 4)
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        mirror.stop()
    for _ in range(2):
        copied(config)
    before = [circle.mine(at) for at in range(3)]
    copied(config)
    assert [circle.mine(at) for at in range(3)] == before
    for at in range(3):
        for name in circle.mine(at):
            assert len(circle.values(at, name)) == COUNT, name
    assert f"{b}.{a}.{pay}" in before[2]
    assert f"{c}.{b}.{pay}" in before[0]
