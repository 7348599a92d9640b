"""Spark's Python daemon with most of what planning and tasks of `format("twinlog")` load: each of
their processes would spend half a second on it. Not pyarrow: it begins threads, which a fork loses.
"""

from __future__ import annotations

import gc

import pyspark.sql.worker.commit_data_source_write
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.python_streaming_sink_runner
import pyspark.sql.worker.write_into_data_source
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import twinlog.records.planning  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
