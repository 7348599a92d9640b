"""One flow between two real clusters, with the actions and checks of fault tests.

Records are numbered. The key, value, headers and timestamp of record n are derived from n, so that
a failed check shows which records are missing, duplicated or at a wrong offset.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support import raw, topics
from tests.support.client import (
    LOG_APPEND_TIME,
    Outgoing,
    Seen,
    await_markers,
    eventually,
    producer,
    read_all,
)
from tests.support.eventually import PATIENCE_S
from tests.support.mirror import Mirror
from tests.support.settings import HURRIED, settings_for
from tests.support.topics import create_topic, offset_map_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets, log_ends
from twinlog.cluster.logs.producers import ProducerState, describe_producers
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import PartitionMap, run_at
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.mirror.state.generations import Claim, FlowHistory, winning_claims
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.map_reader import MapReader
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

COMPACTED: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "500",  # measured in record time, so the next batch begins a new segment
    "delete_retention_ms": "0",
}
DAY_MS: Final = 86_400_000
OLD: Final = 3 * DAY_MS
"""Age in milliseconds of a record. If a producer ID's last record is this old, the broker expires
the ID at its next check.
"""
KEEPS_LEADERLESS: Final = """
from twinlog.lane.watches import stalls
stalls.NO_LEADER_AFTER_S = 600.0
"""
"""Prelude of lanes that do not give back a partition, however long it has no leader."""

MAP_PARTITIONS: Final = 8

COUNTS_ROUNDS: Final = """
from twinlog.lane.map_writer import MapWriter
answered = MapWriter.on_answer
def count(self, sent, view):
    with open({path!r}, "a") as file:
        file.write("x")
    return answered(self, sent, view)
MapWriter.on_answer = count
"""
"""Prelude of lanes that append a byte to a file for each response to rows of the offset map."""

NO_NUMBERS: Final[Mapping[int, int]] = MappingProxyType({})
NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


class Numbered(NamedTuple):
    """The content of a record without its offset. It must be equal on both clusters."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Rig:
    """A source topic, its remote topic, and the flow between them."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        mark = secrets.token_hex(4)
        self.source, self.target = source, target
        self.alias, self.target_alias = f"s{mark}", "t"
        self.topic = f"orders-{mark}"
        self.prefixed = True
        self.began_ms = int(time.time() * 1000)
        self._folder = folder
        self.source_client = ClusterClient(settings_for(source.bootstrap, "s"), patience=HURRIED)
        self.target_client = ClusterClient(settings_for(target.bootstrap, "t"), patience=HURRIED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.source_client.close()
        self.target_client.close()
        if error is None:
            for cluster in (self.source, self.target):
                topics.clear_away(cluster, self.topic.removeprefix("orders-"))

    # -- names ---------------------------------------------------------------------------------

    @property
    def flow(self) -> str:
        return f"{self.alias}->{self.target_alias}"

    @property
    def remote(self) -> str:
        return f"{self.alias}.{self.topic}" if self.prefixed else self.topic

    @property
    def here(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def there(self) -> TopicPartition:
        return TopicPartition(self.remote, 0)

    # -- the source ----------------------------------------------------------------------------

    def create(self, **configs: str) -> None:
        """Create the source topic with one partition. The names of `configs` have underscores for
        dots.
        """
        named = {name.replace("_", "."): value for name, value in configs.items()}
        create_topic(self.source, self.topic, configs=named)

    def record(
        self, number: int, *, age_ms: int = 0, size: int = 0, key: int | None = None
    ) -> Record:
        return Record(
            offset=number,
            timestamp=self.began_ms - age_ms + number * 1000,
            key=b"k%d" % (number if key is None else key),
            value=b"u%d" % number + b"." * size,
            headers=(("n", b"%d" % number), ("n", None)),
        )

    def put(
        self,
        numbers: Iterable[int],
        *,
        age_ms: int = 0,
        size: int = 0,
        keys: Mapping[int, int] = NO_NUMBERS,
    ) -> None:
        """Append one batch of these records to the source. `keys`: for some records, the number of
        another record whose key they get.
        """
        records = [self.record(n, age_ms=age_ms, size=size, key=keys.get(n)) for n in numbers]
        raw.send(self.source_client, self.here, encode_batch(records, codec=Codec.NONE)).expect_ok()

    def outgoing(self, number: int, *, age_ms: int = 0) -> Outgoing:
        """Return the record of this number for the independent producer."""
        r = self.record(number, age_ms=age_ms)
        return Outgoing(r.key, r.value, r.headers, r.timestamp, 0)

    def compacted(self, numbers: Iterable[int]) -> None:
        """Wait until the source's cleaner has removed all records but these."""
        wanted = list(numbers)
        eventually(lambda: _plain(self.on_source()) == wanted, what=f"compaction to {wanted}")

    def put_at_once(
        self, *batches: Sequence[Record], before: Callable[[], None] = lambda: None
    ) -> None:
        """Append several batches in one transaction, so that a mirror fetches them together.

        `before` is called directly before the commit.
        """
        transactional_id = f"test-{secrets.token_hex(4)}"
        client = producer(self.source, config={"transactional.id": transactional_id})
        client.init_transactions(PATIENCE_S)
        client.begin_transaction()
        for batch in batches:
            for r in batch:
                headers: list[tuple[str, str | bytes | None]] = list(r.headers)
                client.produce(
                    self.topic, r.value, r.key, partition=0, timestamp=r.timestamp, headers=headers
                )
            client.flush(PATIENCE_S)
        before()
        client.commit_transaction(PATIENCE_S)
        await_markers(self.source, transactional_id)

    # -- the mirror ----------------------------------------------------------------------------

    def config(self, keys: Mapping[str, str] = NO_KEYS) -> Path:
        """Write an mm2.properties for this flow with additional keys, and return its path."""
        lines = {
            "clusters": f"{self.alias}, {self.target_alias}",
            f"{self.alias}.bootstrap.servers": self.source.bootstrap,
            f"{self.target_alias}.bootstrap.servers": self.target.bootstrap,
            f"{self.flow}.enabled": "true",
            f"{self.flow}.topics": self.topic,
            "replication.factor": "1",
            "twinlog.state.topic.replication.factor": "1",
            # tests set configs of target topics, which no sync must remove
            "sync.topic.configs.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "refresh.topics.interval.seconds": "600",
        }
        if not self.prefixed:
            lines["replication.policy.class"] = (
                "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
            )
        lines |= keys
        path = self._folder / f"{self.alias}.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        return path

    def mirror(
        self,
        *,
        once: bool = False,
        lanes: int = 1,
        prelude: str = "",
        lease_s: float = 300.0,
        keys: Mapping[str, str] = NO_KEYS,
    ) -> Mirror:
        """Return a mirror of the flow that is not started yet. `prelude`: Python code that every
        lane runs first.
        """
        mirror = Mirror(self.config(keys), once=once, lanes=lanes, lease_s=lease_s)
        mirror.leases.prelude = prelude
        return mirror

    def copy_once(self, keys: Mapping[str, str] = NO_KEYS, *, prelude: str = "") -> None:
        """Run with `--once`. Check that no partition has failed."""
        with self.mirror(once=True, keys=keys, prelude=prelude) as mirror:
            (flow,) = mirror.wait()
        found = [(p.state, p.code, p.message) for p in flow.partitions]
        assert found == [("DONE", "", "")], found

    def fail_once(self, keys: Mapping[str, str] = NO_KEYS) -> tuple[str, str]:
        """Run with `--once`, check that the partition fails, and return its code and message."""
        with self.mirror(once=True, keys=keys) as mirror:
            (flow,) = mirror.wait()
        (part,) = flow.partitions
        assert part.state == "FAILED", part
        return part.code, part.message

    # -- contents of both clusters -----------------------------------------------------------------

    def on_source(self, *, isolation: str = "read_committed") -> list[Numbered]:
        return _numbered(read_all(self.source, self.topic, isolation=isolation))

    def on_target(self) -> list[Numbered]:
        return _numbered(read_all(self.target, self.remote))

    def numbers(self) -> list[int]:
        """Return the numbers of the target's records, in log order."""
        return _plain(self.on_target())

    def copied(self, count: int, within: float = PATIENCE_S) -> None:
        """Wait until at least `count` records are below the target's high watermark."""
        eventually(lambda: self.end() >= count, within, what=f"{count} records on {self.remote}")

    def end(self) -> int:
        """Return the target's log end, or 0 if the topic does not exist."""
        found = log_ends(self.target_client, [self.there])[self.there]
        if isinstance(found, TwinlogError):
            if found.code == "TOPIC_MISSING":
                return 0
            raise found
        return max(0, found.end_offset)

    def source_start(self) -> int:
        return self._source_offset(EARLIEST)

    def source_end(self) -> int:
        return self._source_offset(LATEST)

    def _source_offset(self, which: int) -> int:
        found = list_offsets(self.source_client, [self.here], which)[self.here]
        assert not isinstance(found, TwinlogError), found
        return found.offset

    def same(self, *, isolation: str = "read_committed") -> None:
        """Check that source and target have the same records, field by field, once each and in
        order.
        """
        assert self.on_target() == self.on_source(isolation=isolation)

    def offsets_are_exact(self) -> None:
        """Check that the offset map has the right upstream offset for every record on the
        target.
        """
        upstream = {r.value: r.offset for r in read_all(self.source, self.topic)}
        known = self.map()
        k = known.runs[0].downstream - known.runs[0].ordinal
        wrong = []
        for record in read_all(self.target, self.remote):
            run = run_at(known.runs, record.offset - k)
            said = None if run is None else run.upstream_of(record.offset - k)
            if record.value in upstream and said != upstream[record.value]:
                wrong.append((record.offset, record.value, said, upstream[record.value]))
        assert not wrong, (wrong, known.runs)

    def map(self) -> PartitionMap:
        """Return the newest map of the partition. After the remote topic was re-created, this is
        the map of the new topic.
        """
        reader = MapReader(self.target_client, offset_map_topic(self.alias), MAP_PARTITIONS)
        ids = self.target_client.metadata([self.remote]).topics[self.remote].topic_id
        found = [m for key, m in reader.read().items() if key.target_topic_id == ids]
        return max(found, key=lambda m: m.term)

    def claim(self) -> Claim:
        """Return the flow's newest claim in the state topic."""
        claim = self.history().latest
        assert claim is not None
        return claim

    def history(self) -> FlowHistory:
        """Return the history of the flow's claims in the state topic."""
        rows = read_to_end(self.target_client, STATE_TOPIC, 0)
        return winning_claims((r.key, r.value) for r in rows)[self.flow]

    def producers(self) -> Mapping[int, ProducerState]:
        """Return the state of each producer ID that the target remembers for the partition."""
        found = describe_producers(self.target_client, [self.there])[self.there]
        assert not isinstance(found, TwinlogError), found
        return found

    def forgotten(self) -> None:
        """Wait until the target has expired all producer IDs of the partition."""
        eventually(lambda: not self.producers(), what="the expiry of every producer id")

    @contextmanager
    def target_forgets_after(self, ms: int) -> Iterator[None]:
        """Change the target's producer.id.expiration.ms within the block."""
        alter_broker_configs(self.target, {"producer.id.expiration.ms": str(ms)})
        try:
            yield
        finally:
            alter_broker_configs(self.target, {"producer.id.expiration.ms": str(DAY_MS)})


def alter_broker_configs(cluster: LocalCluster, configs: Mapping[str, str]) -> None:
    """Set dynamic configs of the only broker."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    client = topics.admin(cluster)
    for answer in client.incremental_alter_configs([resource]).values():
        answer.result(PATIENCE_S)


def _numbered(seen: Sequence[Seen]) -> list[Numbered]:
    return [
        Numbered(
            r.partition,
            r.key,
            r.value,
            r.headers,
            -1 if r.timestamp_type == LOG_APPEND_TIME else r.timestamp,
        )
        for r in seen
    ]


def _plain(records: Iterable[Numbered]) -> list[int]:
    return [int((r.value or b"").rstrip(b".")[1:]) for r in records]


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def freeze(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def arrived(rig: Rig) -> int:
    """Return the number of records on the target, summed over all partitions."""
    return sum(topics.end_offsets(rig.target, rig.remote).values())


def send_signals(pids: Iterable[int], number: signal.Signals) -> None:
    """Send the signal to those of the processes that still exist."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # the process's lease has just ended
