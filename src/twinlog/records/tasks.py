"""What a Spark task is given, and how it reads; the same for batches and streams.

A reader that travels to executors becomes a `TaskReader`: what plans is not loaded there, where
each new worker would wait for it.

Options travel as they were written. So each task reads the key files again: one that was renewed is
used by the next micro-batch, and the files must be on every executor, as for Spark's own source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from twinlog.config.values.origin import ClientProperties
from twinlog.mirror.map.origins import Origin, Origins
from twinlog.model import Isolation, TopicPartition
from twinlog.records.connections import connected, task_begins
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.gaps import OffsetRange
from twinlog.records.given import READER, settings_of
from twinlog.records.log_reader import RangeReader

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReader:
    """The part of a reader that tasks need. Its repr hides secrets."""

    properties: ClientProperties
    columns: tuple[str, ...]
    isolation: Isolation
    fails_on_data_loss: bool

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        task_begins()
        if not isinstance(partition, RangePartition):
            return  # there is nothing to read, for which Spark makes one task
        with connected(settings_of(self.properties, READER)) as client:
            yield from RangeReader(
                client,
                partition.range,
                ColumnDecoder(partition.range.tp, self.columns, origins=partition.origins),
                isolation=self.isolation,
                fails_on_data_loss=self.fails_on_data_loss,
            ).read()


class PlanningReader:
    """What readers of batches and streams have in common: tasks get a `TaskReader` of them."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task_reader()().read(partition)

    def __reduce__(self) -> tuple[partial[TaskReader], tuple[()]]:
        return self._task_reader(), ()

    def _task_reader(self) -> partial[TaskReader]:
        return partial(
            TaskReader,
            properties=self._options.properties,
            columns=self._columns,
            isolation=self._options.isolation,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
