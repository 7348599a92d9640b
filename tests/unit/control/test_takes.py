"""What is put off until nothing of a dead lane can arrive any more."""

from __future__ import annotations

import secrets
import time

import pytest

from twinlog.control.partitions import Partition, PartitionPlan
from twinlog.control.takes import put_off
from twinlog.mirror.offset_map import PartitionKey, PartitionMap
from twinlog.model import EARLIEST, StartAt, StartKind, TopicId, TopicPartition

LATEST = StartAt(StartKind.LATEST)


def partition(*, begin_at: int = -1, waits: bool = True) -> Partition:
    now = time.monotonic()
    return Partition(
        plan=PartitionPlan(
            source=TopicPartition("orders", 0),
            target=TopicPartition("A.orders", 0),
            source_topic_id=TopicId(secrets.token_hex(16)),
            target_topic_id=TopicId(secrets.token_hex(16)),
            limit_bytes=1_000_000,
            begin_at=begin_at,
        ),
        wait_until=now + (60 if waits else -1),
    )


@pytest.mark.parametrize("start", [LATEST, StartAt(StartKind.TIMESTAMP, 1_793_491_200_000)])
def test_a_start_that_moves_waits_for_a_lost_lanes_first_row(start: StartAt) -> None:
    """Its row may arrive until then, and the records behind it under the same sequences."""
    one = partition()
    assert put_off(one, {}, start)
    assert one.retry_at == one.wait_until
    assert not one.is_due(time.monotonic()), "or the map would be read in every turn"


@pytest.mark.parametrize("start", [EARLIEST, StartAt(StartKind.OFFSET, 7)])
def test_a_start_that_stays_need_not_wait(start: StartAt) -> None:
    assert not put_off(partition(), {}, start)


def test_nothing_waits_that_has_a_row_or_a_groups_offset_or_no_lane_before_it() -> None:
    one = partition()
    plan = one.plan
    key = PartitionKey(plan.source_topic_id, plan.target_topic_id, 0)
    assert not put_off(one, {key: PartitionMap(key=key, topic="orders")}, LATEST)
    assert not put_off(partition(begin_at=7), {}, LATEST)
    assert not put_off(partition(waits=False), {}, LATEST)
