"""The blocking client under a quota waits, and reads everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records
from twinlog.cluster.net.metadata import (
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from twinlog.cluster.net.read_size import LEAST_BYTES
from twinlog.cluster.net.retry import Patience
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import BrokerRefused, Disconnected, Fate, TwinlogError
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

TOPIC: Final = "A.orders"
BATCH_BYTES: Final = 10_000


def batch(offset: int) -> bytes:
    record = Record(offset=offset, timestamp=1, key=None, value=b"v" * BATCH_BYTES)
    return bytes(encode_batch([record], codec=Codec.NONE, base_offset=offset))


@dataclass
class Quota:
    """A broker with logs of batches of one record each, and a quota in bytes per second, which it
    averages over ten seconds.

    It responds as Kafka's brokers do: if the response would exceed the rest of the quota, the
    response has no topics (`ClientQuotaManager`, `FetchContext.getThrottledResponse`). Then it
    mutes the connection.
    """

    bytes_s: float
    batches: int = 200
    now: float = 0.0
    muted_until: float = 0.0
    passed: list[tuple[float, int]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    fails_at: int = -1

    def answer(self, request: Any) -> Any:
        assert self.now >= self.muted_until, "asked while it does not read"
        if len(self.asked) == self.fails_at:
            self.fails_at = -1
            raise Disconnected("broken")
        self.asked.append(request.max_bytes)
        room = min(request.max_bytes, int(self.bytes_s * 10))
        responses, total = [], 0
        for topic in request.topics:
            found = []
            for one in topic.partitions:
                records = b""
                most = min(one.partition_max_bytes, room - total)
                for offset in range(one.fetch_offset, self.batches):
                    if (total or records) and len(records) + len(batch(offset)) > most:
                        break
                    records += batch(offset)
                total += len(records)
                found.append(
                    SimpleNamespace(
                        partition_index=one.partition,
                        error_code=0,
                        records=records,
                        high_watermark=self.batches,
                        last_stable_offset=self.batches,
                        log_start_offset=0,
                        aborted_transactions=None,
                    )
                )
            responses.append(SimpleNamespace(topic=topic.topic, partitions=found))
        self.passed = [(at, size) for at, size in self.passed if at > self.now - 10]
        over = sum(size for _, size in self.passed) + total - self.bytes_s * 10
        if over > 0:
            mute_ms = int(1000 * over / self.bytes_s) + 1
            self.muted_until = self.now + mute_ms / 1000
            return SimpleNamespace(responses=[], throttle_time_ms=mute_ms)
        self.passed.append((self.now, total))
        return SimpleNamespace(responses=responses, throttle_time_ms=0)


class OneBroker(ClusterClient):
    """A client whose only broker is in memory. The broker can mute the only connection."""

    def __init__(self, quota: Quota, partitions: int = 1) -> None:
        self.quota = quota
        patience = Patience(
            clock=lambda: quota.now, sleep=self._sleep, uniform=lambda _, most: most
        )
        super().__init__(
            ClusterSettings(alias="B", bootstrap=(("b", 1),), client_id="us"), patience=patience
        )
        self._topic = TopicMetadata(
            name=TOPIC,
            topic_id=TopicId("a" * 32),
            is_internal=False,
            error=0,
            partitions=tuple(
                PartitionMetadata(
                    number=n, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), error=0
                )
                for n in range(partitions)
            ),
        )

    def _sleep(self, seconds: float) -> None:
        self.quota.now += seconds

    def metadata(self, *_: Any, **__: Any) -> ClusterMetadata:
        broker = Broker(node=1, host="b", port=1, rack=None)
        return ClusterMetadata(
            cluster_id="c", controller=1, brokers={1: broker}, topics={TOPIC: self._topic}
        )

    def connection_to(self, node: int | None) -> Any:
        quota = self.quota

        class Connection:
            host, port = "b", 1
            muted_s = max(0.0, quota.muted_until - quota.now)

            def request(self, request: Any, **_: Any) -> Any:
                return quota.answer(request)

        return Connection()


def values(found: FetchedRecords | TwinlogError) -> list[int]:
    assert not isinstance(found, TwinlogError), found
    return [header.base_offset for header, _ in read_headers(found.records)]


@pytest.mark.parametrize("bytes_s", [10_000.0, 50_000.0, 200_000.0])
def test_a_quota_slows_reading_down_without_losing_records(bytes_s: float) -> None:
    quota = Quota(bytes_s)
    client = OneBroker(quota)
    position = 0
    while position < quota.batches:
        tp = TopicPartition(TOPIC, 0)
        found = values(fetch_records(client, {tp: (position, 100_000)})[tp])
        assert found == list(range(position, position + len(found)))
        assert len(found) >= min(4, quota.batches - position), "half of what was asked for"
        position += len(found)
    wanted_s = quota.batches * BATCH_BYTES / bytes_s
    assert wanted_s - 12 < quota.now < 2 * wanted_s + 12
    assert client.muted_until > 0


def test_many_partitions_are_read_in_few_requests() -> None:
    quota = Quota(1e9, batches=2)
    tps = [TopicPartition(TOPIC, n) for n in range(300)]
    found = fetch_records(OneBroker(quota, 300), dict.fromkeys(tps, (0, 1 << 20)))
    assert all(values(found[tp]) == [0, 1] for tp in tps)
    assert len(quota.asked) == 1


def test_many_partitions_pass_under_a_quota() -> None:
    quota = Quota(50_000.0, batches=40)
    tps = [TopicPartition(TOPIC, n) for n in range(10)]
    found = fetch_records(OneBroker(quota, 10), dict.fromkeys(tps, (0, 400_000)))
    for tp in tps:
        read = values(found[tp])
        assert read and read == list(range(len(read)))
    assert min(quota.asked) >= LEAST_BYTES
    assert quota.now < 10 * 400_000 / quota.bytes_s + 12


def test_records_before_a_broken_connection_are_kept() -> None:
    quota = Quota(50_000.0, batches=40, fails_at=4)
    tps = [TopicPartition(TOPIC, n) for n in range(4)]
    found = fetch_records(OneBroker(quota, 4), dict.fromkeys(tps, (0, 400000)))
    assert all(values(found[tp])[0] == 0 for tp in tps)
    assert sum(size for _, size in quota.passed) < 4 * 500_000


def test_a_batch_that_no_quota_lets_pass_is_reported_in_the_end() -> None:
    quota = Quota(100.0)
    tp = TopicPartition(TOPIC, 0)
    found = fetch_records(OneBroker(quota), {tp: (0, 1)})[tp]
    assert isinstance(found, BrokerRefused)
    assert found.code == "THROTTLING_QUOTA_EXCEEDED"
    assert "consumer_byte_rate of client ID us" in found.message
    assert quota.now > 60


def test_the_time_of_a_mute_is_no_time_of_a_call() -> None:
    quota = Quota(1e9, muted_until=100.0)
    client = OneBroker(quota)
    deadline, may_retry = client.deadline(5.0), client.retriable_now()
    missing = BrokerRefused("not there", code="TOPIC_MISSING", fate=Fate.RETRIABLE)
    tp = TopicPartition(TOPIC, 0)
    assert values(fetch_records(client, {tp: (0, 1)})[tp]) == [0]
    assert quota.now >= 100.0
    assert not deadline.has_passed
    assert may_retry(missing)
