"""A flow on real Spark that masks records, and commands that run with its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.client import read_all
from tests.support.command import Command
from tests.support.settings import settings_for
from tests.support.spark_mirror import alias_of, config
from tests.support.topics import partition_count
from twinlog.cluster.client import ClusterClient
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import Flow
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader

__all__ = ["MASK", "Case", "masking", "values", "values_in", "verified_records"]

MASK: Final = (
    "SELECT key, concat('masked ', offset) AS value, topic, partition, offset, timestamp, "
    "timestampType, headers FROM records WHERE value IS NOT NULL"
)
"""Query of a transform that masks records and leaves out tombstones."""


def masking(
    folder: Path, source: LocalCluster, target: LocalCluster, topic: str, **more: str
) -> Path:
    flow = f"A->{alias_of(topic)}"
    lines = {
        f"{flow}.topics": f"{topic}, {topic}-raw",
        f"{flow}.twinlog.transforms": "mask",
        f"{flow}.twinlog.transforms.mask.topics": topic,
        f"{flow}.twinlog.transforms.mask.sql": MASK,
    }
    return config(folder, source, target, topic, **(lines | more))


def values(target: LocalCluster, topic: str) -> list[tuple[int, bytes | None]]:
    return values_in(target, f"A.{topic}")


def values_in(target: LocalCluster, remote: str) -> list[tuple[int, bytes | None]]:
    return [(one.partition, one.value) for one in read_all(target, remote)]


def verified_records(folder: Path, file: Path, topic: str) -> int:
    """Verify the flow, which must be identical everywhere. Return the number of equal records of a
    topic.
    """
    with Command(folder / "verify", "verify", str(file), "--format", "json") as verified:
        assert verified.wait() == 0, verified.stdout + verified.stderr
    parts = verified.json["flows"][0]["partitions"]
    assert {one["answer"] for one in parts} == {"identical"}
    return sum(one["equal_records"] for one in parts if one["topic"] == topic)


@dataclass(slots=True, kw_only=True)
class Case:
    """A flow that masks records, and commands that run with its file."""

    source: LocalCluster
    target: LocalCluster
    topic: str
    folder: Path

    @property
    def flow(self) -> str:
        return f"A->{alias_of(self.topic)}"

    def file(self, **more: str) -> Path:
        return masking(self.folder, self.source, self.target, self.topic, **more)

    def run(self, name: str, *words: str, exits: int) -> Command:
        with Command(self.folder / name, *words) as command:
            assert command.wait() == exits, command.stdout + command.stderr
        return command

    def once(self, name: str, file: Path, exits: int) -> Command:
        words = ("--once", "--format", "json", "--listen", "off")
        return self.run(name, "mirror", str(file), *words, exits=exits)

    def failed(self, command: Command) -> dict[str, str]:
        """Return the code of each failed partition, from the command's JSON output."""
        (flow,) = command.json["flows"]
        return {f"{one['topic']}-{one['partition']}": one["code"] for one in flow["failed"]}

    def map(self, topic: str) -> dict[int, PartitionMap]:
        """Return the newest map of each partition of the topic."""
        name = map_topic_of(Flow("A", alias_of(self.topic)))
        with ClusterClient(settings_for(self.target.bootstrap, "t")) as client:
            partitions = partition_count(self.target, name)
            found = MapReader(client, name, partitions).read()
        every = [one for one in found.values() if one.topic == topic]
        return {one.key.partition: one for one in sorted(every, key=lambda one: one.term)}

    def missing(self, verb: str, topic: str) -> list[int | None]:
        """Return the number of missing records of each partition, from the plan of `verb`."""
        words = (verb, "plan", str(self.folder / "mm2.properties"), "--topics", topic)
        with Command(self.folder / "plan", *words, "--format", "json") as command:
            command.wait()
        assert command.stdout, command.stderr
        return [one["missing"] for one in command.json["plan"]["partitions"]]
