"""What a look for other writers makes of its answer."""

from __future__ import annotations

from typing import Any, cast

from tests.support.memory_log import LaggingLog, MemoryLog, MemoryView
from tests.support.one_copy import NOW, K, a_copy, answer, batch, fetched, sent
from twinlog.lane.watches.foreign_records import ForeignRecordWatch, Writers
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.findings import Span
from twinlog.mirror.plan import FOREVER
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.encoding import encode_batch
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record


def a_watch(known: list[PartitionCopy]) -> ForeignRecordWatch:
    nobody = cast("Any", None)  # nothing is asked
    return ForeignRecordWatch(
        source=nobody,
        target=nobody,
        background=nobody,
        read_committed=False,
        known_producers=frozenset(),
        on_known=known.append,
    )


def doubting() -> PartitionCopy:
    """Five records of others lie before its second one."""
    copy = a_copy(alone=False)
    copy.on_fetched(fetched(batch(0, 1), batch(1, 1)), (), NOW)
    sent(copy)
    answer(copy, K)
    sent(copy)
    answer(copy, K + 6)
    assert copy.company.unknown == Span(K + 1, K + 6)
    return copy


def test_what_lies_behind_a_doubted_range_is_still_to_be_looked_at() -> None:
    known: list[PartitionCopy] = []
    watch, copy = a_watch(known), doubting()
    watch._learn(watch._asked(copy), Writers(end=K + 40, stranger=None, others=True))
    assert known == [copy]
    assert copy.company.is_ours
    assert watch._asked(copy).span.first == copy.acked_downstream == K + 7


def test_what_was_read_to_the_end_is_not_read_again() -> None:
    watch, copy = a_watch([]), doubting()
    copy.company.unknown = None
    watch._learn(watch._asked(copy), Writers(end=K + 40, stranger=None, others=True))
    assert watch._asked(copy).span.first == K + 40


def test_what_nobody_can_read_yet_was_not_looked_at() -> None:
    """A stranger's records above the high watermark are seen once the replicas have them."""
    watch, copy, tp = a_watch([]), doubting(), TopicPartition("orders", 0)
    copy.company.unknown = None
    log = LaggingLog(MemoryLog(), 0)
    log.append(bytes(encode_batch([Record(0, NOW, b"k", b"v")], codec=Codec.NONE)))
    view = cast("Any", MemoryView({tp: log}, TopicId("a" * 32)))
    log.behind = 1
    found = watch._writers_of(view, tp, Span(0, FOREVER), log.end)
    assert found == Writers(end=0, stranger=None, others=False)
    log.behind = 0
    found = watch._writers_of(view, tp, Span(found.end, FOREVER), log.end)
    assert found == Writers(end=1, stranger=0, others=False)


def test_a_doubted_range_that_cannot_be_read_yet_stays_doubted() -> None:
    known: list[PartitionCopy] = []
    watch, copy = a_watch(known), doubting()
    watch._learn(watch._asked(copy), Writers(end=K + 1, stranger=None, others=False))
    assert copy.company.unknown == Span(K + 1, K + 6)
    assert not known


def test_a_stranger_between_our_records_ends_the_stay_on_this_lane() -> None:
    watch, copy = a_watch([]), doubting()
    watch._learn(watch._asked(copy), Writers(end=K + 40, stranger=K + 3, others=False))
    assert copy.trouble is not None
    assert copy.trouble.code == "TAKEN_OVER"
