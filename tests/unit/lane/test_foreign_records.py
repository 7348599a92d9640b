"""The conclusions that a lane draws from its checks for records of other writers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.support.memory_log import LaggingLog, MemoryLog, MemoryView
from tests.support.one_copy import NOW, K, a_copy, answer, batch, fetched, sent
from twinlog.lane.reporting import hand_over
from twinlog.lane.watches.foreign_records import ForeignRecordWatch, Writers
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import Mark
from twinlog.mirror.plan import FOREVER
from twinlog.model import Isolation, TopicId
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch


def a_watch(known: list[PartitionCopy]) -> ForeignRecordWatch:
    nobody = cast("Any", None)  # not used, because nothing is queried
    return ForeignRecordWatch(
        ports=nobody,
        isolation=Isolation.READ_UNCOMMITTED,
        known_producers=frozenset(),
        events=cast("Any", SimpleNamespace(on_writer_known=known.append)),
    )


def doubting() -> PartitionCopy:
    """Return a copy with five foreign records before its second record, whose writers are
    unknown.
    """
    copy = a_copy(alone=False)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1)), (), NOW)
    sent(copy)
    answer(copy, K)
    sent(copy)
    answer(copy, K + 6)
    assert copy.others.unknown == Span(K + 1, K + 6)
    return copy


def test_records_after_an_unknown_range_are_checked_later() -> None:
    known: list[PartitionCopy] = []
    watch, copy = a_watch(known), doubting()
    watch._learn(
        watch._check_of(copy), Writers(end=K + 40, first_unknown=None, other_flow_wrote=True)
    )
    assert known == [copy]
    assert copy.others.has_other_flow
    assert watch._check_of(copy).span.first == copy.acked_downstream == K + 7


def test_checked_records_are_not_read_again() -> None:
    watch, copy = a_watch([]), doubting()
    copy.others.unknown = None
    watch._learn(
        watch._check_of(copy), Writers(end=K + 40, first_unknown=None, other_flow_wrote=True)
    )
    assert watch._check_of(copy).span.first == K + 40


def test_records_above_the_high_watermark_count_as_unchecked() -> None:
    """Foreign records above the high watermark count as unchecked. The watch for other writers
    finds them after the replicas have them.
    """
    watch, copy = a_watch([]), doubting()
    copy.others.unknown = None
    log = LaggingLog(MemoryLog(), 0)
    log.append(bytes(encode_batch([Record(0, NOW, b"k", b"v")], codec=Codec.NONE)))
    view = cast("Any", MemoryView({copy.target: log}, TopicId("a" * 32)))
    log.behind = 1
    asked = watch._check_of(copy)._replace(span=Span(0, FOREVER))
    found = watch._writers_of(view, asked, log.end)
    assert found == Writers(end=0, first_unknown=None, other_flow_wrote=False)
    log.behind = 0
    asked = asked._replace(span=Span(found.end, FOREVER))
    found = watch._writers_of(view, asked, log.end)
    assert found == Writers(end=1, first_unknown=0, other_flow_wrote=False)


def test_unknown_range_that_cannot_be_read_yet_stays_unknown() -> None:
    known: list[PartitionCopy] = []
    watch, copy = a_watch(known), doubting()
    watch._learn(
        watch._check_of(copy), Writers(end=K + 1, first_unknown=None, other_flow_wrote=False)
    )
    assert copy.others.unknown == Span(K + 1, K + 6)
    assert not known


def test_foreign_records_between_own_ones_end_the_copy_on_this_lane() -> None:
    watch, copy = a_watch([]), doubting()
    watch._learn(
        watch._check_of(copy), Writers(end=K + 40, first_unknown=K + 3, other_flow_wrote=False)
    )
    assert copy.trouble is not None
    assert copy.trouble.code == "TAKEN_OVER"


# -- this flow's records that are repeated


def a_log(*batches: tuple[int, int, int]) -> MemoryLog:
    """Return a log with these batches, each as (producer ID, first sequence, number of records)."""
    log = MemoryLog()
    for producer_id, sequence, count in batches:
        log.forget(NOW + 1)
        records = [Record(n, NOW, b"k", b"v") for n in range(count)]
        data = encode_batch(
            records, codec=Codec.NONE, producer_id=producer_id, base_sequence=sequence
        )
        assert not log.append(bytes(data)).error
    return log


OURS, OTHER_FLOW = 9, 12


def writers_in(copy: PartitionCopy, log: MemoryLog, span: Span) -> Writers:
    """Return the result of a check of the target offsets in `span`, after the watch for other
    writers has processed the result.
    """
    watch = a_watch([])
    watch.known_producers = frozenset({OURS, OTHER_FLOW})
    view = cast("Any", MemoryView({copy.target: log}, TopicId("a" * 32)))
    asked = watch._check_of(copy)
    found = watch._writers_of(view, asked._replace(span=span), log.end)
    watch._learn(asked, found)
    return found


def test_an_own_repeat_between_own_records_is_no_other_flow() -> None:
    copy = doubting()
    found = writers_in(copy, a_log((OURS, 0, 1), (OURS, 0, 1), (OURS, 1, 1)), Span(1, 2))
    assert found.repeat == Span(1, 2)
    assert copy.trouble is not None
    assert copy.trouble.code == "EXTRA_RECORDS"
    assert not sent(copy)


def test_repeated_own_records_after_an_idle_copy_are_extra() -> None:
    copy = doubting()
    copy.others.unknown = None
    assert copy.is_idle
    writers_in(copy, a_log((OURS, 0, 2), (OTHER_FLOW, 0, 3), (OURS, 0, 1)), Span(2, FOREVER))
    assert copy.trouble is not None
    assert copy.trouble.code == "EXTRA_RECORDS"


def test_own_records_sent_since_the_query_are_neither_a_repeat_nor_another_flow() -> None:
    copy = doubting()
    copy.others.unknown = None
    found = writers_in(copy, a_log((OURS, 0, 2), (OURS, 2, 3)), Span(2, FOREVER))
    assert (found.repeat, found.other_flow_wrote) == (None, False)
    assert copy.trouble is None
    assert not copy.others.has_other_flow


def test_nothing_hides_doubtful_records() -> None:
    """While foreign records are unchecked, the copy's mark (`mirror.map.offset_map.Mark`) stays
    before them, and the partition is not handed over. Otherwise a later lane would not check these
    records.
    """
    copy = doubting()
    copy.tail.mark = Mark(1, K + 1)
    copy.drain()
    assert copy.mark(at_rest=True) == Mark(1, K + 1)
    assert hand_over(copy) is None
    copy.others.unknown = None
    assert copy.mark(at_rest=True) == Mark(2, K + 7, is_final=True)
    assert hand_over(copy) is not None


def test_another_log_under_the_same_name_is_checked_from_its_beginning() -> None:
    """The target topic was re-created while the lane had the partition, so its offsets begin again.
    The watch for other writers must check the new log from its first record.
    """
    watch, before = a_watch([]), doubting()
    before.others.unknown = None
    watch._learn(
        watch._check_of(before), Writers(end=K + 400, first_unknown=None, other_flow_wrote=False)
    )
    assert watch._check_of(before).span.first == K + 400
    assert watch._check_of(a_copy(alone=False)).span.first == K
