"""Takes (messages that assign a partition to a lane) are delayed until no request of a dead lane
can arrive.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

import pytest

from tests.support.folded_rows import fold
from twinlog.channel.codec import MessageCodec
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.lanes.takes import (
    former_copy_targets,
    in_messages,
    may_begin,
    put_off,
    take_of,
)
from twinlog.lane.messages import MESSAGES, HandOver
from twinlog.mirror.map.offset_map import (
    END_OF_MAP,
    ChunkRow,
    Mark,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    run_at,
)
from twinlog.mirror.plan import PartitionPlan, Refusal
from twinlog.mirror.start.request import runs_for_start
from twinlog.mirror.start_point import StartPoint
from twinlog.model import StartAt, StartKind, TopicId, TopicPartition

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


REFUSAL = Refusal(code="MM2_PLACE_UNKNOWN", message="said", is_retriable=False)


def test_a_refused_partition_does_not_start_and_shows_the_reason() -> None:
    free, refused, passing = partition(), partition(), partition()
    refused.plan = replace(refused.plan, refusal=REFUSAL)
    passing.plan = replace(passing.plan, refusal=replace(REFUSAL, is_retriable=True))
    assert may_begin([free, refused, passing], {}, "A->B") == [free]
    assert [one.placement for one in (refused, passing)] == [Placement.FAILED, Placement.PENDING]
    assert [one.plan.may_begin_later for one in (free, refused, passing)] == [False, False, True]
    assert refused.failure is not None
    assert (refused.failure.code, refused.failure.message) == ("MM2_PLACE_UNKNOWN", "said")


def test_a_row_of_the_map_counts_more_than_a_refusal_that_is_older() -> None:
    one = partition()
    one.plan = replace(one.plan, refusal=REFUSAL)
    key = PartitionKey(one.plan.source_topic_id, one.plan.target_topic_id, 0)
    row = ChunkRow(key=key, term=Term(1, -1), chunk=0, topic="orders", runs=(Run(0, 7, 7),))
    assert may_begin([one], fold([row]), "A->B") == [one]


def handed(runs: int) -> HandOver:
    start = StartPoint(
        ordinal=runs, upstream=2 * runs, k=0, last_fetched_epoch=0, is_protected=True,
        last_timestamp=0,
    )  # fmt: skip
    steps = tuple(Run(number, 2 * number, number) for number in range(runs))
    return HandOver(start=start, chunk=0, runs=steps, durable_ordinal=0)


@pytest.mark.parametrize("over", [None, handed(400)], ids=["first start", "handed over"])
def test_partitions_that_start_together_are_sent_in_small_messages(over: HandOver | None) -> None:
    """A lane reads a message in one piece, and stops if that takes longer than its driver may be
    silent. No frame of the channel can be larger than 64 MiB.
    """
    one = partition(waits=False)
    one.handed = over
    messages = [*in_messages([take_of(one, {}, StartAt())] * 3_000)]
    assert sum(len(message.partitions) for message in messages) == 3_000
    largest = max(messages, key=lambda message: len(message.partitions))
    assert len(MessageCodec(MESSAGES).encode(largest)) < 1_500_000


@pytest.mark.parametrize("begin_at", [-1, 7])
def test_an_unstarted_partition_waits_for_a_lost_lanes_first_row(begin_at: int) -> None:
    """A lost lane's first row of the partition may still arrive, and the records after it with the
    same sequences. So the partition waits, even if it starts at the log start or at a group's
    offset. Retention can move the log start, and the group can commit another offset.
    """
    one = partition(begin_at=begin_at)
    assert not one.why_put_off
    assert put_off(one, {})
    assert one.why_put_off.endswith("the partition starts in about 60 s")
    assert one.retry_at == one.wait_until
    assert not one.is_due(time.monotonic()), "or the map would be read in every turn"


def test_nothing_waits_that_has_a_row_or_no_lane_before_it() -> None:
    one = partition()
    plan = one.plan
    key = PartitionKey(plan.source_topic_id, plan.target_topic_id, 0)
    assert not put_off(one, {key: PartitionMap(key=key, topic="orders")})
    assert not put_off(partition(waits=False), {})


@pytest.mark.parametrize(("planned", "written"), [("ab", "ab"), ("ab", ""), ("", "ab")])
def test_transformed_partition_waits_also_if_it_has_a_row(planned: str, written: str) -> None:
    one = partition()
    plan = one.plan = replace(one.plan, transform=planned)
    key = PartitionKey(plan.source_topic_id, plan.target_topic_id, 0)
    row = ChunkRow(
        key=key,
        term=Term(1, 0),
        chunk=0,
        topic="orders",
        runs=(Run(0, 7, 7),),
        transform=written,
    )
    maps = fold([row])
    assert put_off(one, maps)
    one.wait_until = time.monotonic()
    assert not put_off(one, maps)
    assert put_off(one, maps, one.wait_until - 1), "rows may have arrived since the map was read"
    assert one.is_due(time.monotonic())
    take = take_of(one, maps, LATEST)
    assert (take.transform, take.written_by) == (planned, written)
    assert take.transformed == (((0, END_OF_MAP),) if written else ())


def test_a_fan_waits_only_while_none_of_its_branches_has_a_row() -> None:
    one = partition()
    plan = one.plan = replace(one.plan, targets=2)
    assert put_off(one, {})
    key = PartitionKey(plan.source_topic_id, plan.target_topic_id, 0, branch=1, branches=2)
    assert not put_off(one, {key: PartitionMap(key=key, topic="orders")})


def test_all_partitions_of_a_topic_that_was_recreated_know_its_former_copy() -> None:
    plan = partition().plan
    old = TopicId(secrets.token_hex(16))

    def maps(*keys: PartitionKey) -> dict[PartitionKey, PartitionMap]:
        return {key: PartitionMap(key=key, topic="orders") for key in keys}

    former = [PartitionKey(old, plan.target_topic_id, n) for n in (0, 2)]
    by_key = PartitionKey(old, plan.target_topic_id, 0, branch=4, branches=5)
    second = replace(plan, source=TopicPartition("orders", 1), target=TopicPartition("A.orders", 1))
    assert former_copy_targets(plan, maps(*former)) == (0, 2)
    assert former_copy_targets(second, maps(*former)) == (0, 2), "the former topic did not have it"
    assert former_copy_targets(second, maps(*former, by_key)) == (0, 2, 4)
    elsewhere = PartitionKey(old, TopicId(secrets.token_hex(16)), 0)
    assert former_copy_targets(plan, maps(elsewhere)) == (), "the target was created again too"

    begun = PartitionKey(plan.source_topic_id, plan.target_topic_id, 3)
    assert former_copy_targets(plan, maps(*former, begun)) == (0,), (
        "its own log alone can tell more"
    )
    assert former_copy_targets(second, maps(*former, begun)) == ()
    assert former_copy_targets(replace(plan, targets=5), maps(*former, begun)) == ()


def test_a_groups_offset_is_ignored_if_the_topics_name_was_copied_before() -> None:
    """Kafka stores a group's offsets by topic name. If the name was copied before, the offset may
    belong to an earlier topic of this name, so it is ignored.
    """
    one = partition(begin_at=7)
    assert take_of(one, {}, LATEST).group_at == 7
    key = PartitionKey(TopicId(secrets.token_hex(16)), TopicId(secrets.token_hex(16)), 0)
    former = {key: PartitionMap(key=key, topic="orders")}
    assert take_of(one, former, LATEST).group_at == -1
    other = {key: PartitionMap(key=key, topic="bills")}
    assert take_of(one, other, LATEST).group_at == 7


def test_a_start_gets_the_run_of_the_last_record_before_the_mark() -> None:
    """A start gets only some runs of the map (`runs_for_start`). They must include the run of the
    last record below the map's mark (`mirror.map.offset_map.Mark`). Otherwise the start could not
    translate that record's offset.
    """
    key = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 0)
    runs = tuple(Run(10 * n, 20 * n, 30 * n) for n in range(40))
    term, mark = Term(1, -1), Mark(350, 1050)
    older = ChunkRow(key=key, term=term, chunk=0, topic="orders", runs=runs[:38])
    newer = ChunkRow(key=key, term=term, chunk=1, topic="orders", runs=runs[38:], mark=mark)
    known = fold([older, newer])[key]
    some, runs_from = runs_for_start(known, 1)
    assert (some[0], some[1:], runs_from) == (runs[0], runs[34:], 340)
    assert run_at(some, 349) == runs[34]
