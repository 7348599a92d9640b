"""Spark 4.0 has no filters to test with."""

from __future__ import annotations

from typing import Final

from twinlog.records.spark_api import HAS_FILTERS

collect_ignore: Final = [] if HAS_FILTERS else ["test_filters.py"]
