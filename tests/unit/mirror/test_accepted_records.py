"""Foreign records between records of this flow are found exactly. If they cannot be found exactly,
they are not accepted.
"""

from __future__ import annotations

from typing import Final

import pytest

from twinlog.errors import CorruptData
from twinlog.mirror.accepted import Accepted
from twinlog.mirror.map.foreign_records import (
    ForeignWalk,
    TailStretch,
    last_stretch,
    pending,
    walk,
)
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, PartitionMap, Run, Term
from twinlog.mirror.map.translation import Reach, downstream_of, upstream_of
from twinlog.mirror.state.intents import WantedAcceptance, flow_intents
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.replica import Witness, copied_below
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

OURS: Final = 9
K: Final = 70


def batch(base: int, count: int, *, sequence: int = -1, producer: int = -1) -> bytes:
    records = [Record(base + i, 1000, None, b"v") for i in range(count)]
    return bytes(
        encode_batch(
            records,
            codec=Codec.NONE,
            base_offset=base,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
    )


def ours(base: int, count: int, ordinal: int) -> bytes:
    return batch(base, count, sequence=ordinal, producer=OURS)


def walked(first: int, end: int, *log: bytes) -> ForeignWalk | None:
    """Walk over the log in [first, end), which is read one batch at a time."""
    starts = []
    at = first
    for one in log:
        base = int.from_bytes(one[:8], "big")
        count = int.from_bytes(one[57:61], "big")
        starts.append((base, base + count, one))
        at = base + count
    assert at <= end

    def read(offset: int) -> memoryview:
        found = next((one for _, behind, one in starts if behind > offset), b"")
        return memoryview(bytearray(found))

    return walk(read, first, end, k=K, producers=frozenset({OURS}))


def test_records_at_the_end_are_one_range() -> None:
    found = walked(73, 78, batch(73, 2), batch(75, 3, producer=4, sequence=0))
    assert found is not None
    assert (found.ranges, found.jumps, found.next_ordinal) == (((73, 78),), (), 3)
    assert found.accepted == Accepted(ranges=((73, 78),), k=75, digest=found.accepted.digest)
    assert [one.producer_id for one in found.foreign] == [-1, 4]


def test_different_records_at_the_same_offsets_are_different() -> None:
    one, other = walked(73, 75, batch(73, 2)), walked(73, 75, batch(73, 1), batch(74, 1))
    assert one is not None
    assert other is not None
    assert one.ranges == other.ranges
    assert one.accepted != other.accepted


def test_own_records_in_between_separate_ranges_and_are_jumps() -> None:
    found = walked(
        73, 81, batch(73, 2), ours(75, 2, 3), ours(77, 1, 5), batch(78, 1), ours(79, 2, 6)
    )
    assert found is not None
    assert found.ranges == ((73, 75), (78, 79))
    assert found.jumps == ((3, 75), (6, 79))
    assert (found.next_ordinal, found.accepted.k) == (8, 73)


def test_cleaned_offsets_between_foreign_records_are_foreign() -> None:
    found = walked(73, 80, batch(73, 1), ours(78, 2, 3))
    assert found is not None
    assert (found.ranges, found.jumps) == (((73, 78),), ((3, 78),))


@pytest.mark.parametrize(
    "behind",
    [ours(75, 2, 4), ours(75, 2, 2)],
    ids=["one-is-missing", "one-comes-twice"],
)
def test_nothing_is_accepted_if_own_records_are_missing(behind: bytes) -> None:
    assert walked(73, 77, batch(73, 2), behind) is None


def test_nothing_is_accepted_without_foreign_records() -> None:
    assert walked(73, 75, ours(73, 2, 3)) is None


def test_log_is_one_stretch_until_something_is_accepted() -> None:
    runs = [Run(0, 100, 70), Run(3, 104, 73)]
    assert last_stretch(runs, 80) == TailStretch(70, 0)
    runs += [Run(5, 106, 78), Run(6, 110, 79)]
    assert last_stretch(runs, 90) == TailStretch(73, 78)
    assert last_stretch(runs, 78) == TailStretch(73, 78)
    assert last_stretch(runs, 77) == TailStretch(70, 0), "the log lost its end"


@pytest.mark.parametrize(
    ("k", "end", "expected"),
    [(70, 78, True), (70, 77, False), (73, 90, False), (74, 90, False)],
    ids=["new", "not-there-any-more", "in-the-map", "and-more"],
)
def test_acceptance_is_pending_until_the_map_has_it(k: int, end: int, expected: bool) -> None:
    one = Accepted(ranges=((75, 78),), k=73)
    assert pending([one], TailStretch(k, 0), end) == ([one] if expected else [])


def test_groups_are_exact_on_both_sides_of_the_range() -> None:
    known = PartitionMap(key=PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0), topic="orders")
    runs = (Run(0, 100, 70), Run(5, 105, 78))
    known.apply(ChunkRow(key=known.key, term=Term(1, 0), chunk=0, topic="orders", runs=runs))
    reach = copied_below(known, 80, Witness.LOG_END).reach
    assert reach == Reach(107, 80)
    there = {at: downstream_of(known.runs, reach, at) for at in (104, 105, 106, 107)}
    assert there == {104: (74, True), 105: (78, True), 106: (79, True), 107: (80, True)}
    here = {at: upstream_of(known.runs, reach, at).offset for at in (74, 75, 77, 78, 80)}
    assert here == {74: 104, 75: 105, 77: 105, 78: 105, 80: 107}


WANTED: Final = WantedAcceptance(
    flow="A->B",
    topic="A.orders",
    topic_id=TopicId("a" * 32),
    partition=0,
    first=75,
    ranges=(75, 78, 80, 81),
    k=74,
    digest=5,
    who="anna@ops",
    at_ms=7,
    reason="a test",
)


def test_row_is_read_back_and_belongs_to_one_log() -> None:
    assert flow_intents("A->B", [WANTED.encode()]).accepted == (WANTED,)
    there = TopicPartition("A.orders", 0)
    assert WANTED.is_of(there, "a" * 32)
    assert not WANTED.is_of(there, "b" * 32)
    assert not WANTED.is_of(there, NO_TOPIC_ID), "a name says nothing of what lies in a log"


@pytest.mark.parametrize("ranges", ["[75]", "[78,75]", "[76,78]", "[]", '["75",78]'], ids=str)
def test_row_with_invalid_ranges_is_corrupt(ranges: str) -> None:
    key = b'["flow","A->B","intent","accept","A.orders","id",0,75]'
    value = f'{{"v":1,"ranges":{ranges},"k":1,"digest":0,"who":"a","at_ms":1,"reason":""}}'.encode()
    with pytest.raises(CorruptData) as found:
        flow_intents("A->B", [(key, value)])
    assert found.value.code == "STATE_CORRUPT"
