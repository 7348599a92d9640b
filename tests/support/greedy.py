"""A transform that needs much memory for one record. The application of transforms imports it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GREEDY = 101
"""The number of the order that needs too much memory."""


def greedy(rows: DataFrame) -> DataFrame:
    """Return the records as they are."""
    order = b"order %d." % GREEDY

    def held(value: bytes | None) -> bytes | None:
        if value is not None and bytes(value).startswith(order):
            len(bytearray(1 << 30))
        return value

    return rows.withColumn("value", F.udf(held, "binary")("value"))
