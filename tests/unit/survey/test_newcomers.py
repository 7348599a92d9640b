"""Which partitions count as created while the flow ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.cluster.net.metadata import PartitionMetadata, TopicMetadata
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey import newcomers
from twinlog.survey.newcomers import TopicSurveys, first_survey_rows

ID, OTHER = TopicId("a" * 32), TopicId("b" * 32)


def topic(name: str, partitions: int, topic_id: TopicId = ID) -> TopicMetadata:
    return TopicMetadata(
        name=name,
        topic_id=topic_id,
        is_internal=False,
        error=0,
        partitions=tuple(
            PartitionMetadata(number=n, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), error=0)
            for n in range(partitions)
        ),
    )


def new_of(surveys: TopicSurveys, *topics: TopicMetadata, planned: str = "orders") -> list[int]:
    """Return the numbers of those partitions of the topic `planned` that are marked as new."""
    plans = [
        PartitionPlan(
            source=TopicPartition(each.name, part.number),
            target=TopicPartition(each.name, part.number),
            source_topic_id=each.topic_id,
            target_topic_id=ID,
            limit_bytes=1,
        )
        for each in topics
        if each.name == planned
        for part in each.partitions
    ]
    marked = surveys.marked(plans, {each.name: each for each in topics})
    return [plan.source.partition for plan in marked if plan.is_new]


def test_topics_of_the_first_survey_are_not_new() -> None:
    surveys = TopicSurveys()
    assert new_of(surveys, topic("orders", 3)) == []
    assert new_of(surveys, topic("orders", 3)) == []


def test_new_topics_partitions_and_recreated_topics_stay_new() -> None:
    surveys = TopicSurveys()
    assert new_of(surveys) == []
    assert new_of(surveys, topic("orders", 1)) == [0]
    assert new_of(surveys, topic("orders", 1)) == [0], "until its first row is there"
    assert new_of(surveys, topic("orders", 2)) == [0, 1]
    assert new_of(surveys, topic("orders", 1, OTHER)) == [0]


def test_a_topic_that_was_left_out_before_is_not_new() -> None:
    surveys = TopicSurveys()
    assert new_of(surveys, topic("orders", 2), planned="") == []
    assert new_of(surveys, topic("orders", 2)) == []


def test_without_topic_ids_the_name_counts() -> None:
    surveys = TopicSurveys()
    assert new_of(surveys, topic("orders", 1, NO_TOPIC_ID)) == []
    assert new_of(surveys, topic("other", 1, NO_TOPIC_ID), planned="other") == [0]


def test_a_topic_that_one_survey_missed_is_not_new() -> None:
    surveys = TopicSurveys()
    assert new_of(surveys, topic("orders", 2)) == []
    assert new_of(surveys) == []
    assert new_of(surveys, topic("orders", 2)) == []


def test_the_first_survey_in_the_log_counts_if_two_processes_write_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other process made its survey before the topic was created, and stored it first. So the
    topic also counts as new in this process, whose own survey has the topic.
    """
    log: list[tuple[bytes, bytes]] = []

    def append_after_the_other(_client: Any, _tp: Any, rows: Any) -> None:
        log.extend(rows if log else [*first_survey_rows("A->B", ()), *rows])

    monkeypatch.setattr(newcomers, "append_once", append_after_the_other)
    monkeypatch.setattr(newcomers, "state_rows", lambda _: SimpleNamespace(of=lambda _: log))
    monkeypatch.setattr(newcomers, "shown_by_any", lambda _: ())
    surveys = TopicSurveys()
    target = cast("Any", SimpleNamespace(settings=SimpleNamespace(bootstrap="b:9092")))
    surveys.recall("A->B", target, target, {"orders": topic("orders", 1)})
    assert new_of(surveys, topic("orders", 1)) == [0]
