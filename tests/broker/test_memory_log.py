"""The in-memory log (`tests/support/memory_log.py`) behaves like a broker. Random steps are applied
to both, and every response, log end, producer state and record is compared.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest

from tests.support.memory_log import REMEMBERED, Answer, MemoryLog, MemoryView
from tests.support.raw import Writer, send
from tests.support.settings import settings_for
from tests.support.topics import create_topic, delete_records
from twinlog.cluster.client import ClusterClient
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.mirror.ports import LogEnds, LogView, ProducerTail
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import read_headers
from twinlog.wire.records import Record, decode_batch

pytestmark = pytest.mark.broker

STEPS: Final = 250
PRODUCERS: Final = 3
NOW_MS: Final = int(time.time() * 1000)


@dataclass
class OnBroker:
    """One partition of a topic on a real broker. Implements `Log`."""

    client: ClusterClient
    cluster: LocalCluster
    tp: TopicPartition

    @property
    def view(self) -> LogView:
        return ClusterLogView(self.client)

    def append(self, batch: bytearray) -> Answer:
        return Answer(*send(self.client, self.tp, batch))

    def delete_before(self, offset: int) -> None:
        delete_records(self.cluster, self.tp.topic, self.tp.partition, offset)


@dataclass
class InMemory:
    """The same partition in memory. Implements `Log`."""

    tp: TopicPartition
    log: MemoryLog = field(default_factory=MemoryLog)

    @property
    def view(self) -> LogView:
        return MemoryView({self.tp: self.log}, NO_TOPIC_ID)

    def append(self, batch: bytearray) -> Answer:
        return self.log.append(bytes(batch))

    def delete_before(self, offset: int) -> None:
        self.log.delete_before(offset)


Log = OnBroker | InMemory


@pytest.fixture
def pair(target_cluster: LocalCluster, fresh_topic: str) -> Iterator[tuple[OnBroker, InMemory]]:
    create_topic(target_cluster, fresh_topic)
    tp = TopicPartition(fresh_topic, 0)
    with ClusterClient(settings_for(target_cluster.bootstrap)) as client:
        yield OnBroker(client, target_cluster, tp), InMemory(tp)


def ends_of(log: Log) -> tuple[int, int]:
    found: LogEnds = log.view.ends({log.tp})[log.tp]
    return found.log_start, found.log_end


def producers_of(log: Log, ids: list[int]) -> dict[int, ProducerTail | None]:
    view = log.view
    return {one: (view.producers({log.tp}, one) or {}).get(log.tp) for one in ids}


def batches_of(log: Log, offset: int) -> list[tuple[int, int, int, int, list[bytes | None]]]:
    """Return the log's batches from the one that contains `offset`, including aborted ones."""
    raw = log.view.read({log.tp: offset})[log.tp].records
    return [
        (
            header.base_offset,
            header.last_offset,
            header.producer_id,
            header.base_sequence,
            [record.value for record in decode_batch(raw[at : at + header.length])],
        )
        for header, at in read_headers(raw)
    ]


@dataclass
class Batches:
    """The batches of one producer, each of which may be sent again."""

    writer: Writer
    sequence: int = 0
    sent: deque[bytearray] = field(default_factory=lambda: deque(maxlen=2 * REMEMBERED))

    def next(self, values: list[bytes], sequence: int | None = None) -> bytearray:
        records = [Record(0, NOW_MS + at, b"k", value) for at, value in enumerate(values)]
        batch = self.writer.batch(records, self.sequence if sequence is None else sequence)
        if sequence is None:
            self.sequence += len(values)
            self.sent.append(batch)
        return batch


def step(rng: random.Random, number: int, of: Batches) -> bytearray:
    """Return a random batch to send: the next one, a repeated one, one after a gap, or one with
    other records and a sequence that was already used.
    """
    values = [b"%d-%d" % (number, at) for at in range(rng.randint(1, 3))]
    choice = rng.random()
    if choice < 0.55 or not of.sent:
        return of.next(values)
    if choice < 0.8:
        return bytearray(rng.choice(list(of.sent)))
    if choice < 0.9:
        return of.next(values, of.sequence + rng.randint(1, 3))
    return of.next(values, max(0, of.sequence - rng.randint(1, 4)))


@pytest.mark.witness("the in-memory log responds like a broker", case="1")
@pytest.mark.parametrize("seed", [1, 2])
def test_same_steps_get_the_same_answers(pair: tuple[OnBroker, InMemory], seed: int) -> None:
    there, here = pair
    rng = random.Random(seed)
    first = 1_000_000 * seed
    ids = [first + at for at in range(PRODUCERS + 1)]  # the last producer ID writes nothing
    writers = [
        Batches(Writer(there.client, there.tp, one), sequence=rng.choice([0, 77]))
        for one in ids[:PRODUCERS]
    ]
    refused = repeated = 0
    for number in range(STEPS):
        if rng.random() < 0.03 and here.log.end > here.log.log_start:
            offset = rng.randint(here.log.log_start, here.log.end)
            there.delete_before(offset)
            here.delete_before(offset)
        batch = step(rng, number, rng.choice(writers))
        before = here.log.end
        answers = there.append(bytearray(batch)), here.append(batch)
        assert answers[0] == answers[1], number
        refused += answers[1].error != 0
        repeated += answers[1].error == 0 and answers[1].base_offset < before
        assert ends_of(there) == ends_of(here), number
        if number % 10 == 0:
            assert producers_of(there, ids) == producers_of(here, ids), number
            at = rng.randint(here.log.log_start, here.log.end)
            assert batches_of(there, at) == batches_of(here, at), (number, at)
    assert producers_of(there, ids) == producers_of(here, ids)
    assert batches_of(there, here.log.log_start) == batches_of(here, here.log.log_start)
    assert refused > 10
    assert repeated > 10
