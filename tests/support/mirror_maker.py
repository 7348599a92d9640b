"""Runs a real MirrorMaker 2 in dedicated mode, or another program from its jars."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinlog.java import find_java
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.kafka_jars import mirror_maker_jars

__all__ = ["java_process", "mirror_maker", "one_cluster_file"]

_STOP_SECONDS = 20
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


_ONE_BROKER = (
    "checkpoints.topic",
    "heartbeats.topic",
    "offset-syncs.topic",
    "offset.storage",
    "status.storage",
    "config.storage",
)


def one_cluster_file(path: Path, cluster: LocalCluster, **more: str) -> Path:
    """Write a configuration in which A and B are both this cluster of one broker. `more`: other
    keys, with underscores for dots.
    """
    lines = {
        "clusters": "A, B",
        "A.bootstrap.servers": cluster.bootstrap,
        "B.bootstrap.servers": cluster.bootstrap,
        "A->B.enabled": "true",
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "plugin.discovery": "service_load",  # by default Java reads every class of every jar
    }
    lines |= {f"{name}.replication.factor": "1" for name in _ONE_BROKER}
    lines |= {key.replace("_", "."): value for key, value in more.items()}
    path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    return path


@contextmanager
def mirror_maker(properties: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run MirrorMaker 2 with the file until the block ends. Its output is written to a `.log` file
    next to the configuration file.
    """
    with java_process("org.apache.kafka.connect.mirror.MirrorMaker", properties) as process:
        yield process


@contextmanager
def java_process(name: str, properties: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a class of MirrorMaker 2's jars with the file as its argument. Its output is written as
    by `mirror_maker`.
    """
    logging = properties.with_suffix(".log4j2.properties")
    logging.write_text(_LOGGING)
    command = [str(find_java()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{mirror_maker_jars()}/*"]
    command += [name, str(properties)]
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
