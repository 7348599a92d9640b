"""An in-memory log of one partition that behaves as on a broker: producer states that expire,
sequences, leader epochs, transactions, compaction and deletion.

The behavior of a real broker was tested in each case (`tests/broker/test_client_exact.py`, the
`faults`). `tests/broker/test_memory_log.py` runs the same random steps on both logs and compares
every response.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.ports import READ_BYTES, LogEnds, LogView, ProducerTail, RawRecords
from twinlog.mirror.start.cold_start import starts_in_groups
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import StartPoint
from twinlog.model import SEQUENCE_MODULUS, Isolation, StartAt, StartKind, TopicId, TopicPartition
from twinlog.wire.primitives import read_varint
from twinlog.wire.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Codec,
    read_header,
)
from twinlog.wire.records import Record, decode_batch, encode_batch

__all__ = ["Answer", "LaggingLog", "MemoryLog", "MemoryView", "RolledBack", "find_starts"]

OUT_OF_ORDER: Final = 45
TOO_LARGE: Final = 10
REMEMBERED: Final = 5
"""Number of a producer's last batches with which a batch is compared to detect a repeat."""
TRANSACTIONAL: Final = 0x10
MARKER: Final = 0x30


class Answer(NamedTuple):
    """The response to a Produce request."""

    error: int
    base_offset: int
    log_append_time_ms: int = -1
    """For an append -1; for a repeat, the newest timestamp of the existing batch."""


class RolledBack(NamedTuple):
    """An aborted transaction, as a Fetch response lists it."""

    producer_id: int
    first_offset: int
    last_offset: int


class _Seen(NamedTuple):
    """A batch that a producer's state remembers."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class _Producer:
    last_sequence: int = -1
    last_timestamp: int = -1
    recent: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Stored(NamedTuple):
    """A batch in the log."""

    header: BatchHeader
    data: bytes
    records: tuple[Record, ...]

    @classmethod
    def of(cls, data: bytes | bytearray) -> Stored:
        header = read_header(memoryview(data))
        return cls(header, bytes(data), tuple(decode_batch(memoryview(data))))


@dataclass(slots=True)
class MemoryLog:
    """A log with one replica, so its high watermark is its end."""

    log_start: int = 0
    end: int = 0
    epoch: int = 0
    most_records: int = 0
    """Maximum number of records in a batch. Larger batches are rejected, as if they were too large
    after recompression. With 0 there is no limit.
    """
    batches: list[Stored] = field(default_factory=list)
    aborted: list[RolledBack] = field(default_factory=list)
    _producers: dict[int, _Producer] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    """First offset of each open transaction, by producer ID."""

    def append(self, data: bytes | memoryview) -> Answer:
        """Append a batch of an idempotent producer with epoch 0, or of a producer without an ID."""
        header = read_header(memoryview(data))
        if 0 < self.most_records < header.count:  # checked before sequences
            return Answer(TOO_LARGE, -1)
        if header.producer_id >= 0:
            repeat = self._check(header)
            if repeat is not None:
                return repeat
        base = self._store(bytearray(data))
        if header.producer_id >= 0:
            self._remember(self.batches[-1].header)
        return Answer(0, base)

    def _check(self, header: BatchHeader) -> Answer | None:
        known = self._producers.get(header.producer_id)
        if known is None:
            # A leader accepts any first sequence of an unknown producer ID. Since Kafka 4.5, it
            # accepts only 0 while its log has never had a record (ADR 38), so no copy may need
            # another one.
            assert self.end or not header.base_sequence, f"the first sequence of a log: {header}"
            return None
        first = header.base_sequence
        last = (first + header.count - 1) % SEQUENCE_MODULUS
        for seen in known.recent:
            if (seen.first_sequence, seen.last_sequence) == (first, last):
                return Answer(0, seen.base_offset, seen.timestamp)
        if first != (known.last_sequence + 1) % SEQUENCE_MODULUS:
            return Answer(OUT_OF_ORDER, -1)
        return None

    def _remember(self, header: BatchHeader) -> None:
        known = self._producers.setdefault(header.producer_id, _Producer())
        last = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
        known.recent.append(
            _Seen(header.base_sequence, last, header.base_offset, header.max_timestamp)
        )
        known.last_sequence, known.last_timestamp = last, header.max_timestamp

    def _store(self, data: bytearray) -> int:
        base = self.end
        data[0:8] = base.to_bytes(8, "big")
        data[12:16] = self.epoch.to_bytes(4, "big")
        self.batches.append(Stored.of(data))
        self.end = self.batches[-1].header.next_offset
        return base

    def forget(self, older_than: int) -> None:
        """Expire producer IDs whose last record is older than this timestamp."""
        for producer_id, known in list(self._producers.items()):
            if known.last_timestamp < older_than:
                del self._producers[producer_id]

    def producer(self, producer_id: int) -> ProducerTail | None:
        known = self._producers.get(producer_id)
        if known is None:
            return None
        return ProducerTail(last_sequence=known.last_sequence, last_timestamp=known.last_timestamp)

    # -- producers of a source ---------------------------------------------------------------------

    def write(self, records: list[Record], *, producer_id: int = -1) -> int:
        """Write one batch, in a transaction if a producer ID is given. Return its base offset."""
        batch = encode_batch(records, codec=Codec.NONE, producer_id=producer_id)
        if producer_id >= 0:
            self._open.setdefault(producer_id, self.end)
            batch = _with_bits(batch, TRANSACTIONAL)
        return self._store(batch)

    def finish(self, producer_id: int, timestamp: int, *, commit: bool) -> None:
        """End the producer's transaction by its marker."""
        first = self._open.pop(producer_id, self.end)
        if not commit:
            self.aborted.append(RolledBack(producer_id, first, self.end))
        marker = Record(0, timestamp, bytes((0, 0, 0, 1 if commit else 0)), bytes(6))
        batch = encode_batch([marker], codec=Codec.NONE, producer_id=producer_id)
        self._store(_with_bits(batch, MARKER))

    @property
    def last_stable(self) -> int:
        return min(self._open.values(), default=self.end)

    # -- deletion, compaction and truncation -------------------------------------------------------

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as DeleteRecords or retention does."""
        self.log_start = max(self.log_start, min(offset, self.end))
        self.batches = [one for one in self.batches if one.header.next_offset > self.log_start]

    def compact(self, stays: Callable[[Record], bool]) -> list[Record]:
        """Remove the records for which `stays` returns False, as the cleaner does. Offsets do not
        change. Return the removed records.
        """
        taken: list[Record] = []
        kept: list[Stored] = []
        newest = self.batches[-1].header if self.batches else None
        for one in self.batches:
            # the newest batch is in the active segment
            if one.header.is_control or one.header is newest:
                kept.append(one)
                continue
            keeps = [stays(record) for record in one.records]
            taken += [r for r, is_kept in zip(one.records, keeps, strict=True) if not is_kept]
            if any(keeps):
                kept.append(one if all(keeps) else _thinned(one, keeps))
        self.batches = kept
        return taken

    def truncate(self, offset: int) -> None:
        """Elect a leader that lacks the batches from `offset` on. It knows only the producers of
        its own log. An expired producer ID stays expired.
        """
        self.batches = [one for one in self.batches if one.header.next_offset <= offset]
        before = self.end
        self.end = max(self.log_start, min(before, offset))
        if self.batches:
            self.end = max(self.end, self.batches[-1].header.next_offset)
        self.aborted = [one for one in self.aborted if one.last_offset < self.end]
        known, self._producers = self._producers, {}
        for one in self.batches:
            if one.header.producer_id in known and not one.header.is_control:
                self._remember(one.header)
        self.epoch += 1

    # -- readers -----------------------------------------------------------------------------------

    def read(self, offset: int, most: int | None = None, below: int | None = None) -> memoryview:
        """Return at most `most` whole batches, beginning with the one that contains `offset`.

        `below`: offset before which a batch must begin; by default the high watermark.
        """
        if not self.log_start <= offset <= self.end:
            raise PartitionError(
                f"offset {offset} is not in [{self.log_start}, {self.end}]",
                code="OFFSET_OUT_OF_RANGE",
            )
        end = self.ends.high_watermark if below is None else below
        found = [
            one.data
            for one in self.batches
            if one.header.next_offset > offset and one.header.base_offset < end
        ]
        return memoryview(bytearray(b"".join(found[:most])))

    def records(self) -> list[Record]:
        """Return all data records from the log's start on with their offsets, including aborted
        ones.
        """
        return [
            record
            for one in self.batches
            if not one.header.is_control
            for record in one.records
            if record.offset >= self.log_start
        ]

    @property
    def ends(self) -> LogEnds:
        return LogEnds(
            log_start=self.log_start,
            high_watermark=self.end,
            log_end=self.end,
            leader_epoch=self.epoch,
        )


class LaggingLog(MemoryLog):
    """A log whose last records are only on its leader, so consumers do not get them."""

    def __init__(self, of: MemoryLog, behind: int) -> None:
        for name in MemoryLog.__slots__:
            setattr(self, name, getattr(of, name))
        self.behind = behind

    @property
    def ends(self) -> LogEnds:
        # no bare super(), because the decorator creates the class again to add its slots
        ends: LogEnds = MemoryLog.ends.__get__(self)
        return replace(ends, high_watermark=self.end - self.behind)


def _with_bits(batch: bytearray, bits: int) -> bytearray:
    batch[22] |= bits
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def _thinned(one: Stored, stays: list[bool]) -> Stored:
    """Return a batch without some of its records. It keeps its first offset, its last offset and
    its sequences.
    """
    data, payload, at = bytearray(one.data[:HEADER_BYTES]), one.data, HEADER_BYTES
    for is_kept in stays:
        size, begin = read_varint(payload, at)
        if is_kept:
            data += payload[at : begin + size]
        at = begin + size
    data[8:12] = (len(data) - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
    data[57:61] = sum(stays).to_bytes(4, "big")
    return Stored.of(_with_bits(data, 0))


class MemoryView:
    """Implements the port in `twinlog.mirror.ports` with in-memory logs."""

    def __init__(self, logs: Mapping[TopicPartition, MemoryLog], topic_id: TopicId) -> None:
        self._logs = logs
        self._topic_id = topic_id
        self.problems: dict[TopicPartition, TwinlogError] = {}

    def topic_ids(self, topics: set[str]) -> Mapping[str, TopicId]:
        return dict.fromkeys(topics, self._topic_id)

    def ends(self, tps: set[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return {tp: self._logs[tp].ends for tp in tps}

    def begins(
        self, starts: Mapping[TopicPartition, StartAt], *, isolation: Isolation
    ) -> Mapping[TopicPartition, int]:
        def begin(log: MemoryLog, start: StartAt) -> int:
            if start.kind is StartKind.EARLIEST:
                return log.log_start
            return log.last_stable if isolation is Isolation.READ_COMMITTED else log.end

        return {tp: begin(self._logs[tp], start) for tp, start in starts.items()}

    def read(
        self, offsets: Mapping[TopicPartition, int], *, size: int = READ_BYTES
    ) -> Mapping[TopicPartition, RawRecords]:
        return {tp: self._read(self._logs[tp], at) for tp, at in offsets.items()}

    def _read(self, log: MemoryLog, offset: int) -> RawRecords:
        return RawRecords(records=log.read(offset), high_watermark=log.ends.high_watermark)

    def producers(
        self, tps: set[TopicPartition], producer_id: int
    ) -> Mapping[TopicPartition, ProducerTail] | None:
        found = {tp: self._logs[tp].producer(producer_id) for tp in tps}
        return {tp: state for tp, state in found.items() if state is not None}


def find_starts(
    requests: Sequence[StartRequest], source: LogView, target: LogView, rules: StartRules
) -> dict[TopicPartition, StartPoint | TwinlogError]:
    """Return each partition's start point, or the error that prevents its start, by source
    topic-partition.
    """
    out: dict[TopicPartition, StartPoint | TwinlogError] = {}
    for some in starts_in_groups(requests, source, target, rules):
        out.update(some)
    return out
