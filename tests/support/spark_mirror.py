"""Orders for tests of the command on real Spark, and a check that all orders have arrived."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from tests.support.client import Outgoing, Seen, produce, read_all
from tests.support.command import write_config
from tests.support.eventually import eventually
from tests.support.topics import end_offsets, log_size
from twinlog.sandbox import LocalCluster

PARTITIONS = 4


def alias_of(topic: str) -> str:
    """Return the target alias of this test's flow. Other tests lead their own flows on the same
    clusters.
    """
    return f"B{topic[-8:]}"


def config(
    folder: Path, source: LocalCluster, target: LocalCluster, topic: str, **more: str
) -> Path:
    folder.mkdir(exist_ok=True)
    there = alias_of(topic)
    return write_config(
        folder / "mm2.properties",
        {
            "clusters": f"A, {there}",
            "A.bootstrap.servers": source.bootstrap,
            f"{there}.bootstrap.servers": target.bootstrap,
            f"A->{there}.enabled": "true",
            f"A->{there}.topics": topic,
            "replication.factor": 1,
            # the clusters are shared, so other tests' heartbeats would be copied
            "emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false",
            **more,
        },
    )


def orders(count: int, *, begin: int = 0) -> Iterator[Outgoing]:
    for number in range(begin, begin + count):
        yield Outgoing(
            key=b"customer-%d" % (number % 97),
            value=None if number % 50 == 7 else b"order %d" % number + b"." * (number % 300),
            headers=(("trace", b"%d" % number), ("trace", None), ("", b"")),
            partition=number % PARTITIONS,
        )


def as_copied(records: list[Seen]) -> list[tuple[object, ...]]:
    """Return the content of the records without their offsets, which gaps at the source may
    shift.
    """
    return [(r.partition, r.key, r.value, r.headers, r.timestamp) for r in records]


def assert_identical(source: LocalCluster, target: LocalCluster, topic: str) -> int:
    here = as_copied(read_all(source, topic, isolation="read_committed"))
    there = as_copied(read_all(target, f"A.{topic}"))
    assert len(there) == len(here)
    assert there == here
    return len(here)


class Load:
    """Produces 1,000 records per second in its own thread until it is stopped."""

    def __init__(self, cluster: LocalCluster, topic: str, first: int) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, topic, first))
        self._thread.start()

    def _run(self, cluster: LocalCluster, topic: str, first: int) -> None:
        while not self._stop.wait(0.2):
            produce(cluster, topic, orders(200, begin=first), codec="lz4")
            first += 200

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def arrived(target: LocalCluster, topic: str) -> int:
    return arrived_in(target, f"A.{topic}")


def arrived_in(target: LocalCluster, remote: str) -> int:
    try:
        return log_size(target, remote)
    except KafkaException:
        return 0  # the topic is just being created


def caught_up(source: LocalCluster, target: LocalCluster, topic: str) -> bool:
    return sum(end_offsets(source, topic).values()) == arrived(target, topic)


@dataclass(slots=True, kw_only=True)
class Orders:
    """A topic of orders, and the configuration file of a mirror that copies it."""

    source: LocalCluster
    target: LocalCluster
    topic: str
    file: Path
    produced: int = 0

    @property
    def flow(self) -> str:
        return f"A->{alias_of(self.topic)}"

    def produce(self, count: int) -> None:
        produce(self.source, self.topic, orders(count, begin=self.produced))
        self.produced += count

    def arrive(self) -> bool:
        """Wait until the copy has as many records as were produced."""
        return bool(eventually(self.are_copied, what=f"{self.produced} records"))

    def are_copied(self) -> bool:
        return arrived(self.target, self.topic) == self.produced

    def are_identical(self) -> bool:
        return assert_identical(self.source, self.target, self.topic) == self.produced
