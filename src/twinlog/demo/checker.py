"""Compares source and target while a mirror runs, in a thread and with an independent client."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from twinlog.demo.client import DemoWorker, Message, confluent, log_reader, partition_counts
from twinlog.errors import ClusterError

BATCH: Final = 500
POLL_S: Final = 0.05
TOPICS_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """Progress and result of the comparison."""

    compared: int = 0
    on_the_way: int = 0
    """Number of records that were read from the source, but not yet from the target."""
    surplus: int = 0
    """Number of records that were read from the target, but not from the source. Must become 0."""
    differences: tuple[str, ...] = ()


class Checker(DemoWorker):
    """Compares topics of the source cluster with their remote topics on the target cluster."""

    def __init__(
        self,
        source: str,
        target: str,
        remote: Mapping[str, str],
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("demo-checker", on_error)
        self.comparer = Comparer()
        self._addresses = {LogSide.SOURCE: source, LogSide.TARGET: target}
        self._upstream = {name: topic for topic, name in remote.items()}
        self._topics = {LogSide.SOURCE: tuple(remote), LogSide.TARGET: tuple(remote.values())}
        self.state = CheckState()

    def _work(self) -> None:
        readers: dict[LogSide, _Reader] = {}
        try:
            while not self._stop.is_set():
                self._open_missing(readers)
                moved = [reader.read() for reader in readers.values()]
                self._note_progress()
                if not any(moved):
                    self._stop.wait(POLL_S)
        finally:
            for reader in readers.values():
                reader.close()

    def _open_missing(self, readers: dict[LogSide, _Reader]) -> None:
        """Open a reader for each side whose topics exist. (The mirror creates remote topics.)"""
        for side in LogSide:
            if side in readers:
                continue
            counts = partition_counts(self._addresses[side], self._topics[side])
            if len(counts) == len(self._topics[side]):
                address = self._addresses[side]
                readers[side] = _Reader(side, address, counts, self._upstream, self.comparer)
            else:
                self._stop.wait(TOPICS_POLL_S)

    def _note_progress(self) -> None:
        comparer = self.comparer
        self.state = CheckState(
            compared=comparer.compared,
            on_the_way=comparer.waiting(LogSide.SOURCE),
            surplus=comparer.waiting(LogSide.TARGET),
            differences=tuple(comparer.differences),
        )


class _Reader:
    """Reads one side from the start of its topics. Pauses partitions whose queue is full."""

    def __init__(
        self,
        side: LogSide,
        bootstrap: str,
        partitions: Mapping[str, int],
        upstream: Mapping[str, str],
        comparer: Comparer,
    ) -> None:
        """`upstream`: the source topic of each topic on the target."""
        self._side = side
        self._upstream = upstream
        self._comparer = comparer
        self._paused: set[tuple[str, int]] = set()
        self._consumer: Any = log_reader(bootstrap, partitions)

    def read(self) -> bool:
        """Process the records that have arrived. Returns False if none have."""
        self._resume()
        messages = self._consumer.consume(BATCH, timeout=POLL_S)
        for message in messages:
            self._check_message(message)
        return bool(messages)

    def _check_message(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.retriable() or error.code() == confluent().KafkaError._TRANSPORT:
                return  # the client reconnects automatically
            raise ClusterError(
                f"the demo's check cannot read {message.topic()} from the {self._side}: {error}"
            )
        topic = self._upstream.get(message.topic(), message.topic())
        partition = message.partition()
        timestamp_type, timestamp = message.timestamp()
        self._comparer.add(
            self._side,
            topic,
            partition,
            SeenRecord(
                offset=message.offset(),
                timestamp=timestamp,
                timestamp_type=timestamp_type,
                key=message.key(),
                value=message.value(),
                headers=tuple(message.headers() or ()),
            ),
        )
        source_partition = (message.topic(), partition)
        if source_partition not in self._paused and not self._comparer.has_room(
            self._side, topic, partition
        ):
            self._paused.add(source_partition)
            self._consumer.pause([confluent().TopicPartition(*source_partition)])

    def _resume(self) -> None:
        for topic, partition in list(self._paused):
            if self._comparer.has_room(self._side, self._upstream.get(topic, topic), partition):
                self._paused.discard((topic, partition))
                self._consumer.resume([confluent().TopicPartition(topic, partition)])

    def close(self) -> None:
        self._consumer.close()


# Compares two logs record by record while both grow, in bounded memory. For each partition, the
# n-th record of the source is compared with the n-th record of the target. They must be equal in
# key, value, headers (with order, duplicates and null values) and timestamp. So a lost, duplicated
# or reordered record shows as a difference at its position. Records that were read from only one
# side wait in a short queue. While the queue is full, no more records may be read from that side
# (`has_room`). The comparer uses neither a Kafka client nor the mirror's code, so it shares no bugs
# with them.

QUEUE_RECORDS: Final = 20_000
"""Maximum records in a partition's queue: some seconds of the demo's stream, about 20 MB."""

KEPT_DIFFERENCES: Final = 10


class LogSide(StrEnum):
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record from a consumer's view. Offsets may differ, and so are only used in messages."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Comparer:
    """Compares the records of both sides, separately for each partition."""

    def __init__(self, *, queue_records: int = QUEUE_RECORDS) -> None:
        self._waiting = defaultdict[tuple[LogSide, str, int], deque[SeenRecord]](deque)
        """Queues by side, source topic and partition. Only one side of a partition has records."""
        self._differing: set[tuple[str, int]] = set()
        self._queue_records = queue_records
        self.differences: list[str] = []
        """The first difference of each partition, at most KEPT_DIFFERENCES."""
        self.compared = 0

    def add(self, side: LogSide, topic: str, partition: int, record: SeenRecord) -> None:
        """Add the next record of one side. `topic`: the source topic's name, for both sides."""
        there = LogSide.TARGET if side is LogSide.SOURCE else LogSide.SOURCE
        other = self._waiting[there, topic, partition]
        if not other:
            self._waiting[side, topic, partition].append(record)
            return
        source, target = record, other.popleft()
        if side is LogSide.TARGET:
            source, target = target, source
        self._compare(topic, partition, source, target)

    def has_room(self, side: LogSide, topic: str, partition: int) -> bool:
        """Return False if no more records of `side` may be read until the other side catches up."""
        return len(self._waiting[side, topic, partition]) < self._queue_records

    def waiting(self, side: LogSide) -> int:
        """Return the number of records of one side that were not yet read from the other side."""
        return sum(len(queue) for (of, *_), queue in self._waiting.items() if of is side)

    def _compare(self, topic: str, partition: int, source: SeenRecord, target: SeenRecord) -> None:
        self.compared += 1
        names = ("key", "value", "headers", "timestamp", "timestamp_type")
        fields = [name for name in names if getattr(source, name) != getattr(target, name)]
        # after a lost record, all later records of the partition differ as well, so only the first
        # difference is reported
        if not fields or (topic, partition) in self._differing:
            return
        self._differing.add((topic, partition))
        if len(self.differences) < KEPT_DIFFERENCES:
            self.differences.append(
                f"{topic}-{partition}: source offset {source.offset} and target offset "
                f"{target.offset} differ in {', '.join(fields)}"
            )
