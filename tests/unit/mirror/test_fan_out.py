"""A source partition whose records are distributed by key has one branch for each target partition.
Tested: which branch gets which record, and what the offset map contains.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.one_copy import DAY, NOW, K, answer, sent
from twinlog.errors import CorruptData, PartitionError
from twinlog.mirror.copy.fan_out import (
    Branch,
    FanOut,
    is_record,
    next_upstream,
    partition_of,
    read_to,
)
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import Mark, PartitionKey, Run, Term
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import NO_TOPIC_ID, Isolation, TopicPartition
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

SOURCE = TopicPartition("orders", 4)
RULES = CopyRules(
    producer_id=9,
    isolation=Isolation.READ_COMMITTED,
    is_ours_alone=False,
    producer_expiry_ms=DAY,
)


def a_record(offset: int) -> Record:
    key = None if offset % 4 == 0 else b"k%d" % offset
    return Record(offset=offset, timestamp=NOW, key=key, value=b"v%d" % offset)


def a_batch(base: int, count: int) -> bytes:
    records = [a_record(offset) for offset in range(base, base + count)]
    return bytes(encode_batch(records, codec=Codec.NONE, base_offset=base))


def a_fan(
    count: int = 3, *, starts: tuple[int, ...] = (), listed: bool = True, rows: bool = True
) -> FanOut:
    branches = []
    for number, upstream in enumerate(starts or (0,) * count):
        run = read_to(0, upstream)
        branch = Branch(
            source=SOURCE,
            target=TopicPartition("orders", number),
            source_topic_id=NO_TOPIC_ID,
            target_topic_id=NO_TOPIC_ID,
            rules=RULES,
            start=StartPoint(
                ordinal=0,
                upstream=upstream,
                k=K,
                last_fetched_epoch=-1,
                is_protected=listed,
                last_timestamp=NOW,
            ),
            tail=MapTail(
                key=PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 4, number, count),
                topic="orders",
                term=Term(1, 0),
                chunk=0,
                runs=[run],
                dirty=not rows,
            ),
            end=(1 << 63) - 1,
            limit_bytes=1 << 20,
            last_run=run,
            now_ms=NOW,
        )
        branches.append(branch)
    return FanOut(
        source=SOURCE,
        source_topic_id=NO_TOPIC_ID,
        branches=branches,
        isolation=Isolation.READ_COMMITTED,
        end=(1 << 63) - 1,
    )


def fetch(fan: FanOut, *batches: bytes) -> None:
    fan.on_fetched(memoryview(bytearray(b"".join(batches))), (), NOW)


def written(fan: FanOut) -> None:
    """Write all announced rows to the map topic."""
    for part in fan.parts:
        part.tail.on_durable(part.tail.runs[-1])


def theirs(branch: Branch, begin: int, end: int) -> list[int]:
    own = branch.target.partition
    return [offset for offset in range(begin, end) if partition_of(a_record(offset), 3) == own]


def test_every_record_goes_to_the_branch_of_its_key_in_one_batch() -> None:
    fan = a_fan()
    fetch(fan, a_batch(0, 30), a_batch(30, 30))
    written(fan)
    for branch in fan.parts:
        (batch,) = sent(branch)
        ((header, _),) = read_headers(batch.data)
        assert (header.producer_id, header.base_sequence) == (9, 0)
        offsets = theirs(branch, 0, 60)
        assert [r.value for r in decode_batch(batch.data)] == [b"v%d" % o for o in offsets]
        assert batch.runs == (Run(len(offsets) - 1, offsets[-1], K + len(offsets) - 1),)
        assert batch.upstream_next == 60


def test_nothing_is_sent_before_its_last_record_is_in_the_map() -> None:
    fan = a_fan()
    fetch(fan, a_batch(0, 30))
    assert [sent(branch) for branch in fan.parts] == [[], [], []]
    written(fan)
    assert all(sent(branch) for branch in fan.parts)


def test_a_branch_skips_records_that_it_already_has() -> None:
    fan = a_fan(starts=(0, 20, 25))
    fetch(fan, a_batch(0, 30))
    written(fan)
    for branch, start in zip(fan.parts, (0, 20, 25), strict=True):
        found = [r.value for batch in sent(branch) for r in decode_batch(batch.data)]
        assert found == [b"v%d" % o for o in theirs(branch, start, 30)]


def test_foreign_records_move_k_and_stop_nothing() -> None:
    fan = a_fan()
    branch = fan.parts[0]
    for begin, at in ((0, K + 500), (30, K + 900)):
        fetch(fan, a_batch(begin, 30))
        written(fan)
        (batch,) = sent(branch)
        answer(branch, at)
        assert branch.trouble is None
        assert branch.mark() == Mark(batch.next_ordinal, at + batch.count)


@pytest.mark.parametrize("listed", [True, False])
def test_one_batch_is_in_flight_unless_the_target_certainly_remembers_the_producer_id(
    listed: bool,
) -> None:
    fan = a_fan(listed=listed)
    branch = fan.parts[0]
    branch.set_expiry(replace(RULES, producer_expiry_ms=DAY if listed else None))
    fetch(fan, a_batch(0, 30))
    written(fan)
    sent(branch)
    answer(branch, K)
    for begin in (30, 60, 90):
        fetch(fan, a_batch(begin, 30))
        written(fan)
    assert len(sent(branch)) == (3 if listed else 1)


def test_the_slowest_branch_determines_how_far_the_source_is_copied() -> None:
    fan = a_fan()
    fetch(fan, a_batch(0, 30))
    written(fan)
    for branch in fan.parts:
        assert fan.acked_upstream == 0
        sent(branch)
        answer(branch, K)
    assert fan.acked_upstream == 30
    assert fan.acked_ordinal == 30


def test_a_branch_without_records_announces_how_far_the_source_was_read() -> None:
    fan = a_fan()
    quiet = fan.parts[0]
    only = next(o for o in range(100) if partition_of(a_record(o), 3) == 1)
    fetch(fan, a_batch(only, 1))
    quiet.note_position()
    assert quiet.tail.runs == [read_to(0, only + 1)]
    assert quiet.tail.dirty
    assert quiet.acked_upstream == only + 1
    fan.parts[1].note_position()
    # a branch with a batch to send announces a record, not a position
    assert is_record(fan.parts[1].tail.runs[-1])


def test_trouble_of_one_branch_brings_all_to_rest() -> None:
    fan = a_fan()
    fetch(fan, a_batch(0, 30))
    written(fan)
    sent(fan.parts[0])
    answer(fan.parts[0], -1, error=7)
    fan.halt()
    assert fan.trouble is not None
    assert not fan.wants_fetch
    assert [sent(branch) for branch in fan.parts] == [[], [], []]


def test_branch_in_trouble_does_not_announce_that_its_lost_records_were_read() -> None:
    fan = a_fan()
    fetch(fan, a_batch(0, 30))
    written(fan)
    lost = fan.parts[0]
    sent(lost)
    lost.on_disconnected(PartitionError("lost", code="TARGET_DISCONNECTED"), NOW)
    runs = list(lost.tail.runs)
    fan.drain()
    assert lost.tail.runs == runs
    assert next_upstream(runs, 0) != 30, "the next start reads the lost records again"


def test_records_before_a_bad_batch_are_taken_and_the_next_read_begins_with_it() -> None:
    fan = a_fan()
    bad = bytearray(a_batch(30, 30))
    bad[-1] ^= 1
    fetch(fan, a_batch(0, 30), bytes(bad))
    assert fan.intake.position == 30
    with pytest.raises(CorruptData):
        fetch(fan, bytes(bad))


def test_where_a_branch_resumes() -> None:
    runs = (read_to(0, 100), Run(4, 130, 70), read_to(5, 160), Run(9, 200, 80))
    assert next_upstream(runs, 0) == 100
    assert next_upstream(runs, 5) == 160
    assert next_upstream(runs, 4) == 130  # announced, because the fifth record is there
    assert next_upstream(runs, 10) == 201
    assert next_upstream(runs, 7) is None


def test_batch_that_is_too_large_there_is_cut_and_each_part_announced() -> None:
    fan = a_fan()
    branch = fan.parts[0]
    fetch(fan, a_batch(0, 60))
    written(fan)
    fetch(fan, a_batch(60, 30))
    written(fan)
    (whole,) = sent(branch)
    answer(branch, -1, error=10)
    assert fan.trouble is None
    assert not sent(branch), "the ends of its parts are not in the map yet"
    written(fan)
    k, upstream, parts = K, [], 0
    while branch.is_ready:
        (batch,) = sent(branch)[:1]
        k += 5  # other clients write between the batches
        answer(branch, k + batch.ordinal)
        for late in list(branch._in_flight):
            answer(branch, k + late.ordinal)
            batch = late
        parts += 1
        assert next_upstream(branch.tail.runs, batch.next_ordinal) is not None
        upstream.append(batch.upstream_at(batch.count - 1))
        assert len(batch.data) < len(whole.data)
        written(fan)
    assert parts > 1
    assert branch.acked_ordinal == len(theirs(branch, 0, 90))
    assert upstream[-1] == theirs(branch, 0, 90)[-1]
    ends = {run.ordinal: run.upstream for run in branch.tail.runs if is_record(run)}
    of_ours = theirs(branch, 0, 90)
    assert ends == {at: of_ours[at] for at in ends}, "each end is where the map says"


def test_nothing_is_read_before_all_branches_have_a_row() -> None:
    """A branch's first row in the offset map states where the branch begins. No record is read
    before all first rows are written, because the record's row would replace one of them.
    """
    fan = a_fan(3, rows=False)
    assert not fan.may_read_source()
    for branch in fan.parts:
        assert not fan.may_read_source()
        row = branch.tail.next_row()
        assert row is not None
        branch.tail.on_durable(row[1])
    assert fan.may_read_source()
    assert not fan.may_read_source(), "it is read once"
    assert a_fan(3).may_read_source(), "they had rows before"
