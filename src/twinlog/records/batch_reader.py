"""`spark.read.format("twinlog")`: offset ranges are fixed when the query is planned.

`partitions` is called once per query, and by Spark 4.1 to 4.3 once per `load()`. Records that are
appended later are not read, in whatever order tasks run and however often a task is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinlog.cluster.client import ClusterClient
from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition
from twinlog.records.bounds import Bound, BoundKind
from twinlog.records.connections import FIRST_REFUSED_S, connected
from twinlog.records.gaps import OffsetRange, log_bounds
from twinlog.records.options import ReadOptions
from twinlog.records.planning import existing_parts, find_partitions, resolve, split
from twinlog.records.tasks import PlanningReader
from twinlog.records.upstreams import UpstreamMaps


class BatchReader(PlanningReader, DataSourceReader):
    """Reader of `spark.read`, which plans on the driver and reads in tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._bounds = RowBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the offset ranges to read, one per task. Raises TwinlogError."""
        try:
            with connected(self._options.cluster(), refused_at_first_s=FIRST_REFUSED_S) as client:
                ranges = split(self._ranges(client), self._options.min_partitions)
                return self._tasks(
                    [[span] for span in ranges],
                    lambda: UpstreamMaps(client, self._options.upstreams),
                )
        except TwinlogError as error:
            # Spark would show the traceback, which adds nothing to the message
            raise error.with_traceback(None) from None

    def _ranges(self, client: ClusterClient) -> list[OffsetRange]:
        options, isolation = self._options, self._options.isolation
        tps = list(find_partitions(client, options))
        # ends first, so that records appended while starts are looked up are not read
        ends = resolve(client, options.ending, tps, isolation)
        firsts = resolve(client, options.starting, tps, isolation)
        wanted = [OffsetRange(tp=tp, first=firsts[tp], end=ends[tp]) for tp in tps]
        # filters apply first, because deleted records are no loss if the filters reject them
        wanted = [self._bounds.within(span) for span in wanted if self._bounds.admit(span.tp)]
        fails = options.fails_on_data_loss
        bounds = log_bounds(client, [span.tp for span in wanted], may_miss=not fails)
        ranges = existing_parts(wanted, bounds, fails=fails)
        if self._bounds.least_ms is None:
            return ranges
        tps = [span.tp for span in ranges]
        since = Bound(kind=BoundKind.TIMES, option="timestamp", time_ms=self._bounds.least_ms)
        times = resolve(client, since, tps, isolation)
        return [self._bounds.within(span, times[span.tp]) for span in ranges]


class FilteringReader(BatchReader):
    """With `pushFilters`, reads only rows that the query's filters accept.

    This is optional because of Spark 4.1 to 4.3 (`PythonDataSourceV2.setReadInfo`). These releases
    use the filtered read for all queries of a DataFrame, so queries without the filter would miss
    rows.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Use these filters to read fewer records. Return all of them, so that Spark also applies
        them to the rows.
        """
        self._bounds = bounds_of(filters)
        return filters


# Bounds of topic, partition, offset and timestamp, derived from a query's filters to read less. The
# bounds leave out only rows that the filters certainly reject, and Spark applies all filters to the
# rows again. So a filter that is not understood here costs time but never a row. For timestamps
# only the lower bound is used. Brokers return the first offset with a timestamp at or after a time,
# and all records before this offset are older. After the first record that is too new there may be
# older records, so an upper bound cannot be used.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """Bounds of the wanted rows; offsets are inclusive."""

    conditions: tuple[Callable[[TopicPartition], bool], ...] = ()
    """Conditions that all partitions with wanted rows meet."""
    first_offset: int = 0
    last_offset: int = _MOST
    least_ms: int | None = None

    def admit(self, tp: TopicPartition) -> bool:
        """Return True if a partition can have wanted rows."""
        return all(meets(tp) for meets in self.conditions)

    def and_only(self, condition: Callable[[TopicPartition], bool]) -> RowBounds:
        """Return these bounds with a condition of wanted partitions added."""
        return replace(self, conditions=(*self.conditions, condition))

    def within(self, requested: OffsetRange, first_of_time: int | None = None) -> OffsetRange:
        """Return the part of a range that can have wanted rows."""
        first = min(max(self.first_offset, first_of_time or 0), requested.end)
        end = min(requested.end, self.last_offset + 1)
        # a range that begins after its end is kept, because its records may be lost
        return OffsetRange(tp=requested.tp, first=max(requested.first, first), end=end)


def bounds_of(filters: Iterable[datasource.Filter]) -> RowBounds:
    bounds = RowBounds()
    for condition in filters:
        bounds = _narrow(bounds, condition)
    return bounds


def _narrow(bounds: RowBounds, condition: Any) -> RowBounds:
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1:
        return bounds
    match attribute[0]:
        case "topic":
            return _by_topic(bounds, condition)
        case "partition":
            return _by_partition(bounds, condition)
        case "offset":
            return _by_offset(bounds, condition)
        case "timestamp":
            return _by_time(bounds, condition)
    return bounds


def _by_topic(bounds: RowBounds, condition: Any) -> RowBounds:
    if isinstance(condition, datasource.StringStartsWith):
        return bounds.and_only(lambda tp: tp.topic.startswith(condition.value))
    values = _values(condition, str)
    return bounds if values is None else bounds.and_only(lambda tp: tp.topic in values)


def _by_partition(bounds: RowBounds, condition: Any) -> RowBounds:
    values = _values(condition, int)
    if values is not None:
        return bounds.and_only(lambda tp: tp.partition in values)
    least, most = _span(condition)
    return bounds.and_only(lambda tp: least <= tp.partition <= most)


def _by_offset(bounds: RowBounds, condition: Any) -> RowBounds:
    values = _values(condition, int)
    if values is not None:
        first, last = (min(values), max(values)) if values else (_MOST, -1)
    else:
        first, last = _span(condition)
    return replace(
        bounds,
        first_offset=max(bounds.first_offset, first),
        last_offset=min(bounds.last_offset, last),
    )


def _by_time(bounds: RowBounds, condition: Any) -> RowBounds:
    if isinstance(condition, datasource.In):
        times = list(condition.value)
    elif isinstance(
        condition,
        datasource.EqualTo
        | datasource.EqualNullSafe
        | datasource.GreaterThan
        | datasource.GreaterThanOrEqual,
    ):
        times = [condition.value]
    else:
        return bounds
    if not times or not all(isinstance(at, datetime) and at.tzinfo is not None for at in times):
        return bounds
    # rounded down to milliseconds, because brokers compare milliseconds
    least = min((at - _EPOCH) // timedelta(milliseconds=1) for at in times)
    if least < 0:
        return bounds  # no bound, because records without a timestamp have -1
    return replace(bounds, least_ms=max(least, bounds.least_ms or 0))


def _values(condition: Any, kind: type) -> frozenset[Any] | None:
    """Return the values of an = or IN filter, or None for another filter or type of value."""
    if isinstance(condition, datasource.EqualTo | datasource.EqualNullSafe):
        values = [condition.value]
    elif isinstance(condition, datasource.In):
        values = list(condition.value)
    else:
        return None
    values = [value for value in values if value is not None]  # NULL is equal to nothing
    return frozenset(values) if all(type(value) is kind for value in values) else None


def _span(condition: Any) -> tuple[int, int]:
    value = getattr(condition, "value", None)
    if type(value) is not int:
        return 0, _MOST
    match condition:
        case datasource.GreaterThan():
            return value + 1, _MOST
        case datasource.GreaterThanOrEqual():
            return value, _MOST
        case datasource.LessThan():
            return 0, value - 1
        case datasource.LessThanOrEqual():
            return 0, value
    return 0, _MOST
