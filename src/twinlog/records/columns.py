"""The columns of a record, named and typed as Spark's own Kafka source has them.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, headers array<struct<key: string, value: binary>>

and, where `upstream` is asked for, of which record of a source each is the copy:

    _upstream struct<cluster: string, topic: string, partition: int, offset: bigint>

`timestampType` is Kafka's number: -1 none (format v0), 0 CreateTime, 1 LogAppendTime. A record
without headers has NULL in `headers`, as in Spark's source. What Arrow calls them is in `decoding`:
where a DataFrame is only described, nobody waits until PyArrow is loaded.
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
"""In Spark's order, by its names of types."""


def all_columns(*, headers: bool, upstream: bool = False) -> tuple[str, ...]:
    """What is read where no schema says otherwise."""
    left_out = {
        name for name, is_asked in ((HEADERS, headers), (UPSTREAM, upstream)) if not is_asked
    }
    return tuple(name for name in SPARK_TYPES if name not in left_out)


def ddl(columns: Sequence[str]) -> str:
    """The columns as Spark writes a schema."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)


def check_columns(given: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The names of a schema's columns (name and type of each), if they are among ours.

    Raises ConfigError: such a schema asks for columns, it cannot rename or convert them.
    """
    for name, kind in given:
        if name not in SPARK_TYPES:
            hint = suggestion(name, SPARK_TYPES)
            raise ConfigError(
                f'format("twinlog"): schema: there is no column {name!r}; '
                + (hint or f"it has {', '.join(SPARK_TYPES)}")
            )
        if kind != SPARK_TYPES[name]:
            raise ConfigError(
                f'format("twinlog"): schema: column {name} is {SPARK_TYPES[name]}, not {kind}; '
                "cast it after reading"
            )
    return tuple(name for name, _ in given)
