"""Defines the data that a Spark task gets and how the task reads, for batches and streams.

A reader is pickled to executors as a `TaskReader`, so that new workers there do not load the code
for planning.

Options are sent as they were written. So each task reads the key files again, and the next
micro-batch uses a renewed key. The files must be on every executor, as for Spark's own source.

`RangeReader` reads one range of a partition's log as Arrow batches. A task that dies or runs twice
changes nothing: reading leaves no trace on the cluster, and Spark uses the rows of one attempt.
Events during a read, and their results:

- The leader moves: the request fails and is sent to the new leader.
- The topic is deleted: TOPIC_MISSING, or a warning with the range that was deleted.
- The log start passes the position: RETENTION, with the deleted range.
- Offsets are missing inside the log: LOG_GAP, or compaction (`records.gaps`).
- The log is truncated before the position: TRUNCATED. A log that was truncated and has grown past
  the position again looks like an intact log, because the offsets of a range have no leader epoch,
  as in Spark's own source.
- No records arrive although the range continues: a transaction is open, or a new leader does not
  know yet how much is replicated. The reader waits, and then raises TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.config.values.origin import ClientProperties
from twinlog.errors import BrokerRefused, ClusterError, CorruptData, Fate, or_raise
from twinlog.mirror.copy.intake import RolledBack
from twinlog.mirror.map.origins import Origin, Origins
from twinlog.model import Isolation, TopicPartition
from twinlog.records import gaps
from twinlog.records.columns import UPSTREAM
from twinlog.records.connections import connected, task_begins
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.gaps import OffsetRange
from twinlog.records.given import READER, settings_of
from twinlog.wire.record_batch import BatchHeader, read_headers, verify_crc

if TYPE_CHECKING:
    from twinlog.records.options import ReadOptions
    from twinlog.records.upstreams import UpstreamMaps


FETCH_BYTES: Final = 8 << 20
"""Maximum bytes per response: few requests for many bytes, and no more memory than a lane uses."""
FIRST_BYTES: Final = 64 << 10
"""Maximum bytes of the first fetch of a range. Its rows are passed to Spark immediately, so that a
query with `limit` does not wait for more.
"""
GROWTH: Final = 16
"""Factor by which the maximum bytes grow with each fetch of a range."""


class RangeReader:
    """Reads one range of a partition. Can be used only once."""

    def __init__(
        self,
        client: ClusterClient,
        requested: gaps.OffsetRange,
        decoder: ColumnDecoder,
        *,
        isolation: Isolation,
        fails_on_data_loss: bool,
    ) -> None:
        self._client = client
        self._tp = requested.tp
        self._position = requested.first
        self._end = requested.end
        self._isolation = isolation
        self._fails = fails_on_data_loss
        self._decoder = decoder
        self._left_out = gaps.GapCounter(
            self._tp,
            partial(gaps.cleanup_policy, client, self._tp.topic),
            fails=fails_on_data_loss,
        )
        self._fetch_bytes = FIRST_BYTES

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the range in order. Raises TwinlogError."""
        failures, deadline = 0, self._client.deadline()
        while self._position < self._end:
            before = self._position
            try:
                answer = self._fetch()
            except ClusterError as error:
                if self._fails or not gaps.is_gone(error):
                    raise
                gaps.warn_of_gone(
                    gaps.OffsetRange(tp=self._tp, first=self._position, end=self._end)
                )
                break
            if answer is not None:
                yield from self._decode(answer)
                if self._fetch_bytes == FIRST_BYTES:
                    yield from self._decoder.last_chunk()
                self._fetch_bytes = min(self._fetch_bytes * GROWTH, FETCH_BYTES)
            if self._position > before:
                failures, deadline = 0, self._client.deadline()
                continue
            failures += 1
            if not self._client.patience.pause(failures, deadline):
                raise self._stalled_error()
        yield from self._decoder.last_chunk()
        self._left_out.log_counts()

    def _fetch(self) -> FetchedRecords | None:
        """Fetch at the current position. Return None if the fetch must be repeated, because the
        position was outside of the log.
        """
        answer = fetch_records(
            self._client, {self._tp: (self._position, self._fetch_bytes)}, isolation=self._isolation
        )[self._tp]
        if isinstance(answer, BrokerRefused) and answer.code == "OFFSET_OUT_OF_RANGE":
            self._pass_gap(gaps.log_bounds(self._client, [self._tp])[self._tp])
            return None
        return or_raise(answer)

    def _pass_gap(self, bounds: gaps.LogBounds) -> None:
        wanted = gaps.OffsetRange(tp=self._tp, first=self._position, end=self._end)
        gaps.report(gaps.find_losses(wanted, bounds), fails=self._fails)
        left = gaps.existing_part(wanted, bounds)
        self._position, self._end = left.first, left.end

    def _decode(self, answer: FetchedRecords) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._decode_batches(answer)
        except CorruptData as error:
            raise CorruptData(
                f"cluster {self._client.alias}: {self._tp}: {error.message}. Another replica, or "
                "another copy of the topic, may have the only intact records, so delete nothing. "
                "To read from another replica, make that replica the leader"
            ) from None

    def _decode_batches(self, answer: FetchedRecords) -> Iterator[pa.RecordBatch]:
        committed = self._isolation is Isolation.READ_COMMITTED
        rolled_back = RolledBack(answer.aborted if committed else ())
        for header, start in read_headers(answer.records):
            if header.magic >= 2 and header.base_offset >= self._end:
                self._jump_to(self._end, answer)
                return
            verify_crc(answer.records, start, header)
            batch = answer.records[start : start + header.length]
            is_rolled_back = rolled_back.skip(header, batch)
            if header.next_offset <= self._position:
                continue
            if header.magic >= 2 and header.base_offset > self._position:
                self._jump_to(header.base_offset, answer)
            if is_rolled_back or header.is_control:
                self._left_out.in_transaction(self._position, min(header.next_offset, self._end))
            else:
                yield from self._take(header, batch)
            self._position = header.next_offset
            if self._position >= self._end:
                return  # batches after the end are not needed, and may be damaged

    def _jump_to(self, to: int, answer: FetchedRecords) -> None:
        self._left_out.between_batches(self._position, to, answer.log_start)
        self._position = to

    def _take(self, header: BatchHeader, batch: memoryview) -> Iterator[pa.RecordBatch]:
        first, end, before = self._position, min(header.next_offset, self._end), self._decoder.taken
        yield from self._decoder.decode_batch(header, batch, first, self._end)
        missing = end - first - (self._decoder.taken - before)
        if missing and header.magic >= 2:
            self._left_out.in_batch(first, end, missing)

    def _stalled_error(self) -> ClusterError:
        held = ", and whether a transaction is still open"
        why = held if self._isolation is Isolation.READ_COMMITTED else ""
        return ClusterError(
            f"cluster {self._client.alias}: {self._tp}: the leader returns no batch at offset "
            f"{self._position}, although the query reads up to offset {self._end}: check the "
            f"leader{why}",
            code="TIMED_OUT",
            fate=Fate.RETRIABLE,
        )


class RangesPartition(InputPartition):
    """The offset ranges of one task, in Spark's form. For each range there are the parts of the
    offset maps (`mirror.map.origins`) from which `_upstream` is computed.
    """

    def __init__(
        self, ranges: Sequence[OffsetRange], origins: Sequence[Sequence[Origin]] | None = None
    ) -> None:
        every_origin = [()] * len(ranges) if origins is None else origins
        super().__init__(
            tuple(
                (span.tp.topic, span.tp.partition, span.first, span.end, tuple(range_origins))
                for span, range_origins in zip(ranges, every_origin, strict=True)
            )
        )

    def parts(self) -> Iterator[tuple[OffsetRange, Origins]]:
        """Yield (range, its parts of the offset maps) for each range, in order."""
        for topic, partition, first, end, origins in self.value:
            tp = TopicPartition(topic, partition)
            yield OffsetRange(tp=tp, first=first, end=end), Origins(origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReader:
    """The fields of a reader that tasks need. Its repr hides secrets."""

    properties: ClientProperties
    columns: tuple[str, ...]
    isolation: Isolation
    fails_on_data_loss: bool

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task_begins()
        if not isinstance(partition, RangesPartition):
            return  # Spark runs one task even if there is nothing to read
        with connected(settings_of(self.properties, READER)) as client:
            for wanted, origins in partition.parts():
                yield from RangeReader(
                    client,
                    wanted,
                    ColumnDecoder(wanted.tp, self.columns, origins=origins),
                    isolation=self.isolation,
                    fails_on_data_loss=self.fails_on_data_loss,
                ).read()


class PlanningReader:
    """Base of the batch and stream readers, which are pickled as a `TaskReader`."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task_reader()().read(partition)

    def __reduce__(self) -> tuple[partial[TaskReader], tuple[()]]:
        return self._task_reader(), ()

    def _tasks(
        self, groups: Sequence[Sequence[OffsetRange]], upstreams: Callable[[], UpstreamMaps]
    ) -> list[InputPartition]:
        if UPSTREAM not in self._columns:
            return [RangesPartition(group) for group in groups]
        origins = iter(upstreams().of([span for group in groups for span in group]))
        return [RangesPartition(group, [next(origins) for _ in group]) for group in groups]

    def _task_reader(self) -> partial[TaskReader]:
        return partial(
            TaskReader,
            properties=self._options.properties,
            columns=self._columns,
            isolation=self._options.isolation,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
