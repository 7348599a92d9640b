"""Decodes a range of a partition to rows, and encodes the rows that a transform returns (ADR 40).

Rows have the columns of `format("twinlog")`. A transform may change key, value, headers and
timestamp, and leave rows out. `partition` and `offset` name the record that a row comes from, so
rows that are not of the range, or not in its order, are refused: the transform is not row by row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from twinlog.errors import ClusterError
from twinlog.mirror.copy.ranges import RangeAnswer, SourceRange
from twinlog.model import TopicPartition
from twinlog.records.columns import OFFSET, PARTITION, TOPIC, all_columns
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.write.packing import UNTIMED_MS, Cuts, Gatherer
from twinlog.records.write.rows import numbers_of, table_of_columns
from twinlog.wire.encoding import encode_rows
from twinlog.wire.record_batch import Codec, read_headers, rewrite_header, verify_crc
from twinlog.wire.rows import Rows

COLUMNS: Final = all_columns(headers=True)


def rows_of_range(one: SourceRange, left_out: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """Yield the records in [first, end) as rows, without those at the offsets `left_out`. Raises
    CorruptData.
    """
    decoder = ColumnDecoder(TopicPartition(one.topic, one.partition), COLUMNS)
    buffer = memoryview(one.batches)
    for header, at in read_headers(buffer):
        if header.base_offset < one.end and header.next_offset > one.first:
            verify_crc(buffer, at, header)
            batch = buffer[at : at + header.length]
            yield from _without(left_out, decoder.take(header, batch, one.first, one.end))
    yield from _without(left_out, decoder.rest())


def _without(
    left_out: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if not left_out:
        return batches
    skipped = pa.array(left_out, pa.int64())
    return (one.filter(pc.invert(pc.is_in(one.column(OFFSET), skipped))) for one in batches)


class RangeEncoder:
    """Encodes the rows of one range: call `add` for each batch of rows, then `answer`."""

    def __init__(self, one: SourceRange, *, codec: Codec, max_bytes: int, now_ms: int) -> None:
        """`one`: the range, whose batches are not read. `now_ms`: the time of rows without a
        timestamp.
        """
        self._range = one
        self._tp = TopicPartition(one.topic, one.partition)
        self._codec, self._now_ms = codec, now_ms
        self._gatherer = Gatherer(max_bytes)
        self._batches: list[bytes] = []
        self._offsets = array("q")

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows after those added before. Raises ClusterError (ROW_INVALID)."""
        if not rows.num_rows:
            return
        columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
        self._check(columns)
        table = table_of_columns(columns, rows.num_rows, self._now_ms, least_ms=UNTIMED_MS)
        self._encode(self._gatherer.add(self._tp, Rows.of(table)))

    def answer(self) -> RangeAnswer:
        """Encode the remaining rows, and return the answer for the whole range."""
        self._encode(self._gatherer.take_all())
        return RangeAnswer(
            number=self._range.number,
            batches=tuple(self._batches),
            offsets=self._offsets.tobytes(),
            end=self._range.end,
        )

    def _encode(self, cuts: Cuts) -> None:
        for rows in cuts.get(self._tp, ()):
            batch = encode_rows(rows, codec=self._codec).data
            rewrite_header(memoryview(batch), producer_id=-1, producer_epoch=-1, base_sequence=-1)
            self._batches.append(bytes(batch))

    def _check(self, columns: dict[str, Any]) -> None:
        """Note the offsets of rows. Raises ClusterError if they are not those of a row-by-row
        transform of the range.
        """
        if columns[TOPIC].unique().to_pylist() != [self._tp.topic]:
            raise _refused("the transform changes topics, which mirrors do not support")
        if columns[PARTITION].unique().to_pylist() != [self._tp.partition]:
            raise _refused("the transform changes the column partition")
        before = self._offsets[-1] if self._offsets else self._range.first - 1
        offsets = columns[OFFSET]
        found = array("q") if offsets.null_count else numbers_of(offsets)
        is_rising = pc.all(pc.less(offsets[:-1], offsets[1:])).as_py() is not False
        if not found or not is_rising or found[0] <= before or found[-1] >= self._range.end:
            raise _refused("the transform returns rows of other records, twice, or in other order")
        self._offsets.extend(found)


def _refused(what: str) -> ClusterError:
    return ClusterError(f"{what}: it must keep partition and offset", code="ROW_INVALID")
