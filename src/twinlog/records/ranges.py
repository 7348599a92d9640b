"""Decodes ranges of partitions to rows, and encodes the rows that a transform returns (ADR 40).

Rows have the columns of `format("twinlog")`. A transform may change key, value, headers and
timestamp, and leave rows out. `topic`, `partition` and `offset` name the record from which a row
comes. Rows that do not belong to the ranges, or are in another order, are refused. They show that
the transform is not row by row, or changes topics, which mirrors do not support.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, lt
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from twinlog.clock import GrowingPause
from twinlog.errors import ClusterError
from twinlog.mirror.copy.ranges import RangeAnswer, RangeBounds, SourceRange
from twinlog.model import TopicPartition
from twinlog.records.columns import OFFSET, PARTITION, TOPIC, all_columns
from twinlog.records.decoding import ColumnDecoder, binary_array, number_array
from twinlog.records.write.packing import UNTIMED_MS, BatchedRows, Gatherer
from twinlog.records.write.rows import numbers_of, table_of_columns
from twinlog.wire.compression import DECOMPRESSED_LIMIT_BYTES
from twinlog.wire.record_batch import Codec, read_headers, rewrite_header, verify_crc
from twinlog.wire.records import Rows, encode_rows

COLUMNS: Final = all_columns(headers=True)
CHUNK_BYTES: Final = 1 << 20
"""Maximum bytes of rows that are passed to Spark at once, unless a single record is larger. The
limit is low because Spark makes several copies of rows.
"""
LARGE_BYTES: Final = 16 << 20
"""Uncompressed size of a batch above which only one worker at a time decodes such a batch."""
_MOST_RATIO: Final = {Codec.NONE: 1, Codec.SNAPPY: 64, Codec.LZ4: 255, Codec.GZIP: 1032}
"""Upper bounds of the compression ratio, by codec. Zstandard has none."""
TURN_WITHIN_S: Final = 5.0
TURN_TICK_S: Final = 0.01
_FALSE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\0")])[0]


class PayloadTurn:
    """Lets only one worker at a time have a large batch's payload in memory, by a file lock."""

    def __init__(self, path: str) -> None:
        """`path`: the folder of the file, or an empty text for no lock."""
        flags = os.O_RDWR | os.O_CREAT
        self._file = os.open(Path(path) / "turn", flags, 0o600) if path else None
        self.left_s = TURN_WITHIN_S

    def begin(self) -> None:
        """Wait until no other worker has the turn. All waits of a task together take at most
        `left_s` seconds, because another worker may hang.
        """
        if self._file is not None:
            pause = GrowingPause(first_s=0.0002, most_s=TURN_TICK_S)
            while not self._is_locked(self._file) and self.left_s > 0:
                pause_s = pause.next_s()
                self.left_s -= pause_s
                time.sleep(pause_s)

    def unpacked(self, size: int) -> None:
        """End the turn now if the uncompressed size of the batch is small."""
        if size <= LARGE_BYTES:
            self.end()

    def end(self) -> None:
        """End the turn, if it has not ended."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @staticmethod
    def _is_locked(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@cache
def turn_of(path: str) -> PayloadTurn:
    """Return this process's turn, with a lock file in the folder `path` unless it is empty."""
    return PayloadTurn(path)


NO_TURN: Final = PayloadTurn("")


def rows_of_range(
    source_range: SourceRange,
    left_out: Sequence[int] = (),
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    turn: PayloadTurn = NO_TURN,
) -> Iterator[pa.RecordBatch]:
    """Yield the records in [first, end) as rows, except records at the offsets `left_out`. Raises
    CorruptData. `limit_bytes`: maximum payload of a batch.
    """
    tp = TopicPartition(source_range.topic, source_range.partition)
    decoder = ColumnDecoder(
        tp, COLUMNS, limit_bytes, chunk_bytes=CHUNK_BYTES, unpacked=turn.unpacked
    )
    buffer = memoryview(source_range.batches)
    for header, start in read_headers(buffer):
        if header.base_offset < source_range.end and header.next_offset > source_range.first:
            verify_crc(buffer, start, header)
            batch = buffer[start : start + header.length]
            ratio = _MOST_RATIO.get(header.codec)
            if ratio is None or header.length * ratio > LARGE_BYTES:
                turn.begin()
            try:
                yield from _without_offsets(
                    left_out,
                    decoder.decode_batch(header, batch, source_range.first, source_range.end),
                )
            finally:
                turn.end()
    yield from _without_offsets(left_out, decoder.last_chunk())


def _without_offsets(
    left_out: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if not left_out:
        return batches
    skipped = pa.array(left_out, pa.int64())
    return (batch.filter(pc.invert(pc.is_in(batch.column(OFFSET), skipped))) for batch in batches)


class _SingleRangeEncoder:
    """Encodes the rows of one range."""

    def __init__(self, source_range: RangeBounds, codec: Codec, max_bytes: int) -> None:
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

    def leading_row_count(self, columns: Mapping[str, Any], index: int) -> int:
        """Return how many consecutive rows from `index` on belong to this range."""
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
        """Append rows. Raises ClusterError unless their offsets ascend and are after those already
        added.
        """
        before = self.offsets[-1] if self.offsets else self._range.first - 1
        if offsets[0] <= before or not all(map(lt, offsets, offsets[1:])):
            raise _overlap_error()
        self.offsets.extend(offsets)
        self._encode(self._gatherer.add(self._tp, rows))

    def end(self) -> None:
        """Encode the remaining rows."""
        self._encode(self._gatherer.pop_all())

    def answer(self) -> RangeAnswer:
        return RangeAnswer(
            number=self._range.number,
            batches=tuple(self._batches),
            offsets=self.offsets.tobytes(),
            end=self._range.end,
        )

    def _encode(self, cuts: BatchedRows) -> None:
        for rows in cuts.get(self._tp, ()):
            batch = encode_rows(rows, codec=self._codec).data
            rewrite_header(memoryview(batch), producer_id=-1, producer_epoch=-1, base_sequence=-1)
            self._batches.append(bytes(batch))


class RangeEncoder:
    """Encodes the rows of ranges, which arrive in the order of the ranges: call `add` for each
    batch of rows, then `answers`.
    """

    def __init__(
        self, ranges: Iterable[RangeBounds], *, codec: Codec, max_bytes: int, now_ms: int
    ) -> None:
        """`now_ms`: the time of rows without a timestamp.

        Raises ClusterError (ROW_INVALID) if ranges overlap.
        """
        all_ranges = [*ranges]
        by_offset = sorted(all_ranges, key=attrgetter("topic", "partition", "first"))
        if any(one.overlaps(following) for one, following in itertools.pairwise(by_offset)):
            raise _overlap_error()  # a row of two ranges would be in the answer to only one of them
        self._encoders = [
            _SingleRangeEncoder(source_range, codec, max_bytes) for source_range in all_ranges
        ]
        self._number = 0
        """Index of the range to which the next rows belong."""
        self._now_ms = now_ms

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows after those of earlier calls. Raises ClusterError (ROW_INVALID)."""
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
            end = row + encoder.leading_row_count(columns, row)
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
        "the transform returns rows of other records, repeats rows, or changes their order: it "
        "must keep the columns topic, partition and offset",
        code="ROW_INVALID",
    )
