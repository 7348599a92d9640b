"""Defines what a Spark task gets and how it reads, for batches and streams.

A reader is pickled to executors as a `TaskReader`, so that new workers there do not load the code
for planning.

Options are sent as they were written. So each task reads the key files again: a renewed key is used
by the next micro-batch, and the files must be on every executor, as for Spark's own source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from twinlog.config.values.origin import ClientProperties
from twinlog.mirror.map.origins import Origin, Origins
from twinlog.model import Isolation, TopicPartition
from twinlog.records.columns import UPSTREAM
from twinlog.records.connections import connected, task_begins
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.gaps import OffsetRange
from twinlog.records.given import READER, settings_of
from twinlog.records.log_reader import RangeReader

if TYPE_CHECKING:
    from twinlog.records.options import ReadOptions
    from twinlog.records.upstreams import UpstreamMaps


class RangesPartition(InputPartition):
    """The offset ranges of one task, in Spark's form, and the origins of the copies in each."""

    def __init__(
        self, ranges: Sequence[OffsetRange], origins: Sequence[Sequence[Origin]] | None = None
    ) -> None:
        every_origin = [()] * len(ranges) if origins is None else origins
        super().__init__(
            tuple(
                (span.tp.topic, span.tp.partition, span.first, span.end, tuple(range_origins))
                for span, range_origins in zip(ranges, every_origin, strict=True)
            )
        )

    def parts(self) -> Iterator[tuple[OffsetRange, Origins]]:
        """Yield each range with its origins, in order."""
        for topic, partition, first, end, origins in self.value:
            tp = TopicPartition(topic, partition)
            yield OffsetRange(tp=tp, first=first, end=end), Origins(origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReader:
    """The part of a reader that tasks need. Its repr hides secrets."""

    properties: ClientProperties
    columns: tuple[str, ...]
    isolation: Isolation
    fails_on_data_loss: bool

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task_begins()
        if not isinstance(partition, RangesPartition):
            return  # Spark runs one task even if there is nothing to read
        with connected(settings_of(self.properties, READER)) as client:
            for wanted, origins in partition.parts():
                yield from RangeReader(
                    client,
                    wanted,
                    ColumnDecoder(wanted.tp, self.columns, origins=origins),
                    isolation=self.isolation,
                    fails_on_data_loss=self.fails_on_data_loss,
                ).read()


class PlanningReader:
    """Base of the batch and stream readers, which pickle as a `TaskReader`."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task_reader()().read(partition)

    def __reduce__(self) -> tuple[partial[TaskReader], tuple[()]]:
        return self._task_reader(), ()

    def _tasks(
        self, groups: Sequence[Sequence[OffsetRange]], upstreams: Callable[[], UpstreamMaps]
    ) -> list[InputPartition]:
        if UPSTREAM not in self._columns:
            return [RangesPartition(group) for group in groups]
        origins = iter(upstreams().of([span for group in groups for span in group]))
        return [RangesPartition(group, [next(origins) for _ in group]) for group in groups]

    def _task_reader(self) -> partial[TaskReader]:
        return partial(
            TaskReader,
            properties=self._options.properties,
            columns=self._columns,
            isolation=self._options.isolation,
            fails_on_data_loss=self._options.fails_on_data_loss,
        )
