"""A topic, and what a MirrorMaker 2 left of it on the target: its records and its positions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.client import Outgoing, read_all
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.mirror.copy.partitioner import partition_for_key
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.connect_positions import PositionKey, decode_position, encode_position
from twinlog.wire.records import Record

STORAGE_PARTITIONS = 3
BEGIN_MS = int(time.time() * 1000)
"""Were they old, the broker would delete them at its first look, 30 s after its start."""


def outgoing(numbers: Iterable[int], partition: int = 0) -> list[Outgoing]:
    return [
        Outgoing(key=b"%d" % (n % 5), value=b"v%d" % n, timestamp=BEGIN_MS + n, partition=partition)
        for n in numbers
    ]


def values(numbers: Iterable[int]) -> list[bytes]:
    return [b"v%d" % n for n in numbers]


@dataclass
class Left:
    """A source topic, and what a MirrorMaker 2 left of it on the target."""

    source: LocalCluster
    target: LocalCluster
    topic: str
    file: Path
    alias: str
    policy: str = ""

    @property
    def remote(self) -> str:
        return self.topic if self.policy else f"{self.alias}.{self.topic}"

    @property
    def storage(self) -> str:
        return f"mm2-offsets.{self.alias}.internal"

    def write_file(self, *more: str) -> None:
        lines = [
            f"clusters = {self.alias}, B",
            f"{self.alias}.bootstrap.servers = {self.source.bootstrap}",
            f"B.bootstrap.servers = {self.target.bootstrap}",
            f"{self.alias}->B.enabled = true",
            f"{self.alias}->B.topics = {self.topic}",
            "replication.factor = 1",
            "twinlog.state.topic.replication.factor = 1",
            *([f"replication.policy.class = {self.policy}"] if self.policy else []),
            *more,
        ]
        self.file.write_text("\n".join(lines))

    def note(
        self, offset: int, connector: str = "MirrorSourceConnector", partition: int = 0
    ) -> None:
        key = PositionKey(
            connector=connector,
            cluster=self.alias,
            source=TopicPartition(self.topic, partition),
        ).encode()
        home = TopicPartition(self.storage, partition_for_key(key, STORAGE_PARTITIONS))
        with ClusterClient(settings_for(self.target.bootstrap)) as client:
            append(client, home, [Record(0, 0, key, encode_position(offset))])

    def noted(self) -> list[int | None]:
        return [decode_position(record.value) for record in read_all(self.target, self.storage)]

    def values(self, partition: int = 0) -> list[bytes | None]:
        found = read_all(self.target, self.remote)
        return [record.value for record in found if record.partition == partition]

    def adopt(self) -> PartitionSnapshot:
        (partition,) = self.adopt_all()
        return partition

    def adopt_all(self) -> tuple[PartitionSnapshot, ...]:
        with Mirror(self.file, once=True, adopt_mm2=True) as mirror:
            (flow,) = mirror.wait()
        assert not mirror.supervisor.errors, mirror.supervisor.errors
        return tuple(flow.partitions)
