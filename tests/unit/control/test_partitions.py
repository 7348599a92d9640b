"""When a partition that stands still is tried again."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from twinlog.control.lanes.partitions import RETRY_FAILED_S, Partition, Placement
from twinlog.control.lanes.views import view_of
from twinlog.lane.messages import HandOver
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.start_point import StartPoint
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

PROMISED_S = 30.0
POINT = StartPoint(
    ordinal=0, upstream=0, k=0, last_fetched_epoch=-1, is_protected=False, last_timestamp=-1
)


def a_partition() -> Partition:
    plan = PartitionPlan(
        source=TopicPartition("orders", 0),
        target=TopicPartition("A.orders", 0),
        source_topic_id=NO_TOPIC_ID,
        target_topic_id=NO_TOPIC_ID,
        limit_bytes=1 << 20,
    )
    return Partition(plan=plan, placement=Placement.ASSIGNED)


@pytest.mark.parametrize("retriable", [True, False])
def test_every_try_comes_within_half_a_minute(*, retriable: bool) -> None:
    """A try begins by looking at both clusters: a few seconds are left for that."""
    partition = a_partition()
    pauses = []
    for _ in range(20):
        partition.troubled("CODE", "message", retriable=retriable)
        pauses.append(partition.retry_at - time.monotonic())
        assert not partition.is_due(time.monotonic() - 1)
        assert partition.is_due(time.monotonic() + PROMISED_S - 2)
    if retriable:  # one that passes by itself is tried at once, one that lasts is not hammered
        assert pauses[0] < 1
        assert pauses[-1] == pytest.approx(RETRY_FAILED_S, abs=1)


def test_trouble_keeps_the_time_since_when_it_lasts() -> None:
    partition = a_partition()
    partition.troubled("CODE", "first", retriable=False)
    assert partition.failure is not None
    since = partition.failure.since_ms
    time.sleep(0.01)
    partition.troubled("CODE", "second", retriable=False)
    assert (partition.failure.since_ms, partition.failure.message) == (since, "second")
    partition.troubled("OTHER", "third", retriable=False)
    assert partition.failure.since_ms > since


@pytest.mark.parametrize(
    ("code", "is_broken"), [("EXTRA_RECORDS", True), ("TARGET_UNDER_MIN_ISR", False)]
)
def test_nobody_builds_on_offsets_of_a_log_that_is_wrong(*, code: str, is_broken: bool) -> None:
    partition = a_partition()
    assert not view_of(partition).is_broken
    partition.troubled(code, "message", retriable=False)
    assert view_of(partition).is_broken == is_broken


@pytest.mark.parametrize("at_source", [True, False])
def test_where_a_lane_stopped_is_no_position_in_a_topic_created_since(*, at_source: bool) -> None:
    partition = a_partition()
    plan = partition.taken = partition.plan
    partition.handed = HandOver(start=POINT, chunk=0, runs=(), durable_ordinal=-1)
    new_id = TopicId("1" * 32)
    new = replace(plan, target_topic_id=new_id)
    if at_source:
        new = replace(plan, source_topic_id=new_id)
    found = []
    for planned in (plan, new):
        partition.replan(planned)
        found.append((partition.handed is not None, partition.is_replaced))
    assert found == [(True, False), (False, True)], "nor is what a lane still hands over later"
