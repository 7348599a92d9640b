"""`partitioned`: puts each partition of a topic into one task, as a transaction requires.

Brokers check the sequence numbers of a producer in each partition, so only one task at a time can
write to a partition. Spark does not let sinks in Python request a distribution, so a query that
writes from several tasks calls this function last. Rows become record batches before they are
shuffled (`packing`).

`keeps_partitions` recognises DataFrames whose tasks already have whole partitions, so that their
rows are not shuffled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from twinlog.cluster.client import ClusterClient
from twinlog.errors import ConfigError
from twinlog.records.columns import PARTITION, TOPIC, VALUE
from twinlog.records.connections import FIRST_REFUSED_S, connected, task_begins
from twinlog.records.write import packing
from twinlog.records.write.options import WriteOptions, parse_write_options
from twinlog.records.write.packing import Gatherer
from twinlog.records.write.rows import (
    TYPES,
    RowPartitioner,
    check_schema,
    counter,
    partitions_of,
    warn_of_others,
)

NARROW_OPERATORS: Final = frozenset({"Project", "Filter", "SubqueryAlias", "View"})
"""Operators of a plan that do not move a row to another task."""
SOURCES: Final = {"DataSourceV2Relation": "options", "StreamingRelationV2": "extraOptions"}
"""Leaves of a plan, for batches and streams, and the method that returns a reader's options."""


def keeps_partitions(df: DataFrame, topic: str) -> bool:
    """Return True if rows keep the partition from which `format("twinlog")` read them. A task reads
    whole partitions, unless `minPartitions` splits them, for which the result is False.

    `topic`: the topic of all rows, if an option names it. The rows must then be read from one
    topic. Returns False if the plan is unknown, as over Spark Connect.
    """
    dataframe: Any = getattr(df, "_jdf", None)
    if dataframe is None:
        return False
    try:
        plan = dataframe.queryExecution().analyzed()
        kept = _attributes(plan)
        while plan.nodeName() in NARROW_OPERATORS:
            plan = plan.children().head()
        return _is_kept(plan, kept, topic)
    except Py4JError:
        return False


def _is_kept(plan: Any, kept: Mapping[str, str], topic: str) -> bool:
    method = SOURCES.get(plan.getClass().getSimpleName())
    if method is None or plan.table().name() != "twinlog":
        return False
    read, options = _attributes(plan), getattr(plan, method)()
    topics = options.get("subscribe") or ","
    is_one_topic = "," not in topics if topic else kept.get(TOPIC, "") == read.get(TOPIC)
    return (
        is_one_topic
        and kept.get(PARTITION, "") == read.get(PARTITION)
        and not options.containsKey("minPartitions")
    )


def _attributes(plan: Any) -> dict[str, str]:
    output = plan.output()
    attributes = (output.apply(index) for index in range(output.size()))
    return {attribute.name(): attribute.exprId().toString() for attribute in attributes}


BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
GIVEN_BYTES: Final = 512 << 20
"""Maximum bytes that Spark passes to Python at once; Arrow's limit is 2 GiB."""
LEAST_BYTES: Final = 16 << 10
"""Bytes of a batch if Spark does not limit bytes: the default batch.size of Java's producer."""
_SIZE: Final = re.compile(r"(\d+) *([kmg]?)i?b?")
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30}


def by_partition(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the rows with each partition in one task. The result is `df` itself if its tasks
    already have whole partitions. Raises TwinlogError.
    """
    topic = {name.lower(): value for name, value in options.items()}.get("topic", "").strip()
    if packing.is_packed(df.columns) or keeps_partitions(df, topic):
        return df
    return partitioned(df, options)


def partitioned(df: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the rows as record batches, with all rows of one partition in one task (`packing`).

    `options` are the writer's. Rows with a key are partitioned as by Java's producer, rows without
    a key by their content. Rows that name a partition keep it. Without an option topic, tasks query
    the partition counts of the topics that rows name, and Spark decides how many tasks write
    (spark.sql.shuffle.partitions). Raises TwinlogError.
    """
    parsed = parse_write_options({"writeId": "partitioning", **options}, is_stream=False)
    has_topic = bool(parsed.topic)
    if packing.is_packed(df.columns):
        raise ConfigError(
            'format("twinlog"): `partitioned` is called twice; call it once, as the last step'
        )
    warn_of_others(check_schema(df.schema, has_topic=has_topic))
    names = [name for name in df.columns if name in TYPES and not (has_topic and name == TOPIC)]
    types = packing.column_types(has_topic=has_topic)
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    conf = df.sparkSession.conf
    most = max_batch_bytes(parsed, conf.get(BATCH_BYTES) or "", conf.get(BATCH_ROWS) or "0")
    if not has_topic:
        packed = df.select(names).mapInArrow(_packing(parsed, parsed, most), schema)
        return packed.repartition(TOPIC, PARTITION)
    with ClusterClient(parsed.cluster(), refused_at_first_s=FIRST_REFUSED_S) as client:
        count = partitions_of(client, parsed.topic)
    packed = df.select(names).mapInArrow(_packing(parsed, count, most), schema)
    packed = packed.withMetadata(PARTITION, {packing.PARTITION_COUNT: count})
    if hasattr(packed, "repartitionById"):  # since Spark 4.1
        return packed.repartitionById(count, PARTITION)
    # rows are distributed by hash, so a task may have several partitions, or none
    return packed.repartition(count, PARTITION)


def max_batch_bytes(options: WriteOptions, limit: str, rows: str) -> int:
    """Return the maximum bytes of a batch before compression. `limit` and `rows` are how much Spark
    passes to Python at once (`BATCH_BYTES`, `BATCH_ROWS`). If only rows are limited, batches must
    be small, because each row then has a whole batch.
    """
    known = _SIZE.fullmatch(limit.strip().lower())
    if known and int(known[1]) << _SHIFTS[known[2]] <= GIVEN_BYTES:
        return options.max_bytes
    return min(
        options.max_bytes, max(LEAST_BYTES, GIVEN_BYTES // int(rows) if int(rows) > 0 else 0)
    )


def _packing(options: WriteOptions, counted: WriteOptions | int, limit_bytes: int) -> Any:
    topic, codec = options.topic, options.codec  # tasks get secrets only to query counts

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task_begins()
        gatherer, binary = Gatherer(limit_bytes), pa.binary()
        with _counts(counted) as counts:
            partitioner = RowPartitioner(topic, counts, now_ms=packing.UNTIMED_MS, turn=None)
            for batch in batches:
                value = batch.schema.field(VALUE).type
                is_large = pa.types.is_large_binary(value) or pa.types.is_large_string(value)
                binary = pa.large_binary() if is_large else pa.binary()
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                for tp, rows in partitioner.rows_by_partition(columns, batch.num_rows):
                    due = gatherer.add(tp, rows)
                    if due:
                        yield packing.packed(due, codec, binary, has_topic=bool(topic))
            yield packing.packed(gatherer.pop_all(), codec, binary, has_topic=bool(topic))

    return pack


@contextmanager
def _counts(counted: WriteOptions | int) -> Iterator[Callable[[str], int]]:
    """Yield a function from a topic to its partition count: `counted` if it is a number, else the
    count that the cluster reports.
    """
    if isinstance(counted, int):
        yield lambda _: counted
        return
    with connected(counted.cluster()) as client:
        yield counter(client)
