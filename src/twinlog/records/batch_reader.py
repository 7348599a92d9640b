"""`spark.read.format("twinlog")`: ranges are fixed when the query is planned.

`partitions` is called once per query, and by Spark 4.1 to 4.3 once per `load()`. Later records are
after the ends and are not read, in whatever order tasks run and however often one is repeated.
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
        """Return the ranges, one per task. Raises TwinlogError."""
        try:
            return self._planned()
        except TwinlogError as error:
            # Spark would show the whole traceback, but the message is complete
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
        # ends first: records appended while the starts are looked up are not read
        ends = resolve(client, options.ending, tps, isolation)
        firsts = resolve(client, options.starting, tps, isolation)
        wanted = [OffsetRange(tp=tp, first=firsts[tp], end=ends[tp]) for tp in tps]
        # records that the filters reject may be deleted
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
    """With `pushFilters`, reads only rows that the query's filters accept.

    This is optional because Spark 4.1 to 4.3 keep the filtered DataFrame for all of its queries
    (`PythonDataSourceV2.setReadInfo`). Queries without that filter would miss rows.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Return all filters, which Spark applies to the rows again."""
        self._bounds = bounds_of(filters)
        return filters
