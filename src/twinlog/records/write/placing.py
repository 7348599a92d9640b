"""`partitioned`: each partition of a topic to one task, which is what a transaction asks for.

A broker counts the records of a producer in each partition, so only one task at a time can write
there. Spark does not let sinks that are written in Python ask how rows are distributed, so whoever
writes from several tasks calls this first.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.types import IntegerType, StructField, StructType

from twinlog.cluster.client import ClusterClient
from twinlog.errors import ConfigError
from twinlog.records.columns import KEY, PARTITION, TOPIC
from twinlog.records.write.options import parse_write_options
from twinlog.records.write.rows import partitions_of, strings_of
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.shapes import Strings


def partitioned(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """The same rows, those of each partition in one task, and a column `partition` that says which.

    `options`: those of the writer, of which it needs topic and brokers. Rows are placed by key, as
    Java's producer does; those without a key in turn; those that name a partition stay with it.
    Raises TwinlogError.
    """
    parsed = parse_write_options({"writeId": "placing", **options}, is_stream=False)
    if not parsed.topic:
        raise ConfigError(
            f'format("twinlog"), partitioned: option topic is missing; rows with a column {TOPIC} '
            f"need a column {PARTITION}, and repartitionById by it"
        )
    with ClusterClient(parsed.cluster()) as client:
        count = partitions_of(client, parsed.topic)
    names = [name for name in df.columns if name != PARTITION]
    schema = StructType([*df.select(names).schema.fields, StructField(PARTITION, IntegerType())])
    given = col(PARTITION) if PARTITION in df.columns else lit(None)
    rows = df.select(*names, given.cast("int").alias(PARTITION))
    placed_rows = rows.mapInArrow(_placing(names, count), schema)
    if hasattr(placed_rows, "repartitionById"):  # since Spark 4.1
        return placed_rows.repartitionById(count, PARTITION)
    # by its hash: a task may have several partitions, or none
    return placed_rows.repartition(count, PARTITION)


def _placing(names: list[str], count: int) -> Any:
    has_key = KEY in names

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        turn = 0 if context is None else context.partitionId()
        for batch in batches:
            *columns, given = batch.columns
            keys = columns[names.index(KEY)] if has_key else None
            where, turn = distribute(keys, given, count, turn)
            yield pa.RecordBatch.from_arrays([*columns, where], [*names, PARTITION])

    return partition


def distribute(keys: Any, given: Any, count: int, turn: int) -> tuple[Any, int]:
    """The partition of each row, and the next turn of those without a key; `keys` may be None."""
    rows = len(given)
    if given.null_count == 0:
        return given, turn
    none = Strings(b"", array("q", bytes(8 * rows)), array("q", [-1]) * rows)
    key = none if keys is None else strings_of(keys)
    table = CHOSEN.kernels.pack(key, none, none, array("q", bytes(8 * rows)))
    sizes = table.column(shapes.KEY_SIZE)
    where = array("i", bytes(4 * rows))
    keyed = array("q", (row for row in range(rows) if sizes[row] >= 0))
    for partition, picked in enumerate(CHOSEN.kernels.partition(table, keyed, count)):
        for row in picked:
            where[row] = partition
    for row in range(rows) if len(keyed) < rows else ():
        if sizes[row] < 0:
            where[row], turn = turn % count, turn + 1
    return pc.coalesce(given, pa.array(where, pa.int32())), turn
