"""Reads a log as a consumer sees it: without markers and aborted records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition, shorter_log_error
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.start.tail_check import decode
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.record_batch import BatchHeader, read_headers
from twinlog.wire.records import Record

READ_BYTES: Final = 1 << 20


def read_committed(
    client: ClusterClient,
    tp: TopicPartition,
    begin: int,
    end: int,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> Iterator[tuple[BatchHeader, Sequence[Record]]]:
    """Yield data batches of [begin, end) with their records, in order.

    READ_UNCOMMITTED also yields records of aborted transactions. Raises TwinlogError, also if the
    leader does not return all records below `end` now.
    """
    position = begin
    while position < end:
        answer = fetch_partition(client, tp, position, READ_BYTES, isolation=isolation)
        before = position
        for header, records in batches_of(answer):
            position = max(position, header.next_offset)
            kept = [record for record in records if before <= record.offset < end]
            if kept:
                yield header, kept
        if position == before:
            if answer.high_watermark < end:  # a new leader does not know the high watermark yet
                raise shorter_log_error(client, tp, position)
            return  # all later records were compacted away, or belong to an open transaction


def batches_of(answer: FetchedRecords) -> Iterator[tuple[BatchHeader, Sequence[Record]]]:
    """Yield all batches of a response. Markers and aborted batches have no records."""
    rolled_back = RolledBack(answer.aborted)
    for header, start in read_headers(answer.records):
        batch = answer.records[start : start + header.length]
        is_gone = rolled_back.skip(header, batch)
        yield header, () if is_gone or header.is_control else decode(header, batch)
