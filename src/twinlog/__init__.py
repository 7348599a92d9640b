"""Twinlog mirrors Kafka topics between clusters on Spark, exactly once.

Each folder's `__init__` describes the folder. The modules in this folder are used by all layers.
Read `errors` (the tree of errors) and `model` (values such as partitions and flows) first. The
other modules are `clock`, `threads`, `metrics` (all metrics of `/metrics`; `control.watch.series`
sets their values), `flow_log` (log lines about one flow), `shown` (makes text safe to print, and
removes secrets from it), `encoded` (values for programs), `quantities` (numbers for people),
`addresses`, `folders` (also private files), `java`, `machine` (cores and memory) and `extras`
(optional packages).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__version__ = "0.1.0"

__all__ = ["__version__", "run"]


def run(
    spark: Any,
    *files: str | Path,
    once: bool = False,
    lanes: int | None = None,
    allow_unauthenticated_spark: bool = False,
) -> Any:
    """Mirror the flows of `files` like `twinlog mirror`, but in an existing Spark session, which is
    not stopped (docs/spark.md). Returns the last snapshots of the flows.
    """
    # imported here, because lanes import this module and must not import the driver's modules
    process = importlib.import_module("twinlog.control.process.run")
    return process.run_in_session(
        spark,
        files,
        once=once,
        lanes=lanes,
        may_be_open=allow_unauthenticated_spark,
    )
