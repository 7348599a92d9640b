"""The source records of a batch, found by the part of the map that a task gets. In some logs other
clients write, too, and the map's rows do not show their records.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from twinlog.errors import PartitionError
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, PartitionMap, Term
from twinlog.mirror.map.origins import NO_ORIGIN, Origins, origin_of
from twinlog.mirror.map.runs import Run
from twinlog.model import SEQUENCE_MODULUS, TopicId, TopicPartition, sequence_of
from twinlog.wire.record_batch import BatchHeader

OURS, THEIRS, OTHERS = 9, 4, 5
SOURCE = TopicPartition("orders", 2)


def batch(first: int, count: int, sequence: int, producer: int = OURS) -> BatchHeader:
    return BatchHeader(first, 61, 0, 2, 0, 0, count - 1, 0, 0, producer, 0, sequence, count)


def known(*runs: Run, mark: Mark | None = None, name: str = "orders") -> PartitionMap:
    key = PartitionKey(TopicId(name), TopicId("there"), SOURCE.partition)
    made = PartitionMap(key=key, topic=name)
    made.apply(
        ChunkRow(
            key=key, term=Term(0, 0), chunk=0, topic=name, runs=runs, mark=mark, producer_id=OURS
        )
    )
    return made


def answers(origins: Origins, header: BatchHeader, first: int, end: int) -> dict[int, int | None]:
    """Return the upstream offset of each target offset of a batch in [first, end), or None if the
    record is no copy.
    """
    out: dict[int, int | None] = {}
    stretches = origins.stretches(header, first)
    bounds = [one.begin for one in stretches] + [header.next_offset]
    for one, (begin, behind) in zip(stretches, pairwise(bounds), strict=True):
        for offset in range(begin, min(behind, end)):
            out[offset] = None if one.origin == NO_ORIGIN else offset + one.distance
    return out


class History:
    """The records that lanes write to a log, beginning with an ordinal (count of this flow's
    records), and the runs that describe them. In a shared topic, other clients write as well. No
    record follows the last run.
    """

    def __init__(self, dice: random.Random, ordinal: int, *, shared: bool) -> None:
        self.dice, self.ordinal, self.upstream = dice, ordinal, 1_000
        self.end = self.thought = 500
        """Actual end of the log, and the end that the lane expects because it does not know of
        other clients' records.
        """
        self.runs = [Run(ordinal, self.upstream, self.end)]
        self.marks = [Mark(ordinal, self.end)]
        self.truth: dict[int, int | None] = {}
        self.batches: list[BatchHeader] = []
        for _ in range(dice.randint(1, 40)):
            if shared and dice.random() < 0.3:
                self.theirs(dice.randint(1, 4))
            else:
                self.ours(dice.randint(1, 6))
            if dice.random() < 0.2:
                self.thought = self.end
            if shared and dice.random() < 0.3:
                self.marks.append(Mark(self.ordinal, self.end))
        self.runs.append(Run(self.ordinal, self.upstream + 7, self.thought))

    def theirs(self, count: int) -> None:
        self.batches.append(batch(self.end, count, self.dice.randint(0, 9), THEIRS))
        self.truth |= dict.fromkeys(range(self.end, self.end + count))
        self.end += count

    def ours(self, most: int) -> None:
        count = min(most, SEQUENCE_MODULUS - sequence_of(self.ordinal))
        self.batches.append(batch(self.end, count, sequence_of(self.ordinal)))
        for _ in range(count):
            if self.dice.random() < 0.3:
                self.upstream += self.dice.randint(1, 5)
                self.runs.append(Run(self.ordinal, self.upstream, self.thought))
            self.truth[self.end] = self.upstream
            self.ordinal, self.upstream = self.ordinal + 1, self.upstream + 1
            self.end, self.thought = self.end + 1, self.thought + 1


@pytest.mark.parametrize("begin", [0, SEQUENCE_MODULUS - 30, 5 * SEQUENCE_MODULUS - 70])
@pytest.mark.parametrize("shared", [False, True])
def test_origins_of_every_part_of_a_log_are_exact(begin: int, shared: bool) -> None:
    dice = random.Random(begin)
    for _ in range(30):
        log = History(dice, begin, shared=shared)
        one = known(*log.runs, mark=dice.choice(log.marks) if shared else None)
        for _ in range(10):
            first, end = sorted(dice.sample(range(500, log.end + 1), 2))
            origin = origin_of(one, "A", first, end, log.end)
            origins = Origins([] if origin is None else [origin])
            found: dict[int, int | None] = {}
            for header in log.batches:
                if header.base_offset < end and header.next_offset > first:
                    found |= answers(origins, header, first, end)
            assert found == {at: log.truth[at] for at in range(first, end)}


def test_origin_contains_only_the_runs_of_its_range() -> None:
    runs = [Run(10 * at, 20 * at, 10 * at) for at in range(1_000)]
    for mark in (None, Mark(9_995, 9_995)):
        origin = origin_of(known(*runs, mark=mark), "A", 5_003, 5_015, 9_995)
        assert origin is not None
        assert origin.runs.unpacked() == runs[500:502]
        assert origin.has_earlier_runs
        assert (origin.cluster, origin.source) == ("A", SOURCE)
        assert origin.producers == {OURS}
    assert origin_of(known(Run(0, 0, 100)), "A", 10, 100, 200) is None
    assert origin_of(known(Run(0, 0, 100)), "A", 150, 150, 200) is None


def test_two_flows_into_one_topic_and_a_recreated_source() -> None:
    """Producer IDs distinguish the flows that write to one topic. If a source topic was re-created,
    the first runs of both maps distinguish the new topic's copy from the deleted topic's copy.
    """
    before, after = known(Run(0, 0, 100)), known(Run(0, 3, 120), name="orders")
    other = known(Run(0, 70, 90), name="payments")
    other.producers = {OTHERS}
    made = [origin_of(one, "A", 90, 200, 200) for one in (after, other, before)]
    origins = Origins([one for one in made if one is not None])
    assert answers(origins, batch(105, 2, 5), 90, 200) == {105: 5, 106: 6}
    assert answers(origins, batch(121, 2, 0), 90, 200) == {121: 3, 122: 4}
    assert answers(origins, batch(130, 2, 1, OTHERS), 90, 200) == {130: 71, 131: 72}
    (stretch,) = origins.stretches(batch(130, 2, 1, OTHERS), 90)
    assert origins.known[stretch.origin].source.topic == "payments"
    assert answers(origins, batch(92, 2, 0), 90, 200) == {92: None, 93: None}


def test_messages_of_old_formats_have_no_origin() -> None:
    origin = origin_of(known(Run(0, 0, 0)), "A", 0, 10, 10)
    assert origin is not None
    old = batch(1, 1, 1)._replace(magic=1)
    assert answers(Origins([origin]), old, 0, 10) == {1: None}


def test_an_insufficient_part_of_the_map_is_an_error() -> None:
    """A task gets a part of the map. The map has no mark (`mirror.map.offset_map.Mark`), so the
    topic is expected to have no foreign records, but there are some. The part does not suffice to
    find the source records, so the task must fail with MAP_UNREADABLE.
    """
    runs = [Run(0, 0, 0), Run(5, 50, 5), Run(10, 100, 10)]
    origin = origin_of(known(*runs), "A", 12, 20, 20)
    assert origin is not None
    with pytest.raises(PartitionError, match="read again") as error:
        Origins([origin]).stretches(batch(12, 2, 7), 12)
    assert error.value.code == "MAP_UNREADABLE"
