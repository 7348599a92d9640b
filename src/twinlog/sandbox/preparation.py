"""Files that the sandbox downloads and generates once per machine (scripts/setup runs it)."""

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
    """Download Kafka's jars and archive their classes, unless this is done already."""
    jars = find_or_fetch()
    archive = class_archive(jars)
    if not archive.exists() and os.access(jars, os.W_OK):
        _write(archive)


def _write(archive: Path) -> None:
    """Write a class archive: a JVM writes the classes it has loaded when it shuts down cleanly."""
    flags = (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={unfinished(archive)}")
    with (
        TemporaryDirectory(prefix="twinlog-classes-") as folder,
        LocalCluster("classes", Path(folder) / "cluster", jvm_flags=flags) as cluster,
    ):
        os.kill(cluster.broker_pids[1], signal.SIGTERM)
        if not wait_until(lambda: not cluster.broker_pids, within=_ENDS_WITHIN_S):
            return  # the next setup retries
    install_archive(archive)


if __name__ == "__main__":
    try:
        prepare()
    except EnvironmentMissing as error:
        sys.exit(f"setup: {error}")
