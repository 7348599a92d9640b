"""Downloads and generates files of the sandbox, once per machine (run by scripts/setup)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from twinlog.errors import EnvironmentMissing
from twinlog.java import class_archive, install_archive, unfinished
from twinlog.sandbox.brokers import QUICK_JVM, LocalCluster
from twinlog.sandbox.kafka_jars import find_or_fetch
from twinlog.sandbox.processes import wait_until

_ENDS_WITHIN_S: Final = 120.0


def prepare() -> None:
    """Download Kafka's jars, and write the archive of their classes, unless they exist."""
    jars = find_or_fetch()
    archive = class_archive(jars)
    if not archive.exists() and os.access(jars, os.W_OK):
        _write(archive)


def _write(archive: Path) -> None:
    """Write a class archive: a broker's JVM writes its loaded classes at a clean exit."""
    flags = (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={unfinished(archive)}")
    with (
        TemporaryDirectory(prefix="twinlog-classes-") as folder,
        LocalCluster("classes", Path(folder) / "cluster", jvm_flags=flags) as cluster,
    ):
        os.kill(cluster.broker_pids[1], signal.SIGTERM)
        if not wait_until(lambda: not cluster.broker_pids, within=_ENDS_WITHIN_S):
            return  # no archive was written; the next setup tries again
    install_archive(archive)


if __name__ == "__main__":
    try:
        prepare()
    except EnvironmentMissing as error:
        sys.exit(f"setup: {error}")
