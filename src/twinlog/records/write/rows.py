"""Converts Arrow columns to records of partitions, without an object for each row.

Each column is split into bytes, starts and sizes. One kernel combines them to a table of records,
another one assigns partitions by key as Java's producer does. Rows that a broker would reject or
misinterpret raise ROW_INVALID here.

A row without a timestamp gets the start time of the write or micro-batch, so that a task that runs
again writes the same rows (`appending`).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import sub
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.config.values.nearest import suggestion
from twinlog.errors import ClusterError, ConfigError
from twinlog.model import TopicPartition
from twinlog.records.columns import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
)
from twinlog.records.decoding import number_array
from twinlog.records.given import TOPIC_MISSING, missing_topic_error
from twinlog.records.write import packing
from twinlog.records.write.packing import UNTIMED_MS, PackedBatch
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Strings, Table
from twinlog.wire.records import Rows

log = logging.getLogger(__name__)

_BYTES: Final = ("string", "binary")
TYPES: Final = {
    KEY: _BYTES,
    VALUE: _BYTES,
    TOPIC: ("string",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}
"""Columns that are written, and Spark's names of the types that they may have."""
OF_READING: Final = (OFFSET, TIMESTAMP_TYPE)
"""Columns that a DataFrame read from Kafka also has, and that are not written."""


def check_schema(schema: StructType, *, has_topic: bool) -> tuple[str, ...]:
    """Return the columns that are not written, and that need a warning. Raises ConfigError."""
    columns = {field.name: field.dataType.simpleString() for field in schema}
    is_packed = packing.is_packed(columns)
    of_batches = packing.column_types(has_topic=has_topic)
    if is_packed and has_topic == (TOPIC in columns):
        here, before = ("the", "without it") if has_topic else ("no", "with it")
        raise _wrong_error(
            f"the writer has {here} option topic, but `partitioned` was called {before}",
            "give both the same options",
        )
    added = columns.keys() & (TYPES.keys() - of_batches.keys())
    if is_packed and (added or of_batches.keys() - columns.keys()):
        raise _wrong_error(
            "columns were added to the result of `partitioned`, or removed from it",
            "change rows before `partitioned`, which must be the last step",
        )
    types = {name: (kind,) for name, kind in of_batches.items()} if is_packed else TYPES
    for name, kinds in types.items():
        if name in columns and columns[name] not in kinds:
            raise _wrong_error(
                f"column {name} is {columns[name]}, not {' or '.join(kinds)}", "cast it"
            )
    others = [name for name in columns if name not in types]
    if VALUE not in columns and not is_packed:
        hint = suggestion(VALUE, others) if others else ""
        todo = "alias one, as string or binary"
        raise _wrong_error("there is no column value", hint or todo)
    if not has_topic and TOPIC not in columns:
        raise _wrong_error("there is no topic", "give the option topic, or a column topic")
    return tuple(name for name in others if name not in OF_READING)


def warn_of_others(columns: Sequence[str]) -> None:
    """Warn about columns that records do not have."""
    if columns:
        log.warning("columns that Kafka records do not have are ignored: %s", ", ".join(columns))


class RowPartitioner:
    """Makes records of one task's rows, and assigns their partitions."""

    def __init__(
        self,
        topic: str,
        counts: Callable[[str], int],
        *,
        now_ms: int,
        turn: int | None,
    ) -> None:
        """`counts` returns a topic's partition count (`counter`). `turn` is the partition of all
        rows that have neither a partition nor a key. If it is None, such rows are partitioned by
        content, so that the result is the same in every run of a task, for any order of the rows.
        """
        self._topic, self._counts, self._now_ms, self._turn = topic, counts, now_ms, turn
        self.oldest_ms: dict[str, int] = {}
        """The oldest timestamp by topic, of rows with a column `timestamp`."""

    def by_partition(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[TopicPartition, Rows | PackedBatch]]:
        """Yield (partition, rows) or (partition, packed batch). Raises TwinlogError."""
        columns: Mapping[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        if packing.is_packed(batch.schema.names):
            yield from self._unpack_batches(columns)
        else:
            yield from self.rows_by_partition(columns, batch.num_rows)

    def rows_by_partition(
        self, columns: Mapping[str, Any], count: int
    ) -> Iterator[tuple[TopicPartition, Rows]]:
        """Yield (partition, its rows in order). Raises TwinlogError."""
        table = table_of_columns(columns, count, self._now_ms)
        for topic, rows in self._by_topic(columns.get(TOPIC), count):
            if TIMESTAMP in columns:
                times = table.column(shapes.TIMESTAMP)
                self._note_age(topic, min(times[row] for row in rows))
            for partition, picked in self._by_partition(topic, columns, table, rows):
                yield TopicPartition(topic, partition), Rows([(table, picked)])

    def _unpack_batches(
        self, columns: Mapping[str, Any]
    ) -> Iterator[tuple[TopicPartition, Rows | PackedBatch]]:
        names = packing.column_types(has_topic=bool(self._topic))
        for cells in zip(*(columns[name] for name in names), strict=True):
            partition, least_ms = cells[0].as_py(), cells[2].as_py()
            topic = self._topic or cells[3].as_py()
            _check_partition(topic, partition, self._counts(topic))
            batch = PackedBatch(memoryview(cells[1].as_buffer()), least_ms)
            timed = batch.with_timestamps(self._now_ms)
            if batch.most_ms != UNTIMED_MS:
                oldest_ms = timed.measure()[1] if isinstance(timed, Rows) else least_ms
                self._note_age(topic, oldest_ms)
            yield TopicPartition(topic, partition), timed

    def _note_age(self, topic: str, oldest_ms: int) -> None:
        self.oldest_ms[topic] = min(oldest_ms, self.oldest_ms.get(topic, oldest_ms))

    def _by_topic(self, column: Any, count: int) -> list[tuple[str, array[int]]]:
        if self._topic:
            return [(self._topic, array("q", range(count)))] if count else []
        if column.null_count:
            raise invalid_error(f"{column.null_count} rows have no topic")
        return list(_grouped(column, array("q", range(count)))[0].items())

    def _by_partition(
        self, topic: str, columns: Mapping[str, Any], table: Table, rows: array[int]
    ) -> list[tuple[int, array[int]]]:
        count = self._counts(topic)
        numbers: dict[int, list[array[int]]] = {}
        if PARTITION in columns:
            named, rows = _named(columns[PARTITION], rows, table.rows)
            for partition, picked in named.items():
                _check_partition(topic, partition, count)
                numbers[partition] = [picked]
        keyed, rest = _by_key(columns.get(KEY), rows)
        shares = [*enumerate(CHOSEN.kernels.partition(table, keyed, count))]
        if rest and self._turn is not None:
            shares.append((self._turn % count, rest))
        elif rest:
            shares += enumerate(CHOSEN.kernels.partition(_keyed_by_content(table), rest, count))
        for partition, picked in shares:
            if picked:
                numbers.setdefault(partition, []).append(picked)
        return [(partition, _in_row_order(arrays)) for partition, arrays in numbers.items()]


def counter(client: ClusterClient) -> Callable[[str], int]:
    """Return a function from topics to partition counts, which queries each topic once."""
    return cache(partial(partitions_of, client))


def partitions_of(client: ClusterClient, topic: str) -> int:
    """Return a topic's partition count. Raises TwinlogError if the topic does not exist or is not
    visible.
    """
    try:
        metadata = client.metadata([topic], allow_missing=False)
    except ClusterError as error:
        if error.code != TOPIC_MISSING:
            raise
        todo = "create a new topic with its partitions and configs first"
        raise missing_topic_error(
            client, [topic], error, f"A write does not create topics, so {todo}"
        ) from None
    return len(metadata.topics[topic].partitions)


def table_of_columns(
    columns: Mapping[str, Any], count: int, now_ms: int, *, least_ms: int = 0
) -> Table:
    """Return all rows as records. Raises ClusterError (ROW_INVALID). `least_ms`: the lowest
    timestamp that is valid.
    """
    none = Strings(b"", array("q", bytes(8 * count)), array("q", [-1]) * count)
    key = strings_of(columns[KEY]) if KEY in columns else none
    headers = _headers(columns[HEADERS]) if HEADERS in columns else none
    times = array("q", [now_ms]) * count
    if TIMESTAMP in columns:
        times = _times(columns[TIMESTAMP], now_ms, least_ms)
    return CHOSEN.kernels.pack(key, strings_of(columns[VALUE]), headers, times)


def strings_of(column: Any) -> Strings:
    """Return a column of text or bytes in the form that kernels need."""
    column = column.cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(column), _scalar(-1, pa.int32()))
    _, ends, data = column.buffers()
    starts = pa.Array.from_buffers(pa.int32(), len(column), [None, ends], offset=column.offset)
    return Strings(data.to_pybytes() if data else b"", numbers_of(starts), numbers_of(sizes))


def numbers_of(column: Any) -> array[int]:
    """Return the numbers of an Arrow column, which must not have nulls."""
    out = array("q")
    numbers = column.cast(pa.int64())
    if len(numbers):
        out.frombytes(memoryview(numbers.buffers()[1])[8 * numbers.offset :][: 8 * len(numbers)])
    return out


def _scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    """Return an Arrow scalar. `pa.scalar`, also inside of `pyarrow.compute`, would load pandas, and
    each worker would need half a second and 30 MB for it.
    """
    return number_array(array("q", [number]), pa.int64()).cast(kind)[0]


def _times(column: Any, now_ms: int, least_ms: int) -> array[int]:
    known = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    if known.null_count < len(known) and pc.min(known).as_py() < 1000 * least_ms:
        raise invalid_error("rows have timestamps before 1970, which Kafka does not accept")
    milliseconds = pc.divide(known, _scalar(1000, pa.int64()))
    return numbers_of(pc.fill_null(milliseconds, _scalar(now_ms, pa.int64())))


def _headers(column: Any) -> Strings:
    counts = numbers_of(pc.fill_null(pc.list_value_length(column), _scalar(0, pa.int32())))
    headers = pc.list_flatten(column)
    key, value = (pc.struct_field(headers, name) for name in ("key", "value"))
    if key.null_count:
        raise invalid_error("rows have headers without a key")
    return CHOSEN.kernels.pack_headers(counts, strings_of(key), strings_of(value))


def _named(column: Any, rows: array[int], count: int) -> tuple[dict[int, array[int]], array[int]]:
    """Return (row numbers by the partition that the rows name, numbers of rows that name none)."""
    if not column.null_count and len(rows) == count:
        bounds = pc.min_max(column).as_py()
        # all rows have the same partition, as returned by `partitioned`
        if bounds["min"] == bounds["max"]:
            return {bounds["min"]: rows}, array("q")
    return _grouped(column, rows)


def _grouped(column: Any, rows: array[int]) -> tuple[dict[Any, array[int]], array[int]]:
    """Return (row numbers by the column's value, numbers of rows with NULL), each in order."""
    indices = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # the column's own dictionary may be in any order
    numbers = column.take(indices).dictionary_encode()
    order = pc.array_sort_indices(numbers.indices)  # the sort is stable, with nulls last
    rows = numbers_of(indices.take(order))
    # dictionary numbers are 0, 1, .. in order of first occurrence
    counts = pc.value_counts(numbers.indices.drop_null()).field("counts").to_pylist()
    groups: dict[Any, array[int]] = {}
    at = 0
    for value, count in zip(numbers.dictionary.to_pylist(), counts, strict=True):
        groups[value] = rows[at : at + count]
        at += count
    return groups, rows[at:]


def _by_key(column: Any, rows: array[int]) -> tuple[array[int], array[int]]:
    if column is None:
        return array("q"), rows
    if not column.null_count:
        return rows, array("q")
    known = _grouped(column.is_valid(), rows)[0]
    return known.get(True, array("q")), known.get(False, array("q"))


def _keyed_by_content(table: Table) -> Table:
    """Return a table in which the key of each record is the whole record without its timestamp."""
    cells, stride, rows = array("q", table.cells), table.stride, table.rows
    rests, ends = table.column(shapes.REST), table.column(shapes.END)
    key, size = shapes.KEY * stride, shapes.KEY_SIZE * stride
    cells[key : key + rows] = array("q", rests)
    cells[size : size + rows] = array("q", map(sub, ends, rests))
    return Table(table.data, cells, stride, rows)


def _check_partition(topic: str, partition: int | None, count: int) -> None:
    if partition is None or not 0 <= partition < count:
        raise invalid_error(f"rows have partition {partition}, but {topic} has {count} partitions")


def _in_row_order(parts: Sequence[array[int]]) -> array[int]:
    if len(parts) == 1:
        return parts[0]
    return array("q", sorted(row for part in parts for row in part))


def _wrong_error(what: str, todo: str) -> ConfigError:
    return ConfigError(f'format("twinlog"), writing: {what}; {todo}')


def invalid_error(what: str) -> ClusterError:
    """Return the error for rows that cannot be written as records."""
    return ClusterError(
        f'format("twinlog"), writing: {what}: filter or convert these rows; nothing was committed',
        code="ROW_INVALID",
    )
