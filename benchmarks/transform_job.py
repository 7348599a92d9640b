"""Transforms that `scripts/bench transforms` compares, and a copy by Spark's own Kafka connector.

A flow imports the functions of this file, and the Python of the other Spark runs it. Both programs
have only this file on their path, so it must not import other modules of this package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

MASKED: Final = r"""regexp_replace(CAST(value AS STRING), '"email": ?"[^"]*"', '"email":"****"')"""
KEPT: Final = "get_json_object(CAST(value AS STRING), '$.state') <> 'returned'"


def mask(rows: DataFrame) -> DataFrame:
    """Return all records, masked by Spark's functions."""
    return rows.withColumn("value", F.expr(MASKED))


def filter_and_mask(rows: DataFrame) -> DataFrame:
    """Return records whose state is not "returned", masked by Spark's functions."""
    return mask(rows.where(KEPT))


def python_udf(rows: DataFrame) -> DataFrame:
    """Return all records, masked by one Python call for each."""
    masked = F.udf(lambda value: bytes(value).replace(b"@example.org", b"@", 1), "binary")
    return rows.withColumn("value", masked("value"))


def arrow_udf(rows: DataFrame) -> DataFrame:
    """Return all records, masked by one Python call for each Arrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def masked(value: pa.Array) -> pa.Array:
        return pc.replace_substring(
            value.cast(pa.string()), "@example.org", "@", max_replacements=1
        )

    masked.__annotations__ = {"value": pa.Array, "return": pa.Array}
    functions: Any = F
    return rows.withColumn("value", functions.arrow_udf(masked, "string")("value"))


FUNCTIONS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "mask": mask,
    "filter_and_mask": filter_and_mask,
    "python_udf": python_udf,
    "arrow_udf": arrow_udf,
}


def main(task: dict[str, Any]) -> None:
    """Copy a topic through a function, at least once, until the process is ended."""
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.jars", task["jars"])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.format("kafka").option("subscribe", task["topic"])
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    rows = reader.option("kafka.bootstrap.servers", task["source"]).load()
    made = FUNCTIONS[task["function"]](rows)
    writer = made.select("key", "value", "headers", "partition").writeStream.format("kafka")
    writer = writer.options(**task["producer"]).option("topic", task["into"])
    writer = writer.option("kafka.bootstrap.servers", task["target"])
    writer.option("checkpointLocation", task["checkpoint"]).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
