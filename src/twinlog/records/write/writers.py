"""Spark's classes for writing.

To commit a stream's micro-batch, Spark makes a new writer from a copy of the source. That copy must
not begin a transaction: only the original source does (`source`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from twinlog.errors import ConfigError
from twinlog.records.spark_api import DataSourceStreamArrowWriter
from twinlog.records.write import transaction
from twinlog.records.write.options import WriteOptions
from twinlog.records.write.packing import partition_count
from twinlog.records.write.rows import check_schema, warn_of_others
from twinlog.records.write.tasks import write_rows
from twinlog.records.write.transaction import Begun, TaskWritten

log = logging.getLogger(__name__)


def prepared(options: WriteOptions, schema: StructType, *, overwrite: bool) -> Begun:
    """Check the schema, and begin. Raises TwinlogError."""
    if overwrite:
        raise ConfigError(
            'format("twinlog"), writing: a topic can only be appended to: use mode("append")'
        )
    warn_of_others(check_schema(schema, has_topic=bool(options.topic)))
    return transaction.begin(options, partition_count(schema))


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: the same object writes and, pickled, commits."""

    def __init__(self, options: WriteOptions, begun: Begun) -> None:
        self._options, self._begun = options, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(self._options, self._begun, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction.commit(self._options, _written(messages), 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        transaction.abort(self._options, self._begun.identity)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: one object for the tasks of a micro-batch, another one to commit it."""

    def __init__(self, options: WriteOptions, begun: Begun | None) -> None:
        self._options, self._begun = options, begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert self._begun is not None, "only the one that has begun is sent to tasks"  # noqa: S101
        return write_rows(self._options, self._begun, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        transaction.commit(self._options, _written(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Roll back the failed run, which only its tasks know. If no task has succeeded, an open
        transaction may belong to a newer run. It is left alone, and is rolled back by the next
        begin, or when it times out.
        """
        written = _written(messages)
        if written:
            transaction.abort(self._options, written[0].identity)
        else:
            log.info("micro-batch %d failed in all of its tasks: nothing is rolled back", batchId)


def _written(messages: list[WriterCommitMessage | None]) -> list[TaskWritten]:
    """Return the messages of successful tasks; before a commit these are all tasks."""
    return [one for one in messages if isinstance(one, TaskWritten)]
