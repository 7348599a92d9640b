"""A real MirrorMaker 2 in dedicated mode, as a process beside a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinlog.sandbox.java import find_java
from twinlog.sandbox.kafka_jars import mirror_maker_jars

__all__ = ["mirror_maker"]

_STOP_SECONDS = 20
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@contextmanager
def mirror_maker(properties: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It runs the file until the block ends; what it says goes to `.log` beside the file."""
    logging = properties.with_suffix(".log4j2.properties")
    logging.write_text(_LOGGING)
    command = [str(find_java()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{mirror_maker_jars()}/*"]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(properties)]
    with properties.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
