"""`spark.read.format("twinlog")`: ranges are fixed when the query is planned.

`partitions` is called once per query. Whatever comes afterwards is behind the ends and not read, in
whatever order tasks run and however often one is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.cluster.client import ClusterClient
from twinlog.records.connections import connected
from twinlog.records.filters import RowBounds, bounds_of
from twinlog.records.gaps import OffsetRange, log_bounds
from twinlog.records.options import ReadOptions
from twinlog.records.planning import find_partitions, first_of_time, present, resolve
from twinlog.records.ranges import split
from twinlog.records.tasks import PlanningReader
from twinlog.records.upstreams import UpstreamMaps


class PushFilters:
    """What Spark calls where it passes filters to sources written in Python
    (`spark.sql.python.filterPushdown.enabled`). Where it does not, it ends each read of a reader
    that has such a method of its own (DATA_SOURCE_PUSHDOWN_DISABLED): so this looks like the one
    that every reader has, and such a session reads all, and filters then.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        self._reader.narrow(filters)
        return filters


class BatchReader(PlanningReader, DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._bounds = RowBounds()

    @property
    def pushFilters(self) -> PushFilters:
        """Narrows what is read; all filters stay with Spark, which applies them to the rows."""
        return PushFilters(self)

    def narrow(self, filters: list[datasource.Filter]) -> None:
        """No row is asked for that these do not let through."""
        self._bounds = bounds_of(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges, each a task. Raises TwinlogError."""
        with connected(self._options.cluster()) as client:
            ranges = split(self._ranges(client), self._options.min_partitions)
            return self._tasks(
                [[one] for one in ranges], lambda: UpstreamMaps(client, self._options.upstreams)
            )

    def _ranges(self, client: ClusterClient) -> list[OffsetRange]:
        options, isolation = self._options, self._options.isolation
        tps = find_partitions(client, options)
        # the ends first: what comes while the starts are looked up is not read
        ends = resolve(client, options.ending, tps, isolation)
        firsts = resolve(client, options.starting, tps, isolation)
        wanted = [OffsetRange(tp=tp, first=firsts[tp], end=ends[tp]) for tp in tps]
        # what no row is wanted of may be gone
        wanted = [self._bounds.within(one) for one in wanted if self._bounds.admit(one.tp)]
        bounds = log_bounds(client, [one.tp for one in wanted])
        found = present(wanted, bounds, fails=options.fails_on_data_loss)
        if self._bounds.least_ms is None:
            return found
        tps = [one.tp for one in found]
        times = first_of_time(client, tps, self._bounds.least_ms, isolation)
        return [self._bounds.within(one, times[one.tp]) for one in found]
