"""Reads the records of a divergent tail from A's log, each with the outcome of its transaction.

It reads only below the last stable offset, where the outcome of every transaction is known and
final. A tail with an open transaction is not read (`failback`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_partition
from twinlog.errors import BrokerRefused, Fate, FlowError
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.findings import Span
from twinlog.mirror.start.tail_check import decode
from twinlog.model import Isolation, TopicPartition
from twinlog.wire.record_batch import BatchHeader, read_headers, verify_crc
from twinlog.wire.records import Record

READ_BYTES: Final = 4 << 20
NO_EPOCH: Final = -1

OnRead = Callable[[int], None]
"""Takes the offset that has been reached."""


class Transaction(StrEnum):
    """The outcome of a record's transaction."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """One record, with facts from its batch."""

    record: Record
    is_log_append_time: bool
    leader_epoch: int
    """Epoch of A's leader that appended it, or -1 if the format has none."""
    transaction: Transaction


@dataclass(slots=True, kw_only=True)
class TailCounts:
    """Counts of a tail's records."""

    records: int = 0
    """All records, including aborted ones."""
    aborted: int = 0
    oldest_ms: int = -1
    newest_ms: int = -1

    def add(self, one: TailRecord) -> None:
        self.records += 1
        self.aborted += one.transaction is Transaction.ABORTED
        at = one.record.timestamp
        self.oldest_ms = at if self.oldest_ms < 0 else min(self.oldest_ms, at)
        self.newest_ms = max(self.newest_ms, at)

    @property
    def valid(self) -> int:
        """The number of records that readers of committed records get."""
        return self.records - self.aborted

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "aborted": self.aborted,
            "oldest_ms": self.oldest_ms,
            "newest_ms": self.newest_ms,
        }


def read_tail(
    client: ClusterClient, tp: TopicPartition, span: Span, on_read: OnRead = lambda _: None
) -> Iterator[TailRecord]:
    """Yield every record of [first, next) in order; the span must be below the last stable offset.

    Raises FlowError (TAIL_MOVED) if the log no longer has all of it, because retention deletes it
    at this moment, or a leader lost it.
    """
    position = span.first
    while position < span.next:
        answer = _fetch(client, tp, position)
        before = position
        rolled_back = RolledBack(answer.aborted)
        for header, at in read_headers(answer.records):
            batch = answer.records[at : at + header.length]
            is_gone = rolled_back.skip(header, batch)
            if header.next_offset <= position:
                continue
            if header.magic >= 2:
                verify_crc(answer.records, at, header)
            for one in _records(header, batch, is_gone=is_gone):
                if position <= one.record.offset < span.next:
                    yield one
            position = min(header.next_offset, span.next)
            if position == span.next:
                break
        on_read(position)
        if position == before:
            raise _moved(client, tp, position)


def _records(header: BatchHeader, batch: memoryview, *, is_gone: bool) -> Iterator[TailRecord]:
    if header.is_control:
        return
    is_new = header.magic >= 2
    state = Transaction.NONE
    if is_new and header.is_transactional:
        state = Transaction.ABORTED if is_gone else Transaction.COMMITTED
    for record in decode(header, batch):
        yield TailRecord(
            record=record,
            is_log_append_time=is_new and header.is_log_append_time,
            leader_epoch=header.leader_epoch if is_new else NO_EPOCH,
            transaction=state,
        )


def _fetch(client: ClusterClient, tp: TopicPartition, position: int) -> FetchedRecords:
    isolation = Isolation.READ_COMMITTED
    try:
        return fetch_partition(client, tp, position, READ_BYTES, isolation=isolation)
    except BrokerRefused as refusal:
        if refusal.code != "OFFSET_OUT_OF_RANGE":
            raise
        raise _moved(client, tp, position) from refusal


def _moved(client: ClusterClient, tp: TopicPartition, position: int) -> FlowError:
    return FlowError(
        f"cluster {client.alias}: {tp} no longer has offset {position}: its retention "
        "now deletes the tail, or a leader lost it; raise retention.ms of the topic, and run the "
        "same command again",
        code="TAIL_MOVED",
        fate=Fate.RETRIABLE,
    )
