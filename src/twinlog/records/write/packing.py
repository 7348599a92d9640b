"""Record batches in place of rows, which Spark shuffles for `partitioned` and a writer appends.

A batch is encoded and compressed in the task that has its rows, before the shuffle. So one Spark
row is shuffled for some hundred records, and the writing task only sets the producer fields in a
header. The columns are

    partition int, record_batch binary, least_timestamp bigint

and `topic string` if there is no option `topic`.

`record_batch` is a Kafka batch (magic 2) without producer and CRC. Records without a timestamp have
the timestamp -1 until a write begins. The write replaces -1 with its own start time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from twinlog.model import TopicPartition
from twinlog.records.columns import PARTITION, TOPIC, VALUE
from twinlog.wire.kernels import shapes
from twinlog.wire.record_batch import HEADER_BYTES, Codec, read_header
from twinlog.wire.records import Part, Rows, decode_rows, decode_table, encode_rows, write_header

RECORD_BATCH: Final = "record_batch"
LEAST_TIMESTAMP: Final = "least_timestamp"
TYPES: Final = {PARTITION: "int", RECORD_BATCH: "binary", LEAST_TIMESTAMP: "bigint"}
"""Columns of record batches, and Spark's names of their types."""
PARTITION_COUNT: Final = "twinlog.placed.among"
"""Key in the metadata of the column `partition`, for the topic's partition count when its rows were
partitioned.
"""
UNTIMED_MS: Final = -1
"""Timestamp of a record that has none."""


def is_packed(columns: Collection[str]) -> bool:
    """Return True if these are columns of record batches, even if some are missing or added."""
    return RECORD_BATCH in columns and (VALUE not in columns or LEAST_TIMESTAMP in columns)


def column_types(*, has_topic: bool) -> dict[str, str]:
    """Return the columns and their types. `has_topic`: an option names the topic of all rows."""
    return TYPES if has_topic else {**TYPES, TOPIC: "string"}


def partition_count(schema: StructType) -> int:
    """Return the topic's partition count when its rows were partitioned, or 0 if it is unknown."""
    metadata = next((field.metadata for field in schema if field.name == PARTITION), None) or {}
    return int(metadata.get(PARTITION_COUNT, 0))


class PackedBatch:
    """One encoded batch. Its length is its record count, and `data` is writable."""

    __slots__ = ("_count", "codec", "data", "least_ms", "most_ms")

    def __init__(self, data: memoryview, least_ms: int) -> None:
        """`least_ms`: the least timestamp of the records. Raises CorruptData if the header is
        invalid.
        """
        self.data = bytearray(data)
        header = read_header(memoryview(self.data))
        self._count, self.codec = header.count, header.codec
        self.least_ms, self.most_ms = least_ms, header.max_timestamp

    def __len__(self) -> int:
        return self._count

    def rows(self) -> Rows:
        """Return the batch's records. Raises CorruptData."""
        return decode_rows(memoryview(self.data))

    def with_timestamps(self, now_ms: int) -> PackedBatch | Rows:
        """Return the batch, with `now_ms` where records have no timestamp. Raises CorruptData."""
        if self.least_ms != UNTIMED_MS:
            return self
        if self.most_ms == UNTIMED_MS:
            write_header(
                self.data,
                codec=self.codec,
                count=len(self),
                base_timestamp=now_ms,
                max_timestamp=now_ms,
            )
            return self
        table = decode_table(memoryview(self.data))
        begin = shapes.TIMESTAMP * table.stride
        for cell in range(begin, begin + table.rows):
            if table.cells[cell] == UNTIMED_MS:
                table.cells[cell] = now_ms
        return Rows.of(table)


def packed(
    cuts: BatchedRows, codec: Codec, binary: pa.DataType, *, has_topic: bool = True
) -> pa.RecordBatch:
    """Return the rows as encoded batches in the columns of `column_types`. `binary` is Arrow's type
    of the batches: binary or large_binary.
    """
    topics: list[str] = []
    partitions: list[int] = []
    encoded: list[bytearray] = []
    least: list[int] = []
    for tp, batches in cuts.items():
        for rows in batches:
            batch = encode_rows(rows, codec=codec)
            topics.append(tp.topic)
            partitions.append(tp.partition)
            encoded.append(batch.data)
            least.append(batch.least_timestamp)
    columns = {
        PARTITION: pa.array(partitions, pa.int32()),
        RECORD_BATCH: pa.array(encoded, binary),
        LEAST_TIMESTAMP: pa.array(least, pa.int64()),
        TOPIC: pa.array(topics, pa.large_string() if binary == pa.large_binary() else pa.string()),
    }
    names = list(column_types(has_topic=has_topic))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


HELD_BYTES: Final = 16 << 20
"""Maximum bytes of waiting rows, over all partitions."""

KEPT_BYTES: Final = 64 << 20
"""Maximum bytes of all tables with a waiting row. A row keeps its whole table in memory, including
rows of other partitions.
"""

BatchedRows = dict[TopicPartition, list[Rows]]
"""Rows for each batch, by partition."""


class Gatherer:
    """Collects the rows of each partition until they fill a batch."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: maximum size of a batch with its header, uncompressed. A single row may be
        larger.
        """
        self._max_payload = max(1, max_bytes - HEADER_BYTES)
        self._waiting: dict[TopicPartition, list[Part]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._held = 0
        self._tables: dict[int, int] = {}
        """Bytes of each table with waiting rows, by table identity. Cleared when no row waits."""

    def add(self, tp: TopicPartition, rows: Rows) -> BatchedRows:
        """Append rows to a partition. Return the rows of all batches that must be encoded now,
        because they are full or too many rows wait.
        """
        size, _, _ = rows.measure()
        self._waiting.setdefault(tp, []).extend(rows.parts)
        self._sizes[tp] = self._sizes.get(tp, 0) + size
        self._held += size
        for table, _ in rows.parts:
            self._tables[id(table)] = len(table.data) + 8 * len(table.cells)
        if self._held >= HELD_BYTES or sum(self._tables.values()) >= KEPT_BYTES:
            return self.pop_all()
        return self.pop(tp) if self._sizes[tp] >= self._max_payload else {}

    def pop(self, tp: TopicPartition) -> BatchedRows:
        """Return the waiting rows of one partition."""
        if tp not in self._waiting:
            return {}
        self._held -= self._sizes.pop(tp)
        rows = Rows(self._waiting.pop(tp))
        if not self._waiting:
            self._tables.clear()
        return {tp: self._split_to_limit(rows)}

    def pop_all(self) -> BatchedRows:
        """Return all waiting rows."""
        cuts: BatchedRows = {}
        for tp in list(self._waiting):
            cuts |= self.pop(tp)
        return cuts

    def _split_to_limit(self, rows: Rows) -> list[Rows]:
        size, _, _ = rows.measure()
        if size <= self._max_payload or len(rows) == 1:
            return [rows]
        middle = len(rows) // 2
        return self._split_to_limit(rows.slice(0, middle)) + self._split_to_limit(
            rows.slice(middle, len(rows))
        )
