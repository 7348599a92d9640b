"""Transforms of whole records: they filter records, and set headers, keys or topics.

Conditions and expressions are SQL texts. So a module can create transforms before Spark runs, with
any condition that Spark supports: `drop("length(value) > 100000")`. Some functions in this module
return conditions, which can be combined: `keep(f"{key_matches('eu-.*')} AND NOT ({TOMBSTONE})")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from twinlog.errors import ConfigError
from twinlog.records.columns import HEADERS, KEY, TOPIC

Transform: TypeAlias = Callable[[DataFrame], DataFrame]
"""A function that gets a DataFrame of records, and returns a DataFrame of records."""

VIEW: Final = "records"
"""The name of the DataFrame in a SQL query."""

TOMBSTONE: Final = "value IS NULL"
"""The condition that a record is a tombstone: it has no value, so that compaction deletes its key.

>>> drop_tombstones = drop(TOMBSTONE)
"""

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


def quoted(text: str) -> str:
    """Return a text as a string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def chain(*transforms: Transform) -> Transform:
    """Return a transform that applies several transforms one after the other.

    >>> clean = chain(drop(TOMBSTONE), mask_json("$.card"), set_header("masked", "true"))
    """

    def apply(rows: DataFrame) -> DataFrame:
        for transform in transforms:
            rows = transform(rows)
        return rows

    return apply


def sql(query: str) -> Transform:
    """Return a transform that runs a SQL query on the view `records`.

    In SQL a comparison with NULL is not true. `WHERE x <> 'true'` also leaves out records whose x
    is NULL, such as tombstones; `WHERE x IS DISTINCT FROM 'true'` keeps them.

    >>> large = sql("SELECT * FROM records WHERE length(value) > 1000")
    """

    def apply(rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView(VIEW)
        return rows.sparkSession.sql(query)

    return apply


def keep(condition: str) -> Transform:
    """Keep only records for which a SQL condition is true. Records for which the condition is false
    or NULL are left out.

    >>> in_europe = keep(has_header("region", "eu"))
    """
    return lambda rows: rows.where(_is_true(condition))


def drop(condition: str) -> Transform:
    """Leave out records for which a SQL condition is true. Records for which it is NULL stay.

    >>> people = drop(json_is("$.bot", "true"))
    """
    return lambda rows: rows.where(~_is_true(condition))


def _is_true(condition: str) -> Column:
    return F.coalesce(F.expr(condition), F.lit(False))


def key_matches(pattern: str) -> str:
    """Return the condition that the whole key, as text, matches a Java regular expression. The
    condition is NULL for records without a key.

    >>> in_europe = keep(key_matches("eu-[0-9]+"))
    """
    whole = rf"^(?:{pattern})\z"
    return f"(CAST(key AS STRING) RLIKE {quoted(whole)})"


def has_header(name: str, value: str | None = None) -> str:
    """Return the condition that a record has the header `name`, with `value` unless it is None.

    >>> tests = keep(has_header("environment", "test"))
    """
    same = "" if value is None else f" AND one.value = CAST({quoted(value)} AS BINARY)"
    return f"coalesce(exists(headers, one -> one.key = {quoted(name)}{same}), false)"


def json_is(path: str, *values: str) -> str:
    """Return the condition that the record's value is JSON, and has one of `values` at a path.
    Numbers and booleans are compared as text. The condition is NULL for tombstones, for values that
    are not JSON, and if the path does not exist.

    >>> people = drop(json_is("$.bot", "true"))
    """
    texts = ", ".join(map(quoted, values))
    return f"(get_json_object(CAST(value AS STRING), {quoted(path)}) IN ({texts}))"


def set_header(name: str, value: str) -> Transform:
    """Add a header, and remove existing headers of the same name.

    >>> marked = set_header("masked-by", "privacy 3")
    """
    new = f"array(named_struct('key', {quoted(name)}, 'value', CAST({quoted(value)} AS BINARY)))"
    others = f"filter(coalesce(headers, array()), one -> one.key <> {quoted(name)})"
    return _with_headers(f"concat({others}, {new})")


def drop_headers(*names: str) -> Transform:
    """Remove all headers with these names.

    >>> quiet = drop_headers("trace-id", "user")
    """
    if not names:
        raise ConfigError("drop_headers: no name is given; write drop_headers('trace-id')")
    texts = ", ".join(map(quoted, names))
    return _with_headers(f"filter(headers, one -> one.key NOT IN ({texts}))")


def _with_headers(expression: str) -> Transform:
    return lambda rows: rows.withColumn(HEADERS, F.expr(expression).cast(_HEADERS_TYPE))


def rekey(expression: str) -> Transform:
    """Set the key to the result of a SQL expression. The transform fails for rows for which the
    result is NULL, because a record without a key loses its order. A transform before this one
    should leave out such records, for example tombstones.

    A record with another key usually belongs to another partition, so write the rows without the
    column `partition` (docs/transforms.md).

    >>> by_customer = rekey("get_json_object(CAST(value AS STRING), '$.customer')")
    """

    def apply(rows: DataFrame) -> DataFrame:
        why = failure("the expression of the new key is NULL").cast("binary")
        return rows.withColumn(KEY, F.coalesce(F.expr(expression).cast("binary"), why))

    return apply


def route(topic: str, where: str = "true") -> Transform:
    """Set the topic of all records, or of those for which the SQL condition `where` is true.

    >>> split = route("orders-eu", where=json_is("$.region", "eu"))
    """

    def apply(rows: DataFrame) -> DataFrame:
        return rows.withColumn(TOPIC, F.when(_is_true(where), topic).otherwise(F.col(TOPIC)))

    return apply


def failure(what: str) -> Column:
    """Return an expression that raises an error with the record's topic, partition and offset."""
    record = "concat(topic, '-', partition, ' offset ', offset, ': ', {})"
    return F.raise_error(F.expr(record.format(quoted(what))))
