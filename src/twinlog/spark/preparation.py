"""Archives Spark's classes, so that later starts of a mirror map the classes instead of loading
them.

Run it once per installation with `python -m twinlog.spark.preparation`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from twinlog.errors import EnvironmentMissing
from twinlog.folders import usable
from twinlog.java import install_archive, unfinished
from twinlog.spark.gateway import spark_archive
from twinlog.spark.session import reset_pyspark, start_spark

_ENDS_WITHIN_S = 120.0


def prepare() -> None:
    """Write the archive of Spark's classes unless it exists. Raises EnvironmentMissing."""
    archive = spark_archive()
    if archive.exists():
        return
    new = unfinished(archive)
    with usable(archive.parent, "run this command as a user who may write to this folder"):
        archive.parent.mkdir(parents=True, exist_ok=True)
        new.touch()  # if the folder is not writable, fail now instead of after a minute
        new.unlink()
    engine = start_spark(None, 1, jvm_options=[f"-XX:ArchiveClassesAtExit={new}"])
    try:
        # runs a task, so that the JVM loads the classes that a lane's task needs
        engine.context.parallelize([""], 1).mapPartitionsWithIndex(_no_work)._jrdd.count()
        engine.context.stop()
    finally:
        reset_pyspark()
        engine.gateway.stop(_ENDS_WITHIN_S)
    if engine.gateway.is_killed:  # the JVM may have been killed while it wrote the archive
        new.unlink(missing_ok=True)
        raise EnvironmentMissing("the archive of Spark's classes was not written; try again")
    install_archive(archive)


def _no_work(index: int, _: Iterable[str]) -> list[int]:
    return [index]


if __name__ == "__main__":
    try:
        prepare()
    except EnvironmentMissing as error:
        sys.exit(f"twinlog: {error}")
