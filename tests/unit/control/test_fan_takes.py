"""Takes (assignments of partitions to lanes) if the topic's records are distributed by key. They
are made from the offset map.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.support.folded_rows import fold
from twinlog.control.duties.own_topics import complete_partitions
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.lanes.takes import partitioned_as_before, take_of
from twinlog.mirror.copy.fan_out import read_to
from twinlog.mirror.map.offset_map import (
    ChunkRow,
    Mark,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
)
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import EARLIEST, TopicId, TopicPartition
from twinlog.survey.replica import NOTHING, by_branches

SOURCE, TARGET = TopicId("a" * 32), TopicId("b" * 32)
KEY = PartitionKey(SOURCE, TARGET, 4)


def a_partition(targets: int, *, number: int = 4) -> Partition:
    plan = PartitionPlan(
        source=TopicPartition("orders", number),
        target=TopicPartition("orders", 0),
        source_topic_id=SOURCE,
        target_topic_id=TARGET,
        limit_bytes=1000,
        targets=targets,
        producer_id=7,
    )
    return Partition(plan=plan)


def a_map(
    *rows: tuple[PartitionKey, Iterable[Run], Mark | None],
) -> dict[PartitionKey, PartitionMap]:
    return fold(
        ChunkRow(
            key=key, term=Term(1, 0), chunk=0, topic="orders", runs=tuple(runs), mark=mark,
            producer_id=6,
        )
        for key, runs, mark in rows
    )  # fmt: skip


def branch(number: int, count: int = 2) -> PartitionKey:
    return KEY._replace(branch=number, branches=count)


MAP = a_map(
    (
        branch(0),
        (read_to(0, 100), Run(4, 130, 70), Run(9, 150, 90), Run(12, 160, 99)),
        Mark(10, 95),
    ),
    (branch(1), (read_to(0, 170),), Mark(0, 60)),
)


def test_each_branch_gets_its_own_map_from_the_mark_on() -> None:
    fan = take_of(a_partition(2), MAP, EARLIEST).fan
    assert fan is not None
    assert fan.producer_id == 7
    first, second = fan.branches
    assert first.target == TopicPartition("orders", 0)
    assert first.runs == (read_to(0, 100), Run(9, 150, 90), Run(12, 160, 99))
    assert (first.mark, first.our_producers) == (Mark(10, 95), (6,))
    assert second.target == TopicPartition("orders", 1)
    assert second.mark == Mark(0, 60)


def test_a_groups_offset_does_not_show_an_earlier_copy() -> None:
    one = a_partition(0)
    one.plan = replace(one.plan, begin_at=40, had_row=True)
    take = take_of(one, {}, EARLIEST)
    assert (take.group_at, take.began_at, take.had_row) == (40, -1, True)


def test_rows_of_other_branches_are_no_earlier_life_of_the_copy() -> None:
    known = a_map((branch(0), (read_to(0, 100),), None))
    assert take_of(a_partition(2), known, EARLIEST).began_at == -1
    elsewhere = branch(0)._replace(target_topic_id=TopicId("c" * 32))
    known = a_map((elsewhere, (read_to(0, 100),), None))
    assert take_of(a_partition(2), known, EARLIEST).began_at == 100


def test_a_keyed_partition_has_its_rows_when_each_branch_has_one() -> None:
    keys = [branch(0), KEY._replace(partition=5), KEY._replace(partition=6, branch=1, branches=2)]
    assert complete_partitions(keys) == {(SOURCE, TARGET, 5)}
    assert complete_partitions([*keys, branch(1)]) == {(SOURCE, TARGET, 4), (SOURCE, TARGET, 5)}


def test_it_never_comes_from_a_map_of_another_number_of_partitions() -> None:
    fan = take_of(a_partition(3), MAP, EARLIEST).fan
    assert fan is not None
    assert [one.runs for one in fan.branches] == [(), (), ()]


@pytest.mark.parametrize(("began", "now", "stays"), [(2, 2, True), (2, 3, False), (2, 0, False)])
def test_a_topic_stays_placed_as_it_began(began: int, now: int, stays: bool) -> None:
    known = a_map((branch(0, began), (read_to(0, 100),), None))
    # including partitions that were added since the copy began
    others = [a_partition(now), a_partition(now, number=9)]
    assert partitioned_as_before(others, known, "A->B") == (others if stays else [])
    expected = Placement.PENDING if stays else Placement.FAILED
    assert {one.placement for one in others} == {expected}


def test_a_copy_that_kept_partitions_is_not_placed_by_key() -> None:
    known = a_map((KEY, (Run(0, 100, 5),), None))
    assert partitioned_as_before([a_partition(2)], known, "A->B") == []
    whole = a_partition(0)
    assert partitioned_as_before([whole], known, "A->B") == [whole]


def test_status_counts_from_the_least_branch() -> None:
    copied = by_branches(KEY._replace(branch=0, branches=2), MAP)
    assert (copied.ordinal, copied.upstream) == (10, 151)
    assert by_branches(KEY._replace(branch=0, branches=3), MAP) == NOTHING
