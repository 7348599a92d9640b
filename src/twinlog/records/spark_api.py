"""What Spark's data source API has in the PySpark that is installed, 4.0 to 4.3.

| since | |
| --- | --- |
| 4.0 | batches both ways |
| 4.1 | filters, streams that write Arrow, `repartitionById` |
| 4.2 | limits of a micro-batch, where it begins, `AvailableNow` by the source |

What is missing has a stand-in here, so that a class can be defined; who would use it is refused
(`needs`), or does with less, as docs/dataframes.md says.
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
            """Never asked for."""

        class ReadAllAvailable(ReadLimit):
            """The only one there is."""

        ReadMaxBytes = ReadMaxRows = ReadLimit

        class SupportsTriggerAvailableNow:
            """Spark asks for the end once by itself."""


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
    """Raises EnvironmentMissing where this PySpark is too old for it."""
    if not is_there:
        raise EnvironmentMissing(
            f'format("twinlog"): {what} needs Spark {version} or newer, and this is '
            f"{pyspark.__version__}"
        )
