"""`twinlog transform try`: shows the last records of a topic before and after its transforms.

The records are read once, by `format("twinlog")`, and stored in Spark's memory. If the transforms
fail for all records together, they run for each record separately, to find the failing ones. The
command writes nothing to the cluster, and uses no consumer group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from twinlog.client.export import plain_value
from twinlog.cluster.client import prompt_client
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.keys.client_keys import ISOLATION_LEVEL, is_connection_key
from twinlog.model import TopicPartition
from twinlog.records import register
from twinlog.records.columns import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from twinlog.records.gaps import LogBounds, log_bounds
from twinlog.records.options import parse_options
from twinlog.records.planning import find_partitions
from twinlog.records.source import FORMAT
from twinlog.transforms.loading import check_transform, load_chain
from twinlog.transforms.plan import COLUMNS, applied, first_line, record_columns
from twinlog.transforms.rows import Transform
from twinlog.transforms.session import local_session

_SHOWN: Final = (KEY, VALUE, HEADERS, TOPIC, TIMESTAMP)
_GROWTH: Final = 16
"""Factor by which the range of offsets to read grows if it has too few records, because of
compaction or transactions.
"""
_TRACE: Final = "Traceback (most recent call last)"
_JVM_TRACE: Final = "JVM stacktrace:"

Shown = Mapping[str, Any]
"""The columns of one row, as values that can be encoded as JSON."""


class TrialOutcome(StrEnum):
    """The effect of the transforms on a record."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FILTERED = "filtered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRecord:
    """A record before and after the transforms."""

    FIELDS = "partition offset outcome error? before after"

    partition: int
    offset: int
    before: Shown
    after: tuple[Shown, ...]
    """The resulting records. Empty if the record is filtered or fails."""
    error: str = ""

    @property
    def outcome(self) -> TrialOutcome:
        if self.error:
            return TrialOutcome.FAILED
        if not self.after:
            return TrialOutcome.FILTERED
        is_same = self.after == (self.before,)
        return TrialOutcome.UNCHANGED if is_same else TrialOutcome.CHANGED

    @property
    def changes(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of each column that changes, and its content before and after."""
        for after in self.after:
            for name, value in after.items():
                if value != self.before[name]:
                    yield name, self.before[name], value


def try_flow(
    flow: FlowConfig, source: ClusterSettings, topic: str, limit: int
) -> list[TriedRecord]:
    """Apply a flow's transforms of a topic to its last records. Raises TwinlogError."""
    configs, options = flow.transforms.of_topic(topic), reader_options(flow, topic)
    # queried before Spark starts, so that a wrong topic fails within a second
    bounds = bounds_of_topic(source, options)
    with local_session("twinlog transform try") as spark:
        for config in configs:  # a module may create UDFs, which needs a session
            check_transform(spark, config)
        register(spark)
        return try_records(load_chain(configs), last_records(spark, options, bounds, limit))


def reader_options(flow: FlowConfig, topic: str) -> dict[str, str]:
    """Return the options to read a topic of the flow's source, as the flow's consumer does."""
    consumer = flow.clients.source_consumer
    return {
        "subscribe": topic,
        "includeHeaders": "true",
        **{
            f"kafka.{key}": value
            for key, value in consumer.items()
            if is_connection_key(key) or key == ISOLATION_LEVEL
        },
    }


def bounds_of_topic(
    source: ClusterSettings, options: Mapping[str, str]
) -> Mapping[TopicPartition, LogBounds]:
    """Return the log start and end of each partition of the topic. Raises TwinlogError."""
    parsed = parse_options(options, is_stream=False)
    with prompt_client(source) as client:
        return log_bounds(client, find_partitions(client, parsed))


def last_records(
    spark: SparkSession,
    options: Mapping[str, str],
    bounds: Mapping[TopicPartition, LogBounds],
    limit: int,
) -> DataFrame:
    """Return the `limit` records of a topic with the latest timestamps. They are stored in Spark's
    memory.
    """
    longest = max((log.end - log.start for log in bounds.values()), default=0)
    window = limit
    while True:
        rows = (
            spark.read.format(FORMAT)
            .options(**options, startingOffsets=_starts(bounds, window))
            .load()
            .orderBy(F.desc(TIMESTAMP), F.desc(OFFSET))
            .limit(limit)
            .localCheckpoint()
        )
        if window >= longest or rows.count() >= limit:
            return rows
        window *= _GROWTH


def _starts(bounds: Mapping[TopicPartition, LogBounds], window: int) -> str:
    """Return the startingOffsets that select the last `window` offsets of each partition."""
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    for tp, log in bounds.items():
        starts[tp.topic][str(tp.partition)] = max(log.start, log.end - window)
    return json.dumps(starts)


def try_records(transform: Transform, rows: DataFrame) -> list[TriedRecord]:
    """Return each record with the result of the transform, or with the error if the transform fails
    for the record. Raises ConfigError if the function raises an error, or returns wrong columns.
    """
    applied(transform, rows)  # fail for wrong columns, before any record is tried
    before = {_id(row): _shown(row) for row in _collected(rows)}
    after: dict[tuple[int, int], list[Shown]] = defaultdict(list)
    errors: dict[tuple[int, int], str] = {}
    try:
        _add(after, transform, rows)
    except Exception:  # noqa: BLE001 (the user's code may raise anything)
        after.clear()
        for record_id in before:
            alone = rows.where((F.col(PARTITION) == record_id[0]) & (F.col(OFFSET) == record_id[1]))
            try:
                _add(after, transform, alone)
            except Exception as error:  # noqa: BLE001
                errors[record_id] = reason(error)
    return [
        TriedRecord(
            partition=record_id[0],
            offset=record_id[1],
            before=shown,
            after=tuple(after[record_id]),
            error=errors.get(record_id, ""),
        )
        for record_id, shown in sorted(before.items())
    ]


def _add(after: dict[tuple[int, int], list[Shown]], transform: Transform, rows: DataFrame) -> None:
    for row in _collected(applied(transform, rows)):
        after[_id(row)].append(_shown(row))


def _collected(rows: DataFrame) -> list[Row]:
    # timestamps as text, because Python supports none after the year 9999
    return record_columns(rows).withColumn(TIMESTAMP, F.col(TIMESTAMP).cast("string")).collect()


def _id(row: Row) -> tuple[int, int]:
    return row[PARTITION], row[OFFSET]


def _shown(row: Row) -> Shown:
    headers = row[HEADERS] or []
    shown = {name: row[name] for name in COLUMNS if name in _SHOWN}
    return {
        **shown,
        KEY: plain_value(_bytes(row[KEY])),
        VALUE: plain_value(_bytes(row[VALUE])),
        HEADERS: [[header["key"], plain_value(_bytes(header["value"]))] for header in headers],
    }


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def reason(error: BaseException) -> str:
    """Return the reason in an error of Spark: the last line of a Python traceback, or else the
    text's first line.
    """
    text, trace, python = str(error).partition(_TRACE)
    if not trace:
        return first_line(error)
    lines = python.partition(_JVM_TRACE)[0].rstrip().split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), text)
