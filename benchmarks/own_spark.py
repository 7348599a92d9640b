"""Installs the Spark whose own Kafka source is measured: a Python environment, and the source's
jars.

Both are installed once, in `build/bench-spark`. The version is the newest for which Maven Central
has the jars with all dependencies. It may differ from the version on which Twinlog runs.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.progress import Progress

__all__ = ["OWN_SPARK", "OwnSpark", "own_spark"]

OWN_SPARK: Final = "4.2.0"
_FOLDER: Final = Path(__file__).resolve().parent.parent / "build" / f"bench-spark-{OWN_SPARK}"
_SESSION: Final = f"""
from pyspark.sql import SparkSession
(
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:{OWN_SPARK}")
    .config("spark.jars.ivy", "{_FOLDER}/ivy").getOrCreate().stop()
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSpark:
    """A Python with this PySpark, and the jars that PySpark lacks."""

    python: Path
    jars: tuple[Path, ...]


def own_spark(progress: Progress) -> OwnSpark:
    """Return the installation, creating it if necessary. Raises CalledProcessError; pip and Ivy
    print their errors to standard error.
    """
    done = _FOLDER / "complete"
    python = _FOLDER / "venv" / "bin" / "python"
    if not done.exists():
        progress.say(f"installing PySpark {OWN_SPARK} and the jars of its Kafka source")
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(python.parents[1])], check=True
        )
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*pip, "--no-compile", f"pyspark[sql]=={OWN_SPARK}"], check=True)
        _fetch(python)
        done.touch()
    there = {one.name for one in python.parents[1].glob("lib/python*/site-packages/pyspark/jars/*")}
    # Ivy adds the organisation before the name of each jar
    fetched = sorted((_FOLDER / "ivy" / "jars").glob("*.jar"))
    lacking = [one for one in fetched if one.name.partition("_")[2] not in there]
    return OwnSpark(python=python, jars=tuple(lacking))


def _fetch(python: Path) -> None:
    """Download the jars as users do: by a session with `spark.jars.packages`, whose Ivy fetches
    them.
    """
    subprocess.run([str(python), "-c", _SESSION], check=True, stdout=sys.stderr)
