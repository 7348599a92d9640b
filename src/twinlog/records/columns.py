"""The columns of a record, with the names and types of Spark's own Kafka source.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, headers array<struct<key: string, value: binary>>

With the option `upstream`, there is also the source record of which a record is a copy:

    _upstream struct<cluster: string, topic: string, partition: int, offset: bigint>

`timestampType` is Kafka's number: -1 none (format v0), 0 CreateTime, 1 LogAppendTime. A record
without headers has NULL in `headers`, as in Spark's source. The Arrow types are in `decoding`, so
that PyArrow is not loaded to describe a DataFrame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twinlog.config.values.nearest import suggestion
from twinlog.errors import ConfigError

KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"
UPSTREAM: Final = "_upstream"

SPARK_TYPES: Final = {
    KEY: "binary",
    VALUE: "binary",
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "bigint",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    HEADERS: "array<struct<key:string,value:binary>>",
    UPSTREAM: "struct<cluster:string,topic:string,partition:int,offset:bigint>",
}
"""Spark's type of each column, in Spark's order of columns."""


def all_columns(*, headers: bool, upstream: bool = False) -> tuple[str, ...]:
    """Return the columns to read if no schema is given."""
    left_out = {
        name for name, is_asked in ((HEADERS, headers), (UPSTREAM, upstream)) if not is_asked
    }
    return tuple(name for name in SPARK_TYPES if name not in left_out)


def ddl(columns: Sequence[str]) -> str:
    """Return the columns as a DDL schema of Spark."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)


def check_columns(columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the column names of a schema (given as name and type of each column).

    Raises ConfigError for an unknown column or another type, because a schema can select columns,
    but not rename or convert them.
    """
    for name, kind in columns:
        if name not in SPARK_TYPES:
            hint = suggestion(name, SPARK_TYPES)
            raise ConfigError(
                f'format("twinlog"): schema: there is no column {name!r}; '
                + (hint or f"the columns are {', '.join(SPARK_TYPES)}")
            )
        if kind != SPARK_TYPES[name]:
            raise ConfigError(
                f'format("twinlog"): schema: column {name} is {SPARK_TYPES[name]}, not {kind}; '
                "cast it after reading"
            )
    return tuple(name for name, _ in columns)
