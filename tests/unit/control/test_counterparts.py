"""Translation of source offsets when the target has records before the copy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinlog.control.groups.counterparts import Counterpart
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.mirror.map.offset_map import NO_TERM, ChunkRow, PartitionKey, PartitionMap, Run
from twinlog.mirror.map.translation import Reach, Translation, upstream_within
from twinlog.mirror.plan import PartitionPair
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.ends import LogState
from twinlog.survey.replica import NOT_READ, Certainty, Copied, Replica, Witness

ADOPTED_AT = Run(0, 100, 500)


BEFORE = (Pair(10, 50), Pair(60, 450))


def a_map(before: tuple[Pair, ...] | None) -> PartitionMap:
    known = PartitionMap(key=PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0), topic="orders")
    row = ChunkRow(
        key=known.key, term=NO_TERM, chunk=0, topic="orders", runs=(ADOPTED_AT,), before=before
    )
    known.apply(row)
    return known


def counterpart(*, log_start: int, before: tuple[Pair, ...] = ()) -> Counterpart:
    pair = PartitionPair(
        source=TopicPartition("orders", 0),
        target=TopicPartition("A.orders", 0),
        source_topic_id=TopicId("c" * 32),
        target_topic_id=TopicId("a" * 32),
    )
    copied = Copied(Certainty.EXACT, Witness.LOG_END, 10, 110, 510)
    log = LogState(log_start, 510)
    return Counterpart(replica=Replica(pair, NOT_READ, log, copied, map=a_map(before)))


@pytest.mark.parametrize("offset", [0, 50, 99])
def test_records_copied_before_by_mirror_maker_2_are_not_skipped(offset: int) -> None:
    assert counterpart(log_start=40).translate(offset) == Translation(offset=40, is_exact=False)


@pytest.mark.parametrize(("offset", "there"), [(100, 500), (105, 505), (110, 510)])
def test_offsets_of_the_flows_own_copy_are_exact(offset: int, there: int) -> None:
    assert counterpart(log_start=40).translate(offset) == Translation(offset=there, is_exact=True)


def test_without_records_before_the_copy_there_is_nothing_to_skip() -> None:
    assert counterpart(log_start=500).translate(50) == Translation(offset=500, is_exact=True)


@pytest.mark.parametrize(
    ("offset", "there"), [(9, 40), (10, 50), (11, 51), (59, 51), (60, 450), (99, 451)]
)
def test_its_offset_syncs_tell_a_place_that_skips_nothing(offset: int, there: int) -> None:
    found = counterpart(log_start=40, before=BEFORE).translate(offset)
    assert found == Translation(offset=there, is_exact=False)
    later = counterpart(log_start=460, before=BEFORE).translate(offset)
    assert later == Translation(offset=460, is_exact=False), "the rest is deleted"


@pytest.mark.parametrize(
    ("offset", "there"), [(49, 0), (50, 10), (449, 11), (450, 60), (499, 61), (500, 100)]
)
def test_the_way_back_skips_nothing_either(offset: int, there: int) -> None:
    found = upstream_within(a_map(BEFORE), Reach(110, 510), offset)
    assert found == Translation(offset=there, is_exact=offset == 500)


def test_in_reverse_records_before_the_copy_map_to_its_beginning() -> None:
    found = upstream_within(a_map(None), Reach(110, 510), 50)
    assert found == Translation(offset=100, is_exact=True)


@pytest.mark.parametrize(
    ("offset", "copy_start", "is_progress"),
    [(499, 0, False), (500, 0, False), (501, 0, True), (505, 505, False), (506, 505, True)],
)
def test_a_group_at_or_before_the_copys_first_record_may_have_read_none(
    offset: int, copy_start: int, is_progress: bool
) -> None:
    """A group's offset is at or before the first record of the copy. The sync sets groups to this
    record if they lag far behind on the other cluster, so the group may have read no copied record.
    Its offset is not progress, and must not be translated back.
    """
    back = replace(counterpart(log_start=copy_start), original=LogState(0, 510))
    assert back.is_progress(offset) is is_progress
    assert counterpart(log_start=0).is_progress(offset)
