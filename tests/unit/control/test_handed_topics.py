"""The topics whose configs and ACLs a duty may change, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from twinlog.control.duties.handed_topics import MAX_PAUSE_S, TopicRounds, handed_topics
from twinlog.control.duties.rounds import LedFlow, PartitionView
from twinlog.mirror.map.translation import Reach
from twinlog.model import TopicId, TopicPartition

ONE, TWO = (TopicId(bytes([n]) * 16) for n in (1, 2))


def view(topic: str = "orders", number: int = 0, **changes: Any) -> PartitionView:
    usual = PartitionView(
        source=TopicPartition(topic, number),
        target=TopicPartition(f"A.{topic}", number),
        source_topic_id=ONE,
        target_topic_id=TWO,
        reach=Reach(5, 5),
        is_begun=True,
    )
    return replace(usual, **changes)


def names(*views: PartitionView) -> list[str]:
    return [one.source for one in handed_topics(views).ours]


def test_a_topic_is_handed_when_every_partition_of_it_was_begun() -> None:
    assert names(view(), view(number=1)) == ["orders"]
    assert names(view(), view(number=1, is_begun=False)) == []
    assert handed_topics([view(), view(number=1, is_begun=False)]).waiting == 1


def test_one_foreign_partition_excludes_its_whole_topic() -> None:
    found = handed_topics([view(), view(number=1, foreign_code="DIVERGED"), view("pay")])
    assert [one.source for one in found.ours] == ["pay"]
    assert dict(found.left_alone) == {"A.orders": "DIVERGED"}
    assert found.waiting == 0


def test_while_partitions_are_of_two_topics_of_one_name_each_counts_by_itself() -> None:
    found = handed_topics([view(), view(number=1, source_topic_id=TWO, is_begun=False)])
    assert [one.source_id for one in found.ours] == [ONE]
    assert found.waiting == 1


class Rounds:
    """Runs rounds of duties for a flow whose partitions a test sets."""

    def __init__(self) -> None:
        self.views: tuple[PartitionView, ...] = ()
        self.now = 0.0
        self.logged: list[str] = []
        self.rounds = TopicRounds(cast(LedFlow, self), "configs", 600.0, lambda: self.now)

    name = "A->B"

    def partitions(self) -> tuple[PartitionView, ...]:
        return self.views

    def log_once(self, line: str) -> None:
        self.logged.append(line)

    def round(self) -> tuple[list[str], bool]:
        topics, is_whole = self.rounds.next_topics()
        self.rounds.on_done(topics, is_whole=is_whole)
        return [one.source for one in topics], is_whole


@pytest.fixture
def flow() -> Rounds:
    return Rounds()


def test_topics_that_are_begun_later_need_not_wait_for_the_next_interval(flow: Rounds) -> None:
    flow.views = (view(is_begun=False), view("pay"))
    assert flow.round() == (["pay"], True)
    assert flow.rounds.interval_s == 1.0
    flow.now += 1.0
    assert flow.round() == ([], False)
    flow.views = (view(), view("pay"))
    flow.now += 2.0
    assert flow.round() == (["orders"], False)
    assert flow.rounds.interval_s == 597.0, "of all topics, since the last round of all"
    flow.now += 597.0
    assert flow.round() == (["orders", "pay"], True)


def test_a_topic_that_waits_for_hours_is_checked_less_and_less_often(flow: Rounds) -> None:
    flow.views = (view(is_begun=False),)
    pauses = []
    for _ in range(8):
        flow.round()
        pauses.append(flow.rounds.interval_s)
        flow.now += pauses[-1]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == MAX_PAUSE_S


def test_excluded_topics_are_reported(flow: Rounds) -> None:
    flow.views = (view(foreign_code="TAKEN_OVER"),)
    assert flow.round() == ([], True)
    assert flow.logged == [
        "A->B: configs of A.orders are left as they are while the topic has stopped with "
        "TAKEN_OVER: this flow may not be allowed to change the topic"
    ]
