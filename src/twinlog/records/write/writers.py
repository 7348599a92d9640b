"""Spark's classes for writing.

To commit a stream's micro-batch, Spark makes a new writer from a copy of the source. The copy must
not begin a transaction, because the original source has begun it (`source`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from twinlog.errors import ConfigError, EnvironmentMissing
from twinlog.records.connections import connected, task_begins
from twinlog.records.spark_api import DataSourceStreamArrowWriter
from twinlog.records.write import transaction
from twinlog.records.write.appending import Appender
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.packing import partition_count
from twinlog.records.write.rows import RowPartitioner, check_schema, counter, warn_of_others
from twinlog.records.write.transaction import BegunTransaction, TaskResult, transactions

log = logging.getLogger(__name__)


def begin_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> BegunTransaction:
    """Check the schema, and begin a transaction. Raises TwinlogError."""
    if overwrite:
        raise ConfigError(
            'format("twinlog"), writing: rows can only be appended to a topic: use mode("append")'
        )
    warn_of_others(check_schema(schema, has_topic=bool(options.topic)))
    return transaction.begin(options, partition_count(schema))


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`. One object writes in tasks and, as a pickled copy, commits."""

    def __init__(self, options: WriteOptions, begun: BegunTransaction) -> None:
        self._options, self._begun = options, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._begun, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction.commit(self._options, _task_results(messages), 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction.abort(self._options, self._begun.identity)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`. One object writes in tasks, and another object commits."""

    def __init__(self, options: WriteOptions, begun: BegunTransaction | None) -> None:
        self._options, self._begun = options, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert self._begun is not None, "only the one that has begun is sent to tasks"  # noqa: S101
        return write_rows(self._options, self._begun, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        transaction.commit(self._options, _task_results(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Roll back the failed run, whose producer ID and epoch only its tasks know. If no task has
        succeeded, nothing is rolled back, because an open transaction may belong to a newer run.
        The next transaction of the query, or the time-out, then rolls it back.
        """
        written = _task_results(messages)
        if written:
            transaction.abort(self._options, written[0].identity)
        else:
            log.info("micro-batch %d failed in all of its tasks: nothing is rolled back", batchId)


def _task_results(messages: list[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the messages of successful tasks, which are all tasks if Spark commits."""
    return [message for message in messages if isinstance(message, TaskResult)]


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""QUERY_ID and BATCH_ID are local properties of a task that Spark's own sinks also read. The query
ID is that of the checkpoint.
"""


def write_rows(
    options: WriteOptions, begun: BegunTransaction, batches: Iterator[pa.RecordBatch]
) -> TaskResult:
    """Write the rows of a task. Raises TwinlogError, after which Spark may run the task again."""
    task_begins()
    context = TaskContext.get()
    query, turn = options.write_id, 0
    if context is not None:
        query = query or context.getLocalProperty(QUERY_ID) or ""
        turn = context.partitionId() + int(context.getLocalProperty(BATCH_ID) or 0)
    if not query:
        raise EnvironmentMissing(
            f"this version of Spark does not pass the query ID ({QUERY_ID}) to tasks. Use Spark "
            "4.1 to 4.3"
        )
    with connected(options.cluster()) as client:
        joined = transactions(client, options, query, begun.identity)
        partitioner = RowPartitioner(options.topic, counter(client), now_ms=begun.now_ms, turn=turn)
        appender = Appender(client, joined, options.codec, options.max_bytes)
        for batch in batches:
            for tp, rows in partitioner.by_partition(batch):
                appender.add(tp, rows)
        return TaskResult(
            identity=begun.identity,
            query=query,
            rows=appender.finish(),
            oldest_ms=partitioner.oldest_ms,
            placed_among=begun.placed_among,
        )
