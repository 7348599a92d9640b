"""Makes `format("twinlog")` known to Spark by being installed.

Spark 4.0 and later imports every module whose name begins with `pyspark_` when a session looks for
a source written in Python for the first time, and takes its `DefaultSource`. An error here would
take all of the user's sources away, and time would be spent by those who never read Kafka: so
nothing of Twinlog is loaded before somebody asks for the format.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for `twinlog.records.source.TwinlogSource`, of which it makes an instance."""

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        from twinlog.extras import require_extra

        require_extra("pyarrow", "records", 'format("twinlog")')
        from twinlog.records.source import TwinlogSource

        return TwinlogSource(options)

    @classmethod
    def name(cls) -> str:
        return "twinlog"
