"""A transform that needs much memory for one record. The application that runs transforms imports
it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

GREEDY = 101
"""Number of the order that needs too much memory."""


def greedy(rows: DataFrame) -> DataFrame:
    """Return the records unchanged. One of them needs 1 GiB while it is processed."""
    order = b"order %d." % GREEDY

    def held(value: bytes | None) -> bytes | None:
        if value is not None and bytes(value).startswith(order):
            len(bytearray(1 << 30))
        return value

    return rows.withColumn("value", F.udf(held, "binary")("value"))
