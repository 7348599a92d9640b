"""`spark.read.format("twinlog")`: ranges are fixed when the query is planned.

`partitions` is called once per query, and by Spark 4.1 to 4.3 once per `load()`. Whatever comes
afterwards is behind the ends and not read, in whatever order tasks run and however often one is
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.cluster.client import ClusterClient
from twinlog.errors import TwinlogError
from twinlog.records.connections import FIRST_REFUSED_S, connected
from twinlog.records.filters import RowBounds, bounds_of
from twinlog.records.gaps import OffsetRange, log_bounds
from twinlog.records.options import ReadOptions
from twinlog.records.planning import find_partitions, first_of_time, present, resolve
from twinlog.records.ranges import split
from twinlog.records.tasks import PlanningReader
from twinlog.records.upstreams import UpstreamMaps


class BatchReader(PlanningReader, DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._bounds = RowBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges, each a task. Raises TwinlogError."""
        try:
            return self._planned()
        except TwinlogError as error:
            # Spark shows the whole way to an error, and this one says all that is to be known
            raise error.with_traceback(None) from None

    def _planned(self) -> Sequence[InputPartition]:
        with connected(self._options.cluster(), refused_at_first_s=FIRST_REFUSED_S) as client:
            ranges = split(self._ranges(client), self._options.min_partitions)
            return self._tasks(
                [[one] for one in ranges], lambda: UpstreamMaps(client, self._options.upstreams)
            )

    def _ranges(self, client: ClusterClient) -> list[OffsetRange]:
        options, isolation = self._options, self._options.isolation
        tps = list(find_partitions(client, options))
        # the ends first: what comes while the starts are looked up is not read
        ends = resolve(client, options.ending, tps, isolation)
        firsts = resolve(client, options.starting, tps, isolation)
        wanted = [OffsetRange(tp=tp, first=firsts[tp], end=ends[tp]) for tp in tps]
        # what no row is wanted of may be gone
        wanted = [self._bounds.within(one) for one in wanted if self._bounds.admit(one.tp)]
        fails = options.fails_on_data_loss
        bounds = log_bounds(client, [one.tp for one in wanted], may_miss=not fails)
        found = present(wanted, bounds, fails=fails)
        if self._bounds.least_ms is None:
            return found
        tps = [one.tp for one in found]
        times = first_of_time(client, tps, self._bounds.least_ms, isolation)
        return [self._bounds.within(one, times[one.tp]) for one in found]


class FilteringReader(BatchReader):
    """With `pushFilters`: reads no row that the filters of its query do not let through.

    Not without being asked: Spark 4.1 to 4.3 keep what a filter has left of a DataFrame for all
    queries of it, also those without that filter (`PythonDataSourceV2.setReadInfo`), which would
    miss rows.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """All filters stay with Spark, which applies them to the rows."""
        self._bounds = bounds_of(filters)
        return filters
