"""What a Spark task is given, and how it reads; the same for batches and streams.

Options travel as they were written. So each task reads the key files anew: one that was renewed is
used by the next micro-batch, and the files must be on every executor, as for Spark's own source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.model import TopicPartition
from twinlog.records.columns import check_columns
from twinlog.records.gaps import LogBounds, OffsetRange, find_loss, report, what_is_left
from twinlog.records.log_reader import RangeReader
from twinlog.records.options import ReadOptions


class RangePartition(InputPartition):
    """An offset range as Spark wants to have it."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__((wanted.tp.topic, wanted.tp.partition, wanted.first, wanted.end))

    @property
    def range(self) -> OffsetRange:
        topic, partition, first, end = self.value
        return OffsetRange(tp=TopicPartition(topic, partition), first=first, end=end)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Which columns are asked for. Raises ConfigError for others than ours."""
    return check_columns([(field.name, field.dataType.simpleString()) for field in schema])


def read_partition(
    options: ReadOptions, columns: Sequence[str], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    if not isinstance(partition, RangePartition):
        return  # there is nothing to read, for which Spark makes one task
    with ClusterClient(options.cluster()) as client:
        yield from RangeReader(
            client,
            partition.range,
            columns,
            isolation=options.isolation,
            fails_on_data_loss=options.fails_on_data_loss,
        ).read()


def present(
    wanted: Sequence[OffsetRange], bounds: dict[TopicPartition, LogBounds], *, fails: bool
) -> list[OffsetRange]:
    """What the logs have of these ranges; the rest is raised or said, by `failOnDataLoss`."""
    for one in wanted:
        report(find_loss(one, bounds[one.tp]), fails=fails)
    return [what_is_left(one, bounds[one.tp]) for one in wanted]
