"""The steps from the start of a copier to its first record, as far as they can be observed from
outside.
"""

from __future__ import annotations

from typing import Final

from benchmarks.copier import Copier
from benchmarks.watch import CopyNumbers

__all__ = ["phases_of"]

_SPARK: Final = (
    ("Spark's JVM started", ("org.apache.spark.api.python.PythonGatewayServer",), 1),
    ("Python worker daemon started", ("pyspark", "daemon"), 1),
    # the daemon forks its workers, which have the same command line
    ("first lane's process started", ("pyspark", "daemon"), 2),
)


def phases_of(copier: Copier, numbers: CopyNumbers) -> dict[str, float]:
    """Return the seconds from the start of the process to the first observation of each step, in
    order.
    """
    steps = {
        name: at - copier.started
        for name, parts, nth in _SPARK
        if (at := copier.tree.first_seen(*parts, nth=nth)) is not None
    }
    steps["remote topic created"] = numbers.topic_created_s
    steps["first record on the target"] = numbers.first_record_s
    return dict(sorted(steps.items(), key=lambda step: step[1]))
