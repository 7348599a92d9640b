"""The copy of a transformed partition: from ranges and answers to batches and rows of the map."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from msgspec import structs

from tests.support.one_copy import NOW, K, batch, sent, with_epoch
from tests.support.one_transformed import Rig, odd, values
from tests.support.python_transformer import (
    records_of,
    transformed,
)
from twinlog.errors import CorruptData, Fate, PartitionError
from twinlog.lane.reporting import hand_over
from twinlog.mirror.copy import range_intake
from twinlog.mirror.copy.partition import CopyState
from twinlog.mirror.copy.ranges import RangeAnswer, RangeFailure, SourceRange
from twinlog.mirror.map.offset_map import Mark, PartitionMap, Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.start.request import runs_for_start
from twinlog.model import SEQUENCE_MODULUS
from twinlog.wire.record_batch import Codec, read_header
from twinlog.wire.records import Record, encode_batch

MESSAGE_TOO_LARGE = 10


def nothing(_record: Record) -> None:
    """Filter out every record."""


def runs(rig: Rig) -> list[Run]:
    return list(rig.copy.tail.runs)


def test_answer_becomes_batches_with_ordinals_of_the_output_and_runs_before_them() -> None:
    rig = Rig()
    rig.fetch(batch(0, 10), batch(10, 2))
    (asked,) = rig.ranges
    assert (asked.first, asked.end, asked.transform) == (0, 12, "ab")
    rig.answer()
    assert sent(rig.copy) == [], "its rows are not in the map"
    batches = rig.copied()
    assert values(batches) == [b"m%d" % offset for offset in range(1, 12, 2)]
    headers = [read_header(one.data) for one in batches]
    assert [(h.producer_id, h.base_sequence) for h in headers] == [(9, 0), (9, 3)]
    assert runs(rig) == [Run(at, 2 * at + 1, K + at) for at in range(6)]
    assert (rig.copy.acked_ordinal, rig.copy.acked_upstream) == (6, 12)
    assert rig.copy.queued_bytes == 0


def test_rows_have_a_mark_from_which_on_a_start_gets_all_runs() -> None:
    rig = Rig()
    rig.fetch(batch(0, 10))
    rig.answer()
    assert len(rig.copied()) == 2
    rig.fetch(batch(10, 4))
    rig.answer()
    row = rig.copy.tail.next_row()
    assert row is not None
    assert row[0].mark == Mark(5, K + 5)
    known = PartitionMap(row[0].key, "orders")
    known.apply(row[0])
    runs, _ = runs_for_start(known, 1)
    assert Run(4, 9, K + 4) in runs, "the last one that was acknowledged"


def test_last_record_of_every_batch_is_announced_though_nothing_is_filtered() -> None:
    rig = Rig(lambda record: record)
    rig.fetch(batch(0, 7))
    rig.answer()
    first, second, third = rig.copied()
    ends = [one.runs[-1] for one in (first, second, third)]
    assert ends == [Run(2, 2, K + 2), Run(5, 5, K + 5), Run(6, 6, K + 6)]
    assert [run in runs(rig) for run in ends] == [True, True, True]


def test_answers_are_used_in_the_order_of_the_source_and_once() -> None:
    rig = Rig()
    rig.fetch(batch(0, 4))
    rig.fetch(batch(4, 4))
    first, second = rig.ranges
    held = rig.copy.queued_bytes
    rig.answer(second.number)
    assert rig.send() == [] and rig.copy.queued_bytes < held
    other = transformed(first, lambda record: record)
    rig.deliver(transformed(first, odd), other, transformed(second, lambda record: record))
    assert values(rig.copied()) == [b"m1", b"m3", b"m5", b"m7"]


def test_what_arrives_while_two_ranges_have_no_answer_becomes_one_range() -> None:
    rig = Rig(lambda record: record)
    for offset in range(0, 40, 4):
        rig.fetch(batch(offset, 4))
    assert [(one.first, one.end) for one in rig.ranges] == [(0, 4), (4, 8)]
    rig.answer(1)
    assert [(one.first, one.end) for one in rig.ranges] == [(0, 4), (8, 40)]
    rig.fetch(batch(40, 4))
    rig.fetch(batch(44, 4))
    rig.answer(0)
    assert [(one.first, one.end) for one in rig.ranges] == [(8, 40), (40, 48)]
    rig.answer()
    assert [one.count for one in rig.copied()] == [3, 1] * 2 + [3] * 10 + [2] + [3, 3, 2]
    assert (rig.copy.acked_upstream, rig.copy.queued_bytes) == (48, 0)


def test_collected_range_ends_before_it_is_too_large_and_at_a_new_leader_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(lambda record: record)
    monkeypatch.setattr(range_intake, "RANGE_BYTES", 3 * len(batch(20, 4)))
    for offset in range(0, 28, 4):
        rig.fetch(batch(offset, 4))
    rig.fetch(with_epoch(batch(28, 4), 6))
    rig.fetch(with_epoch(batch(32, 4), 6))
    rig.fetch(with_epoch(batch(36, 4), 6))
    ranges = [(one.first, one.end) for one in rig.ranges]
    assert ranges == [(0, 4), (4, 8), (8, 20), (20, 28)]
    rig.answer()
    rig.answer()
    assert [one.leader_epoch for one in rig.copied()][-1] == 6
    assert rig.copy.acked_upstream == 40


def test_collected_range_does_not_keep_the_fetch_responses_in_memory() -> None:
    rig = Rig(lambda record: record)
    for offset in range(0, 12, 4):
        rig.fetch(batch(offset, 4))
    response = bytearray(batch(12, 4))
    rig.copy.on_fetched(memoryview(response), (), NOW)
    response.clear()  # raises BufferError while a part of it is in use
    rig.answer()
    rig.answer()
    assert rig.copied() and rig.copy.acked_upstream == 16


def test_filter_that_drops_everything_moves_the_position_and_announces_it_once() -> None:
    rig = Rig(nothing)
    rig.fetch(batch(0, 50))
    rig.fetch(batch(50, 50))
    rig.answer(0)
    assert (rig.copy.acked_ordinal, rig.copy.acked_upstream) == (0, 50)
    rig.copy.note_position()
    rig.answer(1)
    rig.copy.note_position()
    assert runs(rig) == [Run(0, 100, K)]
    assert rig.send() == []


def test_dropped_range_after_batches_moves_the_position_only_after_them() -> None:
    rig = Rig()
    rig.fetch(batch(0, 2))
    rig.fetch(batch(2, 1))
    rig.answer()
    (only,) = rig.send()
    rig.copy.note_position()
    assert rig.copy.acked_upstream == 0
    rig.acknowledge(only)
    assert rig.copy.acked_upstream == 3
    rig.copy.note_position()
    assert runs(rig)[-1] == Run(1, 3, K + 1)


def test_markers_and_aborted_batches_are_left_out_and_bounded_by_epochs() -> None:
    rig = Rig(lambda record: record)
    rig.fetch(with_epoch(batch(0, 2), 4), with_epoch(batch(2, 2), 5), with_epoch(batch(6, 1), 5))
    first, second = rig.ranges
    assert [(one.first, one.end) for one in (first, second)] == [(0, 2), (2, 7)]
    rig.answer()
    batches = rig.copied()
    assert [one.leader_epoch for one in batches] == [4, 5]
    assert (rig.copy.acked_upstream, rig.copy.acked_epoch) == (7, 5)


def test_range_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_intake, "RANGE_BYTES", 300)
    rig = Rig()
    rig.fetch(*(batch(at, 5) for at in range(0, 20, 5)))
    assert [(one.first, one.end) for one in rig.ranges] == [(0, 10), (10, 20)]
    assert all(len(one.batches) <= 300 for one in rig.ranges)


def test_position_within_a_batch_and_skipped_records_are_respected() -> None:
    rig = Rig(lambda record: record, upstream=3, skips=(Skip(first=5, next=6),))
    rig.fetch(batch(0, 4), batch(4, 4))
    (asked,) = rig.ranges
    assert asked.first == 3
    assert [record.offset for record in records_of(asked)] == [3, 4, 6, 7]
    assert rig.copy.intake.applied_skips == [(5, 6)]
    rig.answer()
    assert [one.offsets for one in rig.copied()] == [array("q", [3, 4, 6]), array("q", [7])]


def test_message_of_an_old_format_is_passed_as_a_batch() -> None:
    rig = Rig(lambda record: record)
    old = bytes.fromhex("0000000000000007") + _old_message(b"key", b"value")
    rig.fetch(old)
    (asked,) = rig.ranges
    (record,) = records_of(asked)
    assert (record.offset, record.key, record.value) == (7, b"key", b"value")


def _old_message(key: bytes, value: bytes) -> bytes:
    import zlib

    body = b"\x01\x00" + NOW.to_bytes(8, "big")
    for part in (key, value):
        body += len(part).to_bytes(4, "big") + part
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return len(message).to_bytes(4, "big") + message


def test_failure_ends_the_partition_at_its_record_after_everything_before_was_sent() -> None:
    rig = Rig()
    poisoned = bytes(
        encode_batch(
            [Record(at, NOW, None, b"poison" if at == 5 else b"v") for at in range(8)],
            codec=Codec.NONE,
        )
    )
    rig.fetch(poisoned)
    rig.fetch(batch(8, 4))
    rig.answer(0)
    error = rig.copy.source_trouble
    assert error is not None and (error.code, error.fate) == ("RECORD_NOT_TRANSFORMED", Fate.FATAL)
    assert error.poison == (5, 6)
    assert "upstream record 5: ValueError: cannot be masked" in error.message
    assert rig.application.withdrawn == [1]
    assert not rig.copy.is_drained
    assert values(rig.copied()) == [b"m1", b"m3"]
    assert (rig.copy.is_drained, rig.copy.acked_upstream) == (True, 5)
    assert rig.fetch(batch(12, 4)) == 0 and rig.ranges == []


def _asked(number: int, first: int, end: int) -> dict[str, Any]:
    return {
        "number": number,
        "topic": "orders",
        "partition": 0,
        "transform": "ab",
        "first": first,
        "end": end,
        "batches": batch(first, end - first),
    }


def _broken(answer: RangeAnswer) -> dict[str, RangeAnswer]:
    offsets = array("q")
    offsets.frombytes(answer.offsets)
    control = bytes(
        encode_batch([Record(0, NOW, None, b"v")], codec=Codec.NONE, is_transactional=False)
    )
    flipped = bytearray(answer.batches[0])
    flipped[-1] ^= 1
    replace = structs.replace
    return {
        "one offset less": replace(answer, offsets=offsets[:-1].tobytes()),
        "not rising": replace(answer, offsets=offsets[::-1].tobytes()),
        "outside": replace(answer, offsets=array("q", [o + 9 for o in offsets]).tobytes()),
        "half a number": replace(answer, offsets=answer.offsets[:-3]),
        "another end": replace(answer, end=answer.end - 1),
        "failure behind": replace(answer, failure=RangeFailure(offset=answer.end, text="")),
        "bit flipped": replace(answer, batches=(bytes(flipped), *answer.batches[1:])),
        "two in one": replace(answer, batches=(b"".join(answer.batches), control)),
        "no batch": replace(answer, batches=(b"", *answer.batches)),
    }


WHOLE = SourceRange(**_asked(0, 0, 9))
BROKEN = sorted(_broken(transformed(WHOLE, odd)))


@pytest.mark.parametrize("what", BROKEN)
def test_answer_that_does_not_fit_its_range_is_not_sent(what: str) -> None:
    rig = Rig()
    rig.fetch(batch(0, 9))
    (asked,) = rig.ranges
    rig.deliver(_broken(transformed(asked, odd))[what])
    error = rig.copy.source_trouble
    assert error is not None
    assert (error.code, error.fate) == ("TRANSFORM_UNAVAILABLE", Fate.RETRIABLE)
    assert rig.send() == [] and rig.copy.is_drained and rig.copy.queued_bytes == 0


def test_answer_with_larger_batches_than_the_target_accepts_is_encoded_again() -> None:
    rig = Rig(lambda record: record._replace(value=bytes(300)), limit_bytes=600)
    rig.fetch(batch(0, 9))
    rig.answer()
    batches = rig.copied()
    assert all(len(one.data) <= 600 for one in batches) and len(batches) > 3
    assert [offset for one in batches for offset in one.offsets or ()] == list(range(9))


def test_record_that_outgrows_the_target_is_named_by_its_source_offset() -> None:
    rig = Rig(lambda r: r._replace(value=bytes(900)) if r.offset == 13 else r, limit_bytes=600)
    rig.fetch(batch(10, 5))
    rig.answer()
    error = rig.copy.source_trouble
    assert error is not None and (error.code, error.poison) == ("RECORD_TOO_LARGE", (13, 14))
    assert "upstream record 13, as transformed" in error.message


def test_no_batch_spans_the_wrap_of_sequences() -> None:
    rig = Rig(lambda record: record, ordinal=SEQUENCE_MODULUS - 1)
    rig.fetch(batch(0, 3))
    rig.answer()
    first, second = rig.copied()
    assert [read_header(one.data).base_sequence for one in (first, second)] == [
        SEQUENCE_MODULUS - 1,
        0,
    ]
    assert [one.offsets for one in (first, second)] == [array("q", [0]), array("q", [1, 2])]


def test_batch_that_is_split_announces_the_end_of_every_part() -> None:
    rig = Rig(lambda record: record)
    rig.fetch(batch(0, 3))
    rig.answer()
    (refused,) = rig.send()
    assert refused.count == 3
    rig.respond(-1, error=MESSAGE_TOO_LARGE)
    parts = rig.copied()
    assert [one.count for one in parts] == [1, 1, 1]
    assert runs(rig) == [Run(at, at, K + at) for at in range(3)]


def test_drained_copy_drops_unanswered_ranges_and_hands_over_decided_ones() -> None:
    rig = Rig()
    rig.fetch(batch(0, 4), batch(4, 1))
    rig.fetch(batch(5, 4))
    rig.answer(0)
    rig.acknowledge(*rig.send())
    assert rig.copy.acked_upstream == 5
    rig.copy.drain()
    assert rig.application.withdrawn == [1] and rig.copy.is_drained
    rig.deliver(transformed(SourceRange(**_asked(1, 5, 9)), odd))
    assert (rig.copy.state, rig.copy.queued_bytes) == (CopyState.DRAINING, 0)
    handed = hand_over(rig.copy)
    assert handed is not None
    assert (handed.start.ordinal, handed.start.upstream) == (2, 5)


def test_copy_beside_late_requests_or_other_writers_is_impossible() -> None:
    for late, alone in ((True, True), (False, False)):
        with pytest.raises(ValueError, match="no late requests"):
            Rig(late=late, alone=alone)


def test_damaged_source_batch_ends_reading_after_the_records_before_it() -> None:
    rig = Rig()
    damaged = bytearray(batch(4, 4))
    damaged[-1] ^= 1
    rig.fetch(batch(0, 4), bytes(damaged))
    assert [(one.first, one.end) for one in rig.ranges] == [(0, 4)]
    with pytest.raises(CorruptData):
        rig.fetch(bytes(damaged))


def test_batch_that_is_too_large_for_transforms_stops_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, large = batch(0, 4), batch(4, 40)
    monkeypatch.setattr(range_intake, "MOST_BYTES", len(large) - 1)
    monkeypatch.setattr(range_intake, "RANGE_BYTES", len(first))
    rig = Rig()
    rig.fetch(first, large)
    (asked,) = rig.ranges
    assert (asked.first, asked.end) == (0, 4)
    rig.answer()
    assert values(rig.copied()) == [b"m1", b"m3"]
    error = rig.copy.source_trouble
    assert isinstance(error, PartitionError)
    assert (error.code, error.poison) == ("RECORD_NOT_TRANSFORMED", (4, 5))
    assert f"its batch has {len(large)} bytes" in error.message
    assert rig.copy.acked_upstream == 4 and rig.copy.queued_bytes == 0


def test_once_is_done_when_everything_below_its_end_is_decided() -> None:
    rig = Rig(nothing, end=10)
    rig.fetch(batch(0, 10))
    assert not rig.copy.wants_fetch and not rig.copy.is_done
    rig.answer()
    assert rig.copy.is_done


def test_batch_of_skipped_records_alone_is_read_past() -> None:
    rig = Rig(lambda record: record, skips=(Skip(first=3, next=4),))
    rig.fetch(batch(3, 1))
    rig.fetch(batch(4, 1))
    rig.answer()
    assert [one.offsets for one in rig.copied()] == [array("q", [4])]
    assert rig.copy.acked_upstream == 5


def beginning(asked: SourceRange, end: int) -> RangeAnswer:
    """Return the answer of an application that has processed only the records before `end`."""
    found = transformed(structs.replace(asked, end=end), odd)
    return structs.replace(found, is_part=True)


def test_remaining_records_of_a_part_are_another_range() -> None:
    """If only the first part of a range was answered, its other records are offered as a new range.
    The new range may be answered last, and the old one again before it. The copy must have every
    record once and in order.
    """
    rig = Rig()
    rig.fetch(batch(0, 4), batch(4, 4))
    rig.fetch(batch(8, 4))
    first, after = rig.ranges
    rig.answer(after.number)
    rig.deliver(beginning(rig.application.waiting.pop(first.number), 6))
    assert values(rig.copied()) == [b"m1", b"m3", b"m5"]
    assert (rig.copy.acked_ordinal, rig.copy.acked_upstream) == (3, 6), "its last record is decided"
    (rest,) = rig.ranges
    assert (rest.first, rest.end, rest.batches) == (6, 8, batch(4, 4))
    rig.deliver(transformed(first, odd), beginning(first, 5))
    rig.answer(rest.number)
    assert values(rig.copied()) == [b"m7", b"m9", b"m11"]
    assert runs(rig)[-1] == Run(5, 11, K + 5)
    assert rig.copy.queued_bytes == 0 and rig.copy.is_drained


@pytest.mark.parametrize("end", [0, 9, 12])
def test_part_that_is_none_is_not_used(end: int) -> None:
    rig = Rig()
    rig.fetch(batch(0, 9))
    (asked,) = rig.ranges
    found = transformed(asked, nothing)
    rig.deliver(structs.replace(found, end=end, is_part=True))
    error = rig.copy.source_trouble
    assert (None if error is None else error.code) == (
        None if end == 9 else "TRANSFORM_UNAVAILABLE"
    )
