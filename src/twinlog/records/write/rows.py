"""From Arrow columns to records of partitions, without an object for each row.

A column becomes bytes, starts and sizes; a kernel makes a table of records of them, another one
places keys as Java's producer does. What no broker would take, or takes for something else, is
ROW_INVALID here.

A row without a timestamp has the time when the write, or the micro-batch, began: a task that runs
again writes the same rows (`appending`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
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
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Strings, Table
from twinlog.wire.rows import Rows, encode_headers

TOPIC_MISSING: Final = "TOPIC_MISSING"
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
"""What a DataFrame that was read from Kafka has besides."""


def check_schema(schema: StructType, *, has_topic: bool) -> tuple[str, ...]:
    """The columns of these rows that are not written. Raises ConfigError."""
    given = {field.name: field.dataType.simpleString() for field in schema}
    for name, kinds in TYPES.items():
        if name in given and given[name] not in kinds:
            raise _wrong(f"column {name} is {given[name]}, not {' or '.join(kinds)}", "cast it")
    others = [name for name in given if name not in TYPES]
    if VALUE not in given:
        hint = suggestion(VALUE, others) if others else ""
        raise _wrong("there is no column value", hint or "alias one, as string or binary")
    if not has_topic and TOPIC not in given:
        raise _wrong("there is no topic", "give the option topic, or a column topic")
    return tuple(name for name in others if name not in OF_READING)


class Placer:
    """Makes records of one task's rows and says where each goes."""

    def __init__(self, client: ClusterClient, topic: str, now_ms: int, turn: int) -> None:
        """`turn`: which partition has the rows that name none, neither by key: one of a task's."""
        self._client, self._topic, self._now_ms, self._turn = client, topic, now_ms, turn
        self._partitions: dict[str, int] = {}
        self.oldest_ms: dict[str, int] = {}
        """Of each topic, by a column timestamp."""

    def by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Rows]]:
        """The rows of each partition, in order. Raises TwinlogError."""
        columns: Mapping[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        table = table_of_columns(columns, batch.num_rows, self._now_ms)
        for topic, rows in self._by_topic(columns.get(TOPIC), batch.num_rows):
            if TIMESTAMP in columns:
                times = table.column(shapes.TIMESTAMP)
                oldest = min(times[row] for row in rows)
                self.oldest_ms[topic] = min(oldest, self.oldest_ms.get(topic, oldest))
            for partition, picked in self._by_partition(topic, columns, table, rows):
                yield TopicPartition(topic, partition), Rows([(table, picked)])

    def _by_topic(self, column: Any, count: int) -> list[tuple[str, array[int]]]:
        if self._topic:
            return [(self._topic, array("q", range(count)))] if count else []
        if column.null_count:
            raise invalid(f"{column.null_count} rows have no topic")
        found: dict[str, array[int]] = {}
        for row, topic in enumerate(column.to_pylist()):
            found.setdefault(topic, array("q")).append(row)
        return list(found.items())

    def _by_partition(
        self, topic: str, columns: Mapping[str, Any], table: Table, rows: array[int]
    ) -> list[tuple[int, array[int]]]:
        count = self._count(topic)
        found: dict[int, list[array[int]]] = {}
        if PARTITION in columns:
            named, rows = _named(columns[PARTITION], rows, table.rows)
            for partition, picked in named.items():
                if not 0 <= partition < count:
                    raise invalid(f"{topic} has no partition {partition}, it has {count}")
                found[partition] = [picked]
        sizes = table.column(shapes.KEY_SIZE)
        keyed = array("q", (row for row in rows if sizes[row] >= 0))
        for partition, picked in enumerate(CHOSEN.kernels.partition(table, keyed, count)):
            if picked:
                found.setdefault(partition, []).append(picked)
        if len(keyed) < len(rows):
            rest = array("q", (row for row in rows if sizes[row] < 0))
            found.setdefault(self._turn % count, []).append(rest)
        return [(partition, _in_order(some)) for partition, some in found.items()]

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = partitions_of(self._client, topic)
        return self._partitions[topic]


def partitions_of(client: ClusterClient, topic: str) -> int:
    """How many a topic has. Raises TwinlogError where there is none, or it may not be seen."""
    try:
        metadata = client.metadata([topic], allow_missing=False)
    except ClusterError as error:
        if error.code != TOPIC_MISSING:
            raise
        raise ClusterError(
            f"cluster {client.alias}: topic {topic} is not there, and a write creates none: create "
            "it with the partitions and configs that it is to have, then write again",
            code=TOPIC_MISSING,
            fate=error.fate,
        ) from None
    return len(metadata.topics[topic].partitions)


def table_of_columns(columns: Mapping[str, Any], count: int, now_ms: int) -> Table:
    """All rows as records. Raises ClusterError, ROW_INVALID."""
    none = Strings(b"", array("q", bytes(8 * count)), array("q", [-1]) * count)
    key = strings_of(columns[KEY]) if KEY in columns else none
    headers = _headers(columns[HEADERS]) if HEADERS in columns else none
    times = array("q", [now_ms]) * count
    if TIMESTAMP in columns:
        times = _times(columns[TIMESTAMP], now_ms)
    return CHOSEN.kernels.pack(key, strings_of(columns[VALUE]), headers, times)


def strings_of(column: Any) -> Strings:
    """A column of text or bytes."""
    column = column.cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(column), -1)
    _, ends, data = column.buffers()
    starts = pa.Array.from_buffers(pa.int32(), len(column), [None, ends], offset=column.offset)
    return Strings(data.to_pybytes() if data else b"", _numbers(starts), _numbers(sizes))


def _numbers(column: Any) -> array[int]:
    out = array("q")
    numbers = column.cast(pa.int64())
    if len(numbers):
        out.frombytes(memoryview(numbers.buffers()[1])[8 * numbers.offset :][: 8 * len(numbers)])
    return out


def _times(column: Any, now_ms: int) -> array[int]:
    known = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    if known.null_count < len(known) and pc.min(known).as_py() < 0:
        raise invalid("rows have timestamps before 1970, which Kafka does not take")
    return _numbers(pc.fill_null(pc.divide(known, 1000), now_ms))


def _headers(column: Any) -> Strings:
    data, starts, sizes = bytearray(), array("q"), array("q")
    for headers in column.to_pylist():
        starts.append(len(data))
        pairs = [] if headers is None else [(one and one["key"], one) for one in headers]
        if any(key is None for key, _ in pairs):
            raise invalid("rows have headers without a key")
        if pairs:
            data += encode_headers([(key, one["value"]) for key, one in pairs])
        sizes.append(len(data) - starts[-1])
    return Strings(bytes(data), starts, sizes)


def _named(column: Any, rows: array[int], count: int) -> tuple[dict[int, array[int]], array[int]]:
    """Rows by the partition that they name, and those that name none."""
    if not column.null_count and len(rows) == count:
        bounds = pc.min_max(column).as_py()
        if bounds["min"] == bounds["max"]:  # as `partitioned` leaves them
            return {bounds["min"]: rows}, array("q")
    found: dict[int, array[int]] = {}
    rest, named = array("q"), column.to_pylist()
    for row in rows:
        partition = named[row]
        if partition is None:
            rest.append(row)
        else:
            found.setdefault(partition, array("q")).append(row)
    return found, rest


def _in_order(parts: Sequence[array[int]]) -> array[int]:
    if len(parts) == 1:
        return parts[0]
    return array("q", sorted(row for part in parts for row in part))


def _wrong(what: str, todo: str) -> ConfigError:
    return ConfigError(f'format("twinlog"), writing: {what}; {todo}')


def invalid(what: str) -> ClusterError:
    """The error for rows that cannot be records."""
    return ClusterError(
        f'format("twinlog"), writing: {what}: filter or convert them; nothing was committed',
        code="ROW_INVALID",
    )
