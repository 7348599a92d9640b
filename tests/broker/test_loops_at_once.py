"""Two flows form a loop: both start at the same time, one is added while the other runs, or an
earlier release has copied the topic. No record is copied back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.support.circle_of_flows import (
    COUNT,
    IDENTITY,
    Circle,
    copied,
    once,
    refused,
)
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror import Mirror
from tests.support.topics import (
    alter_topic_configs,
    create_topic,
    delete_topic,
    end_offsets,
    topic_configs,
)
from twinlog.cluster.client import ClusterClient
from twinlog.errors import FlowError
from twinlog.mirror.state.copies import CopyRow
from twinlog.sandbox import LocalCluster
from twinlog.survey.cluster_state import write_copies

pytestmark = pytest.mark.broker

WRITTEN: Final = "twinlog.control.loops.guard.write_copies"


@pytest.fixture
def circle(tmp_path: Path, four_clusters: list[LocalCluster]) -> Circle:
    return Circle(tmp_path, four_clusters[:3])


def halves(circle: Circle) -> list[Path]:
    """Return the configuration files of the two flows that form a loop, one file for each
    process.
    """
    places = {"A": 0, "B": 1}
    flows = ("A->B", "B->A")
    return [
        circle.file(places, [flow], flow[0], replication_policy_class=IDENTITY) for flow in flows
    ]


@pytest.mark.witness("two flows of a ring that start at the same moment both withdraw")
def test_both_halves_at_one_moment(circle: Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both flows of a loop read the state topics before either has written its rows, so both write.
    Each then finds the other's rows, withdraws its own, and fails with COPIED_BACK. The test makes
    both read again before either withdraws. Otherwise the later flow would continue.
    """
    circle.put(0)
    circle.put(1)
    both = threading.Barrier(2)
    seen = threading.local()

    def write(client: ClusterClient, rows: Sequence[CopyRow]) -> None:
        seen.writes = getattr(seen, "writes", 0) + 1
        if seen.writes <= 2:
            both.wait(PATIENCE_S)
        write_copies(client, rows)
        if seen.writes == 1:
            both.wait(PATIENCE_S)

    monkeypatch.setattr(WRITTEN, write)
    with ThreadPoolExecutor(2) as pool:
        ended = [flow for flows in pool.map(once, halves(circle)) for flow in flows]
    codes = [{part.code for part in flow.partitions} for flow in ended]
    assert codes == [{"COPIED_BACK"}, {"COPIED_BACK"}]
    for at in range(2):
        assert circle.values(at, circle.topic()) == [f"{at} {n}".encode() for n in range(COUNT)]

    monkeypatch.setattr(WRITTEN, write_copies)
    there, back = halves(circle)
    copied(there)  # rows that were withdrawn do not block a flow
    assert len(circle.values(1, circle.topic())) == 2 * COUNT
    refused(circle, back, "COPIED_BACK", "B->A")


@pytest.mark.witness("a refused flow back does not change configs of the original topics")
def test_a_refused_reverse_flow_changes_no_config(circle: Circle) -> None:
    circle.put(0, "pay")
    circle.put(1, "other")
    pay, other = circle.topic("pay"), circle.topic("other")
    both = {"replication_policy_class": IDENTITY, "A_to_B__topics": pay}
    copied(circle.file({"A": 0, "B": 1}, ["A->B"], "first", **both))
    alter_topic_configs(circle.clusters[0], pay, {"retention.ms": "9000000000"})
    config = circle.file(
        {"A": 0, "B": 1},
        ["A->B", "B->A"],
        **both,
        A_to_B__sync_topic_configs_enabled="false",
        B_to_A__sync_topic_configs_interval_seconds="1",
    )
    with Mirror(config, lanes=1) as mirror:
        eventually(lambda: other in circle.mine(0))
        alter_topic_configs(circle.clusters[1], other, {"retention.ms": "7000000000"})
        # when the configs are synced, a discovery of the reverse flow has also run
        there = circle.clusters[0]
        eventually(lambda: topic_configs(there, other) == {"retention.ms": "7000000000"})
        mirror.stop()
    assert topic_configs(circle.clusters[0], pay) == {"retention.ms": "9000000000"}


def test_a_row_of_a_process_that_died_before_copying_is_withdrawn(
    circle: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle.put(0)
    circle.put(1)
    there, back = halves(circle)

    def dies(client: ClusterClient, rows: Sequence[CopyRow]) -> None:
        write_copies(client, rows)
        raise FlowError("the process ended here")

    with monkeypatch.context() as patched:
        patched.setattr(WRITTEN, dies)
        assert [flow.state for flow in once(there)] == ["FAILED"]
    refused(circle, back, "COPIED_BACK", "B->A")
    # as the message advises, the flow runs without the topic
    circle.put(0, "other")
    left_out = circle.file(
        {"A": 0, "B": 1},
        ["A->B"],
        "left-out",
        replication_policy_class=IDENTITY,
        topics_exclude=circle.topic(),
    )
    copied(left_out)
    ended = {p.topic: p.code for flow in once(back) for p in flow.partitions}
    assert ended == {circle.topic(): "", circle.topic("other"): "COPIED_BACK"}
    assert len(circle.values(0, circle.topic())) == 2 * COUNT


def test_a_topic_that_comes_while_both_halves_run(circle: Circle) -> None:
    """Both flows of a loop run, and a new topic appears. The flow that finds it first copies it.
    The other flow never copies it, and reports why.
    """
    there, back = halves(circle)
    circle.put(0, "first")
    circle.put(1, "other")
    with Mirror(there, lanes=1) as one, Mirror(back, lanes=1) as two:
        eventually(lambda: len(circle.mine(1)) == len(circle.mine(0)) == 2)
        circle.put(0, "late")
        eventually(lambda: circle.topic("late") in circle.mine(1))
        circle.put(0, "late", begin=COUNT)
        late = circle.topic("late")
        eventually(lambda: len(circle.values(1, late)) == 2 * COUNT)

        def is_refused() -> bool:
            led = two.supervisor.flows[0].generation
            return led is not None and late in [p.topic for p in led.prepared.problems]

        eventually(is_refused)
        one.stop()
        two.stop()
    for at in range(2):
        assert end_offsets(circle.clusters[at], late) == {0: 2 * COUNT}
        for name in ("first", "other"):
            assert end_offsets(circle.clusters[at], circle.topic(name)) == {0: COUNT}


def test_addresses_swapped_under_a_running_mirror(circle: Circle) -> None:
    circle.put(0)
    config = circle.file({"A": 0, "B": 1}, ["A->B"], replication_policy_class=IDENTITY)
    with Mirror(config, lanes=1) as mirror:
        mirror.eventually(lambda parts: parts[0].records == COUNT)
        before = circle.held()
        circle.file({"A": 1, "B": 0}, ["A->B"], replication_policy_class=IDENTITY)
        mirror.reload()
        eventually(lambda: "CLUSTERS_SWAPPED" in mirror.snapshots[0].reason)
        assert circle.held()[0] == before[0], "nothing comes back, not even a claim"
        assert end_offsets(circle.clusters[1], circle.topic()) == {0: COUNT}
        circle.file({"A": 0, "B": 1}, ["A->B"], replication_policy_class=IDENTITY)
        circle.put(0, begin=COUNT)
        mirror.reload()
        eventually(lambda: len(circle.values(1, circle.topic())) == 2 * COUNT)
        mirror.stop()


@pytest.mark.witness("a flow back is added to a running mirror")
def test_the_reverse_flow_is_added_to_a_running_mirror(circle: Circle) -> None:
    """A flow has copied a topic, and then the reverse flow is added to its file. At the next start,
    the first flow continues, and the reverse flow is refused.
    """
    circle.put(0)
    keys = {"replication_policy_class": IDENTITY}
    config = circle.file({"A": 0, "B": 1}, ["A->B"], **keys)
    copied(config)
    both = circle.file({"A": 0, "B": 1}, ["A->B", "B->A"], **keys)
    circle.put(0, begin=COUNT)
    ended = {flow.flow: flow for flow in once(both)}
    assert ended[circle.flow("B->A")].code == "COPIED_BACK"
    assert {p.state for p in ended[circle.flow("A->B")].partitions} == {"DONE"}
    assert end_offsets(circle.clusters[0], circle.topic()) == {0: 2 * COUNT}
    assert end_offsets(circle.clusters[1], circle.topic()) == {0: 2 * COUNT}


def test_copies_of_an_earlier_release_are_recognized_by_their_map(
    circle: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release has copied a topic without writing rows of copies (`mirror.state.copies`).
    The copy is recognized by its offset map. So the reverse flow is refused, and so is a flow that
    copies the topic under another alias.
    """
    circle.put(0)
    there, back = halves(circle)
    with monkeypatch.context() as patched:
        patched.setattr(WRITTEN, lambda *_: None)
        copied(there)
    refused(circle, back, "COPIED_BACK", "B->A")
    renamed = circle.file({"Z": 0, "B": 1}, ["Z->B"], "z", replication_policy_class=IDENTITY)
    refused(circle, renamed, "COPIED_TWICE", "Z->B")


def test_a_topic_that_another_client_recreated_is_no_copy(circle: Circle) -> None:
    circle.put(0)
    there, back = halves(circle)
    copied(there)
    delete_topic(circle.clusters[1], circle.topic())
    create_topic(circle.clusters[1], circle.topic())
    circle.put(1, count=5)
    copied(back)
    assert circle.values(0, circle.topic())[COUNT:] == [f"1 {n}".encode() for n in range(5)]
    refused(circle, there, "COPIED_BACK", "A->B")
