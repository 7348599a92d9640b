"""A source topic, and the copy and the positions that a MirrorMaker 2 left on the target."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import raw
from tests.support.client import Outgoing, read_all
from tests.support.mirror import Mirror
from tests.support.settings import settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.topics.internal_log import append, append_rows, ensure_compacted_topic
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.mirror.copy.fan_out import partition_for_key
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.start.tail_check import TAIL_RECORDS
from twinlog.mirror.state.generations import has_written_row
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.mm2_records import PositionKey, decode_position, encode_position
from twinlog.wire.records import Record

STORAGE_PARTITIONS = 3
ANOTHERS: Final = b"another flow's"
BEGIN_MS = int(time.time() * 1000)
"""The current time in milliseconds. A broker would delete old records at its first retention check,
30 s after its start.
"""


def outgoing(numbers: Iterable[int], partition: int = 0) -> list[Outgoing]:
    return [
        Outgoing(key=b"%d" % (n % 5), value=b"v%d" % n, timestamp=BEGIN_MS + n, partition=partition)
        for n in numbers
    ]


def values(numbers: Iterable[int]) -> list[bytes]:
    return [b"v%d" % n for n in numbers]


@dataclass
class Left:
    """A source topic, and the copy and the positions that a MirrorMaker 2 left on the target."""

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


def another_flow_wrote(left: Left, records: Sequence[bytes]) -> None:
    """Write these records to the remote topic as another Twinlog flow."""
    with ClusterClient(settings_for(left.target.bootstrap)) as client:
        batch = [Record(n, BEGIN_MS, None, value) for n, value in enumerate(records)]
        _other_flow(client, left).send(batch, 0).expect_ok()


def _other_flow(client: ClusterClient, left: Left) -> raw.Writer:
    ensure_compacted_topic(client, STATE_TOPIC, partitions=1, replication_factor=1)
    other = init_producer_id(client).producer_id
    row = has_written_row("elsewhere->B", other)
    append_rows(client, TopicPartition(STATE_TOPIC, 0), [row], 1)
    return raw.Writer(client, TopicPartition(left.remote, 0), other)


@contextmanager
def another_flow_writes(left: Left) -> Iterator[None]:
    """Write records to the remote topic as another Twinlog flow: first more than a takeover
    compares, and then further ones until the block ends.
    """
    done, sent = threading.Event(), itertools.count()
    with ClusterClient(settings_for(left.target.bootstrap)) as client:
        writer = _other_flow(client, left)

        def write(count: int) -> None:
            numbers = list(itertools.islice(sent, count))
            records = [Record(n, BEGIN_MS, None, ANOTHERS) for n in numbers]
            writer.send(records, numbers[0]).expect_ok()

        def keep_writing() -> None:
            while not done.wait(0.01):
                write(1)

        write(TAIL_RECORDS + 50)
        with ThreadPoolExecutor(1) as pool:
            writes = pool.submit(keep_writing)
            try:
                yield
            finally:
                done.set()
            writes.result()
