"""What a Spark task is given, and how it reads; the same for batches and streams.

Options travel as they were written. So each task reads the key files again: one that was renewed is
used by the next micro-batch, and the files must be on every executor, as for Spark's own source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from twinlog.cluster.client import ClusterClient
from twinlog.mirror.map.origins import Origin, Origins
from twinlog.model import TopicPartition
from twinlog.records.bounds import wrong
from twinlog.records.columns import UPSTREAM, check_columns
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.gaps import LogBounds, OffsetRange, find_loss, report, what_is_left
from twinlog.records.log_reader import RangeReader
from twinlog.records.options import ReadOptions


class RangePartition(InputPartition):
    """An offset range as Spark wants to have it, and whose copies lie in it."""

    def __init__(self, wanted: OffsetRange, origins: Sequence[Origin]) -> None:
        tp = wanted.tp
        super().__init__((tp.topic, tp.partition, wanted.first, wanted.end, tuple(origins)))

    @property
    def range(self) -> OffsetRange:
        topic, partition, first, end, _ = self.value
        return OffsetRange(tp=TopicPartition(topic, partition), first=first, end=end)

    @property
    def origins(self) -> Origins:
        return Origins(self.value[-1])


def columns_of(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Which columns are asked for. Raises ConfigError for others than ours."""
    found = check_columns([(field.name, field.dataType.simpleString()) for field in schema])
    if UPSTREAM in found and not options.upstreams:
        raise wrong(
            "upstream",
            f"it is missing, and the schema has {UPSTREAM}",
            "write the alias of the cluster that is copied, as upstream=A",
        )
    return found


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
            ColumnDecoder(partition.range.tp, columns, origins=partition.origins),
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
