"""The configuration files and command lines of both copiers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.copier import Launch
from benchmarks.results import MIRROR_MAKER, TWINLOG
from twinlog.java import find_java

__all__ = [
    "DEFAULT_LINGER",
    "JVM_OPTIONS",
    "LINGER_0",
    "THIS_TWINLOG",
    "TUNED",
    "FlowFile",
    "log_of",
    "mirror_maker_launch",
    "twinlog_launch",
]

THIS_TWINLOG: Final = Path(sys.executable).with_name("twinlog")

TUNED: Final = {"compression.type": "lz4", "batch.size": "65536", "linger.ms": "20"}
"""Settings of MirrorMaker 2's producer for the copy of a backlog."""

LINGER_0: Final = {"compression.type": "lz4", "batch.size": "65536", "linger.ms": "0"}
DEFAULT_LINGER: Final = {"compression.type": "lz4", "batch.size": "65536"}

JVM_OPTIONS: Final = (
    # connect-mirror-maker.sh
    "-Xms256M",
    "-Xmx2G",
    # kafka-run-class.sh
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %p %c: %m%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFile:
    """An mm2.properties that copies one topic from the source to cluster B."""

    alias: str
    """The alias of the source. Each run has a new one, so that its remote and internal topics are
    new as well.
    """
    source: str
    target: str
    topic: str
    tasks: int
    more: Mapping[str, str] = field(default_factory=dict)
    """Further keys for both copiers. They override the keys above."""

    @property
    def remote_topic(self) -> str:
        """The name of the remote topic."""
        return f"{self.alias}.{self.topic}"

    def text(self, producer: Mapping[str, str]) -> str:
        """The file.

        The producer's keys have the prefix `B.producer.`, because keys with `A->B.producer.` have
        no effect on the producer that writes the records.
        """
        lines = {
            "clusters": f"{self.alias}, B",
            f"{self.alias}.bootstrap.servers": self.source,
            "B.bootstrap.servers": self.target,
            f"{self.alias}->B.enabled": "true",
            f"{self.alias}->B.topics": self.topic,
            f"B->{self.alias}.enabled": "false",
            "tasks.max": str(self.tasks),
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
        }
        lines |= {f"B.producer.{key}": value for key, value in producer.items()}
        lines |= self.more
        return "".join(f"{key} = {value}\n" for key, value in lines.items())


def log_of(alias: str, folder: Path) -> Path:
    """Return the path of the log file of the run with this alias."""
    return folder / f"{alias}.log"


def mirror_maker_launch(
    flow: FlowFile, producer: Mapping[str, str], jars: Path, folder: Path
) -> Launch:
    """Return the launch of a dedicated MirrorMaker 2 for flows into B, with the JVM options of its
    start script.
    """
    properties = folder / f"{flow.alias}.properties"
    properties.write_text(flow.text(producer), encoding="utf-8")
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    command = [str(find_java()), *JVM_OPTIONS]
    command += [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(properties), "--clusters", "B"]
    return Launch(system=MIRROR_MAKER, command=command, log=log_of(flow.alias, folder))


def twinlog_launch(
    flow: FlowFile,
    folder: Path,
    *,
    system: str = TWINLOG,
    program: Path = THIS_TWINLOG,
    lease_s: float | None = None,
) -> Launch:
    """Return the launch of `twinlog mirror`, with the same file that MirrorMaker 2 gets for a
    backlog.
    """
    properties = folder / f"{flow.alias}.properties"
    properties.write_text(flow.text(TUNED), encoding="utf-8")
    command = [str(program), "mirror", str(properties)]
    if lease_s is not None:
        command += ["--lease", f"{lease_s:g}"]
    return Launch(
        system=system,
        command=command,
        log=log_of(flow.alias, folder),
        # files of a killed mirror are removed with the benchmark's folder
        environment={"TMPDIR": str(folder)},
    )
