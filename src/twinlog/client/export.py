"""Reads records of one partition of one cluster from its log, to save them before an operator has
the partition copied again from the beginning.

An export only sends Fetch requests. It uses no group and commits nothing, so a running mirror is
not affected. Offset ranges are half open, [first, next), as in the messages that suggest an export.

Records that are not written are counted by reason, so that a partial export is not mistaken for a
complete one. The reasons are offsets outside the log, offsets without a record (compacted, or a
transaction marker), and aborted transactions.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.errors import BrokerRefused, FlowError, or_raise
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.findings import Span
from twinlog.mirror.start.tail_check import decode
from twinlog.model import Isolation, TopicPartition
from twinlog.survey.committed_log import batches_of
from twinlog.survey.ends import log_bounds, log_starts
from twinlog.wire.record_batch import read_headers, verify_crc
from twinlog.wire.records import Record

# Records as lines of JSON without loss: bytes that are UTF-8 become text, other bytes base64.


def record_line(partition: int, exported: ExportedRecord, *, with_batch: bool = False) -> str:
    """Return a record as a line of JSON, without the line break. The line is ASCII, so it has no
    terminal control codes.

    `with_batch`: also add the leader epoch of the record's batch, and the outcome of its
    transaction.
    """
    record = exported.record
    batch = {"leader_epoch": exported.leader_epoch, "transaction": exported.transaction.value}
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": "LogAppendTime" if exported.is_log_append_time else "CreateTime",
            **(batch if with_batch else {}),
            "key": plain_value(record.key),
            "value": plain_value(record.value),
            # invalid UTF-8 in names was decoded byte by byte (surrogateescape)
            "headers": [
                [plain_value(name.encode("utf-8", "surrogateescape")), plain_value(value)]
                for name, value in record.headers
            ],
        },
        separators=(",", ":"),
    )


def record_of(fields: Mapping[str, Any]) -> Record:
    """Return the record of a line of JSON that was parsed. Raises ValueError, TypeError or KeyError
    if a field is invalid or missing.
    """
    headers = tuple((_as_name(name), _as_bytes(value)) for name, value in fields["headers"])
    return Record(
        offset=int(fields["offset"]),
        timestamp=int(fields["timestamp"]),
        key=_as_bytes(fields["key"]),
        value=_as_bytes(fields["value"]),
        headers=headers,
    )


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    return b64decode(value["base64"], validate=True)


def _as_name(value: Any) -> str:
    name = _as_bytes(value)
    if name is None:
        raise ValueError("a header without a name")
    return name.decode("utf-8", "surrogateescape")


def plain_value(data: bytes | None) -> Any:
    """Return bytes as text if they are UTF-8, else as {"base64": ...}. Return None for None."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


READ_BYTES: Final = 4 << 20
PROBED_BYTES: Final = 65_536
"""Bytes per fetch of `first_records`. So many bytes contain many transaction markers, and a broker
returns the first batch even if it is larger.
"""
OUTSIDE: Final = "OUTSIDE_LOG"
NO_EPOCH: Final = -1


class Transaction(StrEnum):
    """The outcome of a record's transaction."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRecord:
    """A record, and properties of the batch in which it was stored."""

    record: Record
    is_log_append_time: bool
    leader_epoch: int
    """Epoch of the leader that appended the record, or -1 if the batch's format has no epoch."""
    transaction: Transaction


@dataclass(slots=True, kw_only=True)
class Counts:
    """The results of an export: numbers of offsets and records, and offset ranges that were not
    read.
    """

    records: int = 0
    aborted: int = 0
    """Number of records of aborted transactions, which are left out."""
    before_log: Span | None = None
    after_log: Span | None = None
    uncommitted: Span | None = None
    """Offsets after the start of an open transaction. They are not read, unless aborted records are
    included.
    """
    unread: Span | None = None
    """Offsets before the log end that the broker does not return, because its log is damaged."""
    deleted: int = 0
    """Number of offsets that were deleted during the export, before they were read."""
    position: int = 0
    """All offsets of the range before this one were processed."""


class Export:
    """Exports one range of one partition, which is read once from beginning to end."""

    def __init__(
        self,
        client: ClusterClient,
        tp: TopicPartition,
        first: int | None,
        until: int | None,
        *,
        with_aborted: bool = False,
    ) -> None:
        """Export the offsets from `first` to before `until`. None means the log start for `first`,
        and the log end for `until`.

        Raises FlowError if none of these offsets is in the log.
        """
        self._client = client
        self.tp = tp
        self._isolation = Isolation.READ_UNCOMMITTED if with_aborted else Isolation.READ_COMMITTED
        log = Span(*log_bounds(client, tp))
        asked = Span(log.first if first is None else first, log.next if until is None else until)
        self.span = Span(max(asked.first, log.first), min(asked.next, log.next))
        if self.span.first >= self.span.next:
            raise FlowError(
                f"cluster {client.alias}: {tp} has no offset in {asked}: its log is {log}",
                code=OUTSIDE,
            )
        self.counts = Counts(
            position=self.span.first,
            before_log=_span_or_none(asked.first, self.span.first),
            after_log=_span_or_none(self.span.next, asked.next),
        )

    @property
    def is_whole(self) -> bool:
        """Return True if all requested offsets were in the log and were read."""
        counts = self.counts
        missing = (counts.before_log, counts.after_log, counts.uncommitted, counts.unread)
        return not (any(missing) or counts.deleted)

    def records(self) -> Iterator[ExportedRecord]:
        """Yield the records of the range, in order. Without `with_aborted`, records of aborted
        transactions are left out.
        """
        counts = self.counts
        while counts.position < self.span.next:
            answer = self._fetch()
            if answer is None:
                continue
            before = counts.position
            yield from self._exported_records(answer)
            if counts.position == before:
                self._end_early()

    def _fetch(self) -> FetchedRecords | None:
        """Fetch from `counts.position` on. If the records there have just been deleted, move the
        position to the new log start, and return None.
        """
        counts = self.counts
        wanted = {self.tp: (counts.position, READ_BYTES)}
        answer = fetch_records(self._client, wanted, isolation=self._isolation)[self.tp]
        if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
            start = log_starts(self._client, [self.tp])[self.tp]
            if start > counts.position:
                start = min(start, self.span.next)
                counts.deleted += start - counts.position
                counts.position = start
                return None
        return or_raise(answer)

    def _exported_records(self, answer: FetchedRecords) -> Iterator[ExportedRecord]:
        counts = self.counts
        for records, after in exported(answer, self.span._replace(first=counts.position)):
            for record in records:
                if record.transaction is Transaction.ABORTED:
                    counts.aborted += 1
                else:
                    counts.records += 1
                    yield record
            counts.position = after

    def _end_early(self) -> None:
        """End the export, and store in `counts` why the broker returns no records before the
        requested end. Compaction is not the cause, because a fetch from a compacted offset returns
        the next batch.
        """
        counts = self.counts
        stable = readable_ends(self._client, [self.tp], self._isolation)[self.tp]
        counts.uncommitted = _span_or_none(max(stable, counts.position), self.span.next)
        counts.unread = _span_or_none(counts.position, min(stable, self.span.next))
        counts.position = self.span.next


def exported(answer: FetchedRecords, span: Span) -> Iterator[tuple[list[ExportedRecord], int]]:
    """Yield (records, offset) for each batch in `answer`: the batch's records in the range `span`,
    and the offset after the batch or, if that is lower, the end of the range.

    Raises CorruptData for a wrong CRC.
    """
    rolled_back = RolledBack(answer.aborted)
    for header, start in read_headers(answer.records):
        batch = answer.records[start : start + header.length]
        is_gone, is_new = rolled_back.skip(header, batch), header.magic >= 2
        if header.next_offset <= span.first:
            continue
        if is_new:
            verify_crc(answer.records, start, header)
        state = Transaction.ABORTED if is_gone else Transaction.COMMITTED
        records = [
            ExportedRecord(
                record=record,
                is_log_append_time=is_new and header.is_log_append_time,
                leader_epoch=header.leader_epoch if is_new else NO_EPOCH,
                transaction=state if is_new and header.is_transactional else Transaction.NONE,
            )
            for record in (() if header.is_control else decode(header, batch))
            if span.first <= record.offset < span.next
        ]
        yield records, min(header.next_offset, span.next)


def first_records(
    cluster: ClusterClient, spans: Mapping[TopicPartition, Span], *, with_aborted: bool
) -> dict[TopicPartition, int]:
    """Return, for each partition, the offset of the first record in its range that a reader gets.
    Partitions without such a record are left out.

    If the records at an offset cannot be read yet (a transaction is open, or the broker returns
    nothing below the log end), this offset counts as a record. Each request is for all partitions.
    """
    isolation = Isolation.READ_UNCOMMITTED if with_aborted else Isolation.READ_COMMITTED
    wanted = {tp: span for tp, span in spans.items() if not span.is_empty}
    offsets: dict[TopicPartition, int] = {}
    is_moved = True
    while wanted:
        if is_moved:
            wanted = _cut_to_logs(cluster, wanted)
        is_moved, left = False, dict[TopicPartition, Span]()
        ask = {tp: (span.first, PROBED_BYTES) for tp, span in wanted.items()}
        for tp, answer in fetch_records(cluster, ask, isolation=isolation).items():
            span = wanted[tp]
            if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
                is_moved, left[tp] = True, span
                continue
            offset, is_record = _first_record(or_raise(answer), span)
            if is_record or offset == span.first:
                offsets[tp] = offset
            elif offset < span.next:
                left[tp] = Span(offset, span.next)
        wanted = left
    return offsets


def _cut_to_logs(
    cluster: ClusterClient, spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, Span]:
    """Return the part of each range that is in the log. Empty ranges are left out."""
    starts, ends = log_starts(cluster, spans), readable_ends(cluster, spans)
    inside = {
        tp: Span(max(span.first, starts[tp]), min(span.next, ends[tp]))
        for tp, span in spans.items()
    }
    return {tp: span for tp, span in inside.items() if not span.is_empty}


def _first_record(answer: FetchedRecords, span: Span) -> tuple[int, bool]:
    """Return (offset of the first record in the range, True). If there is none, return (end of the
    batches in `answer`, False).
    """
    position = span.first
    for header, records in batches_of(answer):
        for record in records:
            if span.first <= record.offset < span.next:
                return record.offset, True
        position = max(position, min(header.next_offset, span.next))
    return position, False


def _span_or_none(first: int, until: int) -> Span | None:
    return Span(first, until) if first < until else None
