"""An operator skips records. The copy continues as if the source had never had them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final
from unittest import mock

import pytest

from tests.support.memory_flow import STRAY, MemoryFlow
from twinlog.errors import CorruptData, PartitionError
from twinlog.mirror.copy.intake import Intake, OutBatch
from twinlog.mirror.copy.refusals import poison, unreadable_error
from twinlog.mirror.map import map_tail
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.start.both_logs import holds_records
from twinlog.mirror.start.tail_check import source_records
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
)
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, decode_batch, encode_batch

PROGRAMS: Final = 150
PROGRAM_BYTES: Final = 800


def batch(base: int, count: int, *, size: int = 1) -> bytes:
    records = [Record(base + i, 1000 + i, b"k%d" % (base + i), b"v" * size) for i in range(count)]
    return bytes(encode_batch(records, codec=Codec.NONE, base_offset=base))


def spoiled(encoded: bytes) -> bytes:
    """Return the batch with a wrong last byte."""
    return encoded[:-1] + bytes([encoded[-1] ^ 0xFF])


def fetched(*parts: bytes) -> memoryview:
    return memoryview(bytearray(b"".join(parts)))


def intake(*skips: Skip, position: int = 0, limit_bytes: int = 1 << 20) -> Intake:
    return Intake(
        position=position,
        ordinal=position,
        k=70,
        last_run=Run(position, position, 70 + position),
        producer_id=9,
        isolation=Isolation.READ_UNCOMMITTED,
        limit_bytes=limit_bytes,
        last_fetched_epoch=3,
        skips=skips,
    )


def keys(out: list[OutBatch]) -> list[int]:
    return [int((r.key or b"")[1:]) for one in out for r in decode_batch(one.data)]


def test_one_record_of_a_batch_is_skipped_and_the_next_gets_its_ordinal() -> None:
    way = intake(Skip(first=2, next=3))
    out = way.take(fetched(batch(0, 5), batch(5, 2)), (), 1 << 60)
    assert keys(out) == [0, 1, 3, 4, 5, 6]
    assert [run for one in out for run in one.runs] == [Run(2, 3, 72)]
    assert (way.ordinal, way.position, way.applied_skips) == (6, 7, [(2, 3)])
    assert [one.upstream_at(i) for one in out[:1] for i in range(4)] == [0, 1, 3, 4]
    assert way.deep_batches == 1, "the other passes as it is"


@pytest.mark.parametrize("first", [0, 4])
def test_first_or_last_record_of_a_batch_is_skipped(first: int) -> None:
    way = intake(Skip(first=first, next=first + 1))
    out = way.take(fetched(batch(0, 5), batch(5, 1)), (), 1 << 60)
    assert keys(out) == [n for n in range(6) if n != first]
    assert way.position == 6


def test_only_record_of_a_batch_is_skipped() -> None:
    way = intake(Skip(first=0, next=1))
    assert way.take(fetched(batch(0, 1)), (), 1 << 60) == []
    assert (way.ordinal, way.position, way.applied_skips) == (0, 1, [(0, 1)])


def test_skips_below_the_position_are_not_reported_again() -> None:
    way = intake(Skip(first=2, next=3), position=3)
    assert keys(way.take(fetched(batch(0, 5)), (), 1 << 60)) == [3, 4]
    assert way.applied_skips == []


def test_corrupt_batch_names_its_offsets_when_it_is_the_first() -> None:
    way = intake()
    records = fetched(batch(0, 5), spoiled(batch(5, 5)), batch(10, 1))
    assert keys(way.take(records, (), 1 << 60)) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptData) as found:
        way.take(records, (), 1 << 60)
    assert found.value.poison == (5, 10)
    failure = unreadable_error(found.value, TopicPartition("orders", 0), 5)
    assert (failure.code, failure.poison) == ("CORRUPT_BATCH", (5, 10))


def test_corrupt_header_that_reaches_too_far_is_bounded_by_the_next_batch() -> None:
    """The offset delta in a batch's header is corrupt, so the batch seems to reach too far. The
    base offset of the next batch bounds the range to skip.
    """
    wrong = bytearray(batch(5, 5))
    wrong[23:27] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(CorruptData) as found:
        intake(position=5).take(fetched(bytes(wrong), batch(10, 1)), (), 1 << 60)
    assert found.value.poison == (5, 10)
    way = intake(Skip(first=5, next=10, is_batch=True), position=5)
    assert way.take(fetched(bytes(wrong), batch(10, 1)), (), 1 << 60) == []
    assert way.position == 10


def test_corrupt_batch_of_unknown_end_names_no_offsets() -> None:
    """A batch is corrupt, and no batch after it shows its end. The error names no offsets to skip.
    Otherwise everything up to a wrong offset would be skipped, including records that are still to
    come.
    """
    wrong = bytearray(batch(5, 5))
    wrong[23:27] = (1 << 20).to_bytes(4, "big")
    for records, poisoned in ((bytes(wrong), None), (spoiled(batch(5, 5)), (5, 10))):
        with pytest.raises(CorruptData) as found:
            intake(position=5).take(fetched(records), (), 1 << 60)
        assert found.value.poison == poisoned


def test_batch_is_skipped_unread_and_the_next_one_is_fetched_again() -> None:
    """A corrupt batch is skipped without decoding it. It may contain the end of an aborted
    transaction, which only the broker knows, so the next batch is fetched again.
    """
    way = intake(Skip(first=5, next=10, is_batch=True))
    records = fetched(batch(0, 5), spoiled(batch(5, 5)), batch(10, 1))
    assert keys(way.take(records, (), 1 << 60)) == [0, 1, 2, 3, 4]
    assert (way.position, way.last_fetched_epoch, way.applied_skips) == (10, -1, [(5, 10)])
    assert keys(way.take(fetched(batch(10, 1)), (), 1 << 60)) == [10]
    assert (way.ordinal, way.position) == (6, 11)


def test_of_a_valid_longer_batch_only_the_records_to_skip_are_skipped() -> None:
    """A batch of three records was to be skipped. After a leader change, the new leader has a valid
    batch of five records at the same offset. Only the first three records are skipped.
    """
    way = intake(Skip(first=0, next=3, is_batch=True))
    assert keys(way.take(fetched(batch(0, 5)), (), 1 << 60)) == [3, 4]


def test_record_that_is_too_large_is_named_within_its_batch() -> None:
    small, large = Record(0, 1, b"k0", b"v"), Record(1, 1, b"k1", b"v" * 500)
    encoded = bytes(encode_batch([small, large], codec=Codec.NONE, base_offset=0))
    with pytest.raises(PartitionError) as found:
        intake(limit_bytes=300).take(fetched(encoded), (), 1 << 60)
    assert (found.value.code, found.value.poison) == ("RECORD_TOO_LARGE", (1, 2))


@pytest.mark.parametrize(
    ("error", "record", "count", "expected"),
    [
        pytest.param(INVALID_RECORD, 2, 5, (9, 10), id="behind-a-gap"),
        pytest.param(INVALID_RECORD, 1, 5, (6, 7), id="before-the-gap"),
        pytest.param(INVALID_RECORD, -1, 5, None, id="not-said-which"),
        pytest.param(INVALID_RECORD, 7, 5, None, id="no-such-record"),
        pytest.param(INVALID_RECORD, -1, 1, (5, 6), id="alone"),
        pytest.param(MESSAGE_TOO_LARGE, 0, 5, None, id="cut-smaller-first"),
        pytest.param(MESSAGE_TOO_LARGE, -1, 1, (5, 6), id="large-alone"),
        pytest.param(CORRUPT_MESSAGE, -1, 5, (5, 12), id="a-batch-as-a-whole"),
        pytest.param(TOPIC_AUTHORIZATION_FAILED, -1, 1, None, id="no-fault-of-a-record"),
    ],
)
def test_rejected_record_is_named_if_the_target_names_it(
    error: int, record: int, count: int, expected: tuple[int, int] | None
) -> None:
    sent = OutBatch(
        ordinal=5,
        count=count,
        data=memoryview(b""),
        upstream=5,
        upstream_next=12,
        runs=(Run(7, 9, 77),),
        fingerprint=None,
        max_timestamp=1,
        oldest_timestamp=1,
        leader_epoch=0,
    )
    assert poison(sent, error, record) == expected


def test_start_reads_records_before_a_corrupt_batch() -> None:
    broken = bytearray(batch(5, 5))
    broken[61] = 0x7F  # the length of its first record, so it cannot be decoded
    raw = fetched(batch(0, 5), bytes(broken))
    with pytest.raises(CorruptData):
        source_records(raw)
    assert [*source_records(raw, upto=4)[0]] == [0, 1, 2, 3, 4]
    found, after = source_records(raw, skips=[Skip(first=5, next=10, is_batch=True)])
    assert ([*found], after) == ([0, 1, 2, 3, 4], 10)


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        ((), True),
        ((Skip(first=5, next=7, is_batch=True),), False),
        ((Skip(first=5, next=6), Skip(first=6, next=7)), True),
        ((Skip(first=5, next=7),), False),
    ],
    ids=["nothing", "batch", "each-alone", "range"],
)
def test_skipped_records_do_not_wait_to_be_copied(skips: tuple[Skip, ...], expected: bool) -> None:
    raw = fetched(batch(5, 2))
    read = {5: raw, 7: memoryview(b"")}
    found = holds_records(
        lambda at: read[at], low=5, high=7, isolation=Isolation.READ_UNCOMMITTED, skips=skips
    )
    assert found is expected


@dataclass(slots=True)
class SkippingFlow(MemoryFlow):
    """A flow whose operator skips the record at which the copy stops. This step replaces the one
    that compacts the source.
    """

    def compact_source(self, number: int) -> bool:
        if number % 3 == 0:
            return MemoryFlow.compact_source(self, number)
        rests = self.lane is None and self.now_ms >= self._wait_until_ms
        if not rests or any(one.requests for one in self.late):
            return False
        copied = [int((r.value or b"")[1:]) for r in self.target.records() if r.value != STRAY]
        last = max(copied, default=self.begins_at - 1)
        stable = self.source.last_stable
        behind = [r.offset for r in self.source.records() if last < r.offset < stable]
        if not behind or behind[0] in self.gone:
            return False
        self.skips += (Skip(first=behind[0], next=behind[0] + 1),)
        self.gone.add(behind[0])
        return True

    def check(self) -> None:
        MemoryFlow.check(self)
        there = {record.value for record in self.target.records()}
        left_out = {b"u%d" % one.first for one in self.skips}
        assert not there & left_out, "it was to be left out"


def test_in_every_order_of_steps_exactly_the_skips_are_missing() -> None:
    skipped = 0
    for seed in range(PROGRAMS):
        flow = SkippingFlow()
        with mock.patch.object(map_tail, "RUNS_PER_CHUNK", 3):
            try:
                flow.do(random.Random(seed).randbytes(PROGRAM_BYTES))
                flow.finish()
            except Exception as broken:
                raise AssertionError(f"the program of seed {seed} breaks a rule") from broken
        skipped += len(flow.skips)
    assert skipped > PROGRAMS / 4, "hardly anything was skipped: it shows nothing"


def test_sequences_are_contiguous_across_skips() -> None:
    way = intake(Skip(first=1, next=2))
    out = way.take(fetched(batch(0, 3), batch(3, 2)), (), 1 << 60)
    firsts = [header.base_sequence for one in out for header, _ in read_headers(one.data)]
    assert firsts == [0, 2]
