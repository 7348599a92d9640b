"""The task of a write, for batches and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from twinlog.errors import EnvironmentMissing
from twinlog.records.connections import connected, task_begins
from twinlog.records.write.appending import Appender
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.rows import RowPartitioner, counter
from twinlog.records.write.transaction import Begun, TaskWritten, transactions

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties that Spark's own sinks use as well. The ID is the checkpoint's."""


def write_rows(
    options: WriteOptions, begun: Begun, batches: Iterator[pa.RecordBatch]
) -> TaskWritten:
    """Write the rows of a task. Raises TwinlogError; the task may then run again."""
    task_begins()
    context = TaskContext.get()
    query, turn = options.write_id, 0
    if context is not None:
        query = query or context.getLocalProperty(QUERY_ID) or ""
        turn = context.partitionId() + int(context.getLocalProperty(BATCH_ID) or 0)
    if not query:
        raise EnvironmentMissing(
            f"Spark does not pass its tasks the query ID ({QUERY_ID}), as Spark 4.1 to 4.3 do"
        )
    with connected(options.cluster()) as client:
        joined = transactions(client, options, query, begun.identity)
        partitioner = RowPartitioner(options.topic, counter(client), now_ms=begun.now_ms, turn=turn)
        appender = Appender(client, joined, options.codec, options.max_bytes)
        for batch in batches:
            for tp, rows in partitioner.by_partition(batch):
                appender.add(tp, rows)
        return TaskWritten(
            identity=begun.identity,
            query=query,
            rows=appender.finish(),
            oldest_ms=partitioner.oldest_ms,
            placed_among=begun.placed_among,
        )
