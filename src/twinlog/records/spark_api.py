"""Features of Spark's data source API in the installed PySpark, 4.0 to 4.3.

| since | |
| --- | --- |
| 4.0 | batches, reading and writing |
| 4.1 | filters, streams that write Arrow, `repartitionById` |
| 4.2 | limits of a micro-batch, its start offsets, `AvailableNow` by the source |

Missing classes are replaced by stubs here, so that subclasses can be defined. A missing feature is
refused (`needs`), or has a fallback that docs/dataframes.md describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

from twinlog.errors import EnvironmentMissing

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """A stub for Spark's class of this name. It is never used."""

        class ReadAllAvailable(ReadLimit):
            """Requests a read of all available records, the only limit before Spark 4.2."""

        ReadMaxBytes = ReadMaxRows = ReadLimit

        class SupportsTriggerAvailableNow:
            """A stub. Without the class, Spark itself queries the end only once."""


__all__ = [
    "HAS_FILTERS",
    "HAS_LIMITS",
    "HAS_STREAM_WRITERS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "needs",
]

HAS_FILTERS: Final = hasattr(datasource, "Filter")
HAS_STREAM_WRITERS: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_LIMITS: Final = ReadLimit.__module__ == "pyspark.sql.streaming.datasource"


def needs(what: str, version: str, *, is_there: bool) -> None:
    """Raise EnvironmentMissing if this PySpark is too old."""
    if not is_there:
        raise EnvironmentMissing(
            f'format("twinlog"): {what} needs Spark {version} or newer, but this is Spark '
            f"{pyspark.__version__}"
        )
