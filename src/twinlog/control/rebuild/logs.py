"""Streams both logs of a partition for a rebuild of its map: the records, and the number of offsets
between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition
from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.map.rebuilt_runs import Slot
from twinlog.mirror.map.target_window import ABSENT, Numbered, number_of
from twinlog.mirror.skips import Skip, skipped
from twinlog.mirror.start.alignment import identity
from twinlog.mirror.start.tail_check import decode
from twinlog.model import Isolation, TopicPartition, sequences_ahead
from twinlog.wire.record_batch import BatchHeader, read_headers, verify_crc
from twinlog.wire.records import Record

READ_BYTES: Final = 4 << 20

OnRead = Callable[[int], None]
"""Called with the offset that has been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildLog:
    """One partition's log, from its start to an end that was queried once."""

    client: ClusterClient
    tp: TopicPartition
    start: int
    end: int
    may_lack_offsets: bool
    """The topic is or may be compacted, so offsets without a record may have had one."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    skips: tuple[Skip, ...] = ()
    """Records that the copy left out, so they are never on the target."""
    on_read: OnRead = lambda _: None


@dataclass(slots=True, kw_only=True)
class TargetWriters:
    """The writers of a target partition, by its batch headers."""

    k: int | None = None
    """Target offset minus ordinal of each of the flow's records, by its producer's sequences."""
    first: int = 0
    """Offset of the flow's first batch."""
    producers: set[int] = field(default_factory=set)
    last_producer: int = -1
    stamps_own_time: bool = False


def writers(log: RebuildLog, ours: frozenset[int]) -> TargetWriters:
    """Read all headers. Check that the flow wrote every batch, and that sequences are contiguous.

    A sequence is the ordinal modulo 2^31, for all of the flow's producer IDs. So K is the base
    offset minus the base sequence of any batch, modulo 2^31. A K that is larger than the true one
    yields the same sequences, and nothing else is compared. Records of other producers may only be
    before the flow's ordinal 0: then they existed when this flow took over the topic.
    """
    out = TargetWriters()
    foreign = -1
    for header, _ in _batches(log):
        if header.magic < 2 or header.is_control or header.producer_id not in ours:
            if out.k is not None:
                raise _foreign(log.tp, header, "was not written by this flow")
            foreign = header.base_offset
            continue
        k = header.base_offset - header.base_sequence
        if out.k is None:
            if k < 0 or (foreign >= 0 and header.base_sequence):
                raise _foreign(
                    log.tp,
                    header,
                    f"has sequence {header.base_sequence}, so records of this flow are missing "
                    "before it",
                )
            out.k, out.first = k, max(header.base_offset, log.start)
        elif off := sequences_ahead(out.k, k):
            raise _foreign(
                log.tp,
                header,
                f"has sequence {header.base_sequence}: before it {abs(off)} records "
                + ("are missing" if off > 0 else "are too many"),
            )
        out.producers.add(header.producer_id)
        out.last_producer = header.producer_id
        out.stamps_own_time = out.stamps_own_time or header.is_log_append_time
    return out


def _foreign(tp: TopicPartition, header: BatchHeader, what: str) -> PartitionError:
    return PartitionError(
        f"{tp}: the batch at offset {header.base_offset} {what}; nothing is written to the map: "
        "find out who wrote to this topic, and save records that only it has before any other "
        "step",
        code="REBUILD_FOREIGN",
    )


def target_records(
    log: RebuildLog, begin: int, k: int, *, with_timestamp: bool
) -> Iterator[Numbered]:
    """Yield the target's records from an offset on."""
    for header, batch in _batches(log, begin):
        for record in () if batch is None else decode(header, batch):
            if begin <= record.offset < log.end:
                yield Numbered(record.offset - k, _number(record, with_timestamp=with_timestamp))


def source_records(log: RebuildLog, begin: int, *, with_timestamp: bool) -> Iterator[Slot]:
    """Yield the records that a reader of the source gets from an offset on, and then the end."""
    expected, holes = begin, 0
    for header, batch in _batches(log, begin):
        if header.magic >= 2 and header.base_offset > expected:
            holes += header.base_offset - expected
            expected = header.base_offset
        for record in () if batch is None else decode(header, batch):
            if not begin <= record.offset < log.end:
                continue
            holes += record.offset - expected
            if skipped(log.skips, record.offset) is not None:
                expected = record.offset + 1
                continue
            yield Slot(
                holes if log.may_lack_offsets else 0,
                record.offset,
                _number(record, with_timestamp=with_timestamp),
            )
            expected, holes = record.offset + 1, 0
        behind = min(header.next_offset, log.end)
        if behind > expected:
            holes += 0 if batch is None else behind - expected
            expected = behind
    holes += max(0, log.end - expected)
    yield Slot(holes if log.may_lack_offsets else 0, log.end, ABSENT)


def _number(record: Record, *, with_timestamp: bool) -> int:
    return number_of(identity(record, with_timestamp=with_timestamp))


def _batches(
    log: RebuildLog, begin: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """Yield every batch up to the end; None for its bytes if readers do not get its records."""
    position = log.start if begin is None else begin
    while position < log.end:
        answer = _fetch(log, position)
        before = position
        rolled_back = RolledBack(answer.aborted)
        for header, at in read_headers(answer.records):
            skip = skipped(log.skips, max(header.base_offset, position))
            if skip is not None and skip.is_batch and header.base_offset < log.end:
                position = skip.next
                yield header._replace(last_offset_delta=skip.next - 1 - header.base_offset), None
                break  # fetch again: an aborted transaction may end inside the skipped range
            verify_crc(answer.records, at, header)
            batch = answer.records[at : at + header.length]
            is_gone = rolled_back.skip(header, batch)
            if header.next_offset <= before or header.base_offset >= log.end:
                continue
            is_hidden = log.isolation is Isolation.READ_COMMITTED and is_gone
            position = max(position, header.next_offset)
            yield header, None if is_hidden or header.is_control else batch
        log.on_read(min(position, log.end))
        if position > before:
            continue
        if not log.may_lack_offsets:
            raise PartitionError(
                f"{log.tp}: cannot be read after offset {position}, although it ends at {log.end}; "
                "nothing is written to the map: check that segment on the partition's leader "
                "(kafka-dump-log.sh)",
                code="REBUILD_UNREADABLE",
            )
        return


def _fetch(log: RebuildLog, position: int) -> FetchedRecords:
    def ask() -> FetchedRecords:
        return fetch_partition(log.client, log.tp, position, READ_BYTES, isolation=log.isolation)

    try:
        return log.client.retrying(ask)
    except TwinlogError as error:
        if error.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise moved(log.tp, f"offset {position} was deleted while it was read") from error


def moved(tp: TopicPartition, what: str) -> PartitionError:
    """Return the error for a log that changed while it was read."""
    return PartitionError(
        f"{tp}: {what}; nothing is written to the map: run the command again, with no mirror "
        "running",
        code="REBUILD_MOVED",
    )
