"""Decodes ranges of partitions to rows, and encodes the rows that a transform returns (ADR 40).

Rows have the columns of `format("twinlog")`. A transform may change key, value, headers and
timestamp, and leave rows out. `topic`, `partition` and `offset` name the record that a row comes
from, so rows that are not of the ranges, or not in their order, are refused: the transform is not
row by row, or changes topics, which mirrors do not support.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import lt
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from twinlog.errors import ClusterError
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.model import TopicPartition
from twinlog.records.columns import OFFSET, PARTITION, TOPIC, all_columns
from twinlog.records.decoding import ColumnDecoder, binary_array, number_array
from twinlog.records.write.packing import UNTIMED_MS, Cuts, Gatherer
from twinlog.records.write.rows import numbers_of, table_of_columns
from twinlog.wire.record_batch import Codec, read_headers, rewrite_header, verify_crc
from twinlog.wire.records import encode_rows
from twinlog.wire.rows import Rows

COLUMNS: Final = all_columns(headers=True)
_FALSE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\0")])[0]


def rows_of_range(
    source_range: SourceRange, left_out: Sequence[int] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the records in [first, end) as rows, without those at the offsets `left_out`. Raises
    CorruptData.
    """
    decoder = ColumnDecoder(TopicPartition(source_range.topic, source_range.partition), COLUMNS)
    buffer = memoryview(source_range.batches)
    for header, start in read_headers(buffer):
        if header.base_offset < source_range.end and header.next_offset > source_range.first:
            verify_crc(buffer, start, header)
            batch = buffer[start : start + header.length]
            yield from _without_offsets(
                left_out, decoder.take(header, batch, source_range.first, source_range.end)
            )
    yield from _without_offsets(left_out, decoder.rest())


def _without_offsets(
    left_out: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if not left_out:
        return batches
    skipped = pa.array(left_out, pa.int64())
    return (batch.filter(pc.invert(pc.is_in(batch.column(OFFSET), skipped))) for batch in batches)


class _OneEncoder:
    """Encodes the rows of one range."""

    def __init__(self, source_range: SourceRange, codec: Codec, max_bytes: int) -> None:
        self.offsets = array("q")
        self._range, self._codec = source_range, codec
        self._tp = TopicPartition(source_range.topic, source_range.partition)
        self._gatherer = Gatherer(max_bytes)
        self._batches: list[bytes] = []
        topic = source_range.topic.encode()
        # scalars are made of arrays, because `pa.scalar` would load pandas
        self._topic = binary_array([topic]).cast(pa.string())[0]
        self._partition = number_array(array("i", [source_range.partition]), pa.int32())[0]
        self._bounds = number_array(array("q", [source_range.first, source_range.end]), pa.int64())

    def leading(self, columns: Mapping[str, Any], index: int) -> int:
        """Return how many rows from `index` on are of this range."""
        topic, partition, offset = (
            columns[name].slice(index) for name in (TOPIC, PARTITION, OFFSET)
        )
        is_named = pc.and_(pc.equal(topic, self._topic), pc.equal(partition, self._partition))
        is_within = pc.and_(
            pc.greater_equal(offset, self._bounds[0]), pc.less(offset, self._bounds[1])
        )
        is_leading = pc.fill_null(pc.and_(is_named, is_within), _FALSE)
        return pc.index(is_leading, _FALSE).as_py() if is_leading.false_count else len(is_leading)

    def add(self, rows: Rows, offsets: array[int]) -> None:
        """Add rows after those added before. Raises ClusterError."""
        before = self.offsets[-1] if self.offsets else self._range.first - 1
        if offsets[0] <= before or not all(map(lt, offsets, offsets[1:])):
            raise _overlap_error()
        self.offsets.extend(offsets)
        self._encode(self._gatherer.add(self._tp, rows))

    def end(self) -> None:
        """Encode the remaining rows."""
        self._encode(self._gatherer.take_all())

    def answer(self) -> RangeAnswer:
        return RangeAnswer(
            number=self._range.number,
            batches=tuple(self._batches),
            offsets=self.offsets.tobytes(),
            end=self._range.end,
        )

    def _encode(self, cuts: Cuts) -> None:
        for rows in cuts.get(self._tp, ()):
            batch = encode_rows(rows, codec=self._codec).data
            rewrite_header(memoryview(batch), producer_id=-1, producer_epoch=-1, base_sequence=-1)
            self._batches.append(bytes(batch))


class RangeEncoder:
    """Encodes the rows of ranges, which arrive in the order of the ranges: call `add` for each
    batch of rows, then `answers`.
    """

    def __init__(
        self, ranges: Iterable[SourceRange], *, codec: Codec, max_bytes: int, now_ms: int
    ) -> None:
        """`ranges`: their batches are not read. `now_ms`: the time of rows without a timestamp.

        Raises ClusterError (ROW_INVALID) if ranges overlap.
        """
        all_ranges = [*ranges]
        if any(
            source_range.overlaps(other)
            for source_range, other in itertools.combinations(all_ranges, 2)
        ):
            raise _overlap_error()  # a row of both would only be in the answer to the first one
        self._encoders = [
            _OneEncoder(source_range, codec, max_bytes) for source_range in all_ranges
        ]
        self._number = 0
        """The range whose rows arrive."""
        self._now_ms = now_ms

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows after those added before. Raises ClusterError (ROW_INVALID)."""
        if not rows.num_rows:
            return
        columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
        if columns[OFFSET].null_count:
            raise _overlap_error()
        table = table_of_columns(columns, rows.num_rows, self._now_ms, least_ms=UNTIMED_MS)
        offsets, row = numbers_of(columns[OFFSET]), 0
        while row < rows.num_rows:
            if self._number == len(self._encoders):
                raise _overlap_error()
            encoder = self._encoders[self._number]
            end = row + encoder.leading(columns, row)
            if row < end:
                picked = array("q", range(row, end))
                encoder.add(Rows([(table, picked)]), offsets[row:end])
            if end < rows.num_rows:
                encoder.end()
                self._number += 1
            row = end

    def answers(self) -> list[RangeAnswer]:
        """Encode the remaining rows, and return an answer for each range."""
        for encoder in self._encoders:
            encoder.end()
        return [encoder.answer() for encoder in self._encoders]


def _overlap_error() -> ClusterError:
    return ClusterError(
        "the transform returns rows of other records, twice, or in another order: it must keep "
        "topic, partition and offset",
        code="ROW_INVALID",
    )
