"""A distant in-memory broker: logs, and connections with long round trips."""

from __future__ import annotations

import random
import selectors
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.support.driver import HandClock, work_of
from tests.support.one_copy import batch, control, of_producer
from twinlog.cluster.net.framing import FramePool
from twinlog.errors import Disconnected
from twinlog.lane.sides.cluster_side import ClusterSide, Leader
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.fetch import FETCH, VERSION_BY_ID

TOPIC: Final = "orders"
TOPIC_ID: Final = TopicId("0123456789abcdef" * 2)
NODE: Final = 1
TRIP_S: Final = 0.1
PRODUCERS: Final = (50, 51, 52)
READ_COMMITTED: Final = 1
FENCED_LEADER_EPOCH: Final = 74
_TOPIC = FetchResponse.FetchableTopicResponse
_PARTITION = _TOPIC.PartitionData


@dataclass
class Log:
    """A log with batches of random sizes. A read begins with the batch that contains the offset.
    The first batch of a response is complete, and the last one is truncated.
    """

    chance: random.Random
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer ID, first offset and marker's offset of each aborted transaction."""
    kept: list[int] = field(default_factory=list)
    """Offsets of all batches that a read_committed consumer receives."""

    def transact(self, count: int, sizes: Sequence[int]) -> None:
        """Write `count` batches of interleaved transactions, about half of which are aborted."""
        begun: dict[int, list[int]] = {}
        for _ in range(count):
            producer = self.chance.choice(PRODUCERS)
            records = self.chance.randint(1, 5)
            value = b"v" * self.chance.choice(sizes)
            begun.setdefault(producer, []).append(self.end)
            self.batches.append((self.end, of_producer(self.end, records, producer, value=value)))
            self.end += records
            # transactions of the last producer are long
            if self.chance.random() < (0.02 if producer == PRODUCERS[-1] else 0.4):
                self._end_transaction(producer, begun.pop(producer))
        for producer, written in begun.items():
            self._end_transaction(producer, written)
        self.kept.sort()

    def _end_transaction(self, producer: int, written: list[int]) -> None:
        commits = self.chance.random() < 0.5
        if commits:
            self.kept += written
        else:
            self.aborted.append((producer, written[0], self.end))
        self.batches.append((self.end, control(self.end, producer, commit=commits)))
        self.end += 1

    def aborted_in(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted transactions that a broker would list: those with a marker at or after
        `offset` that begin before `end`.
        """
        return [
            (producer, first)
            for producer, first, marker in self.aborted
            if marker >= offset and first < end
        ]

    def write(self, count: int, sizes: Sequence[int]) -> None:
        for _ in range(count):
            records = self.chance.randint(1, 5)
            value = b"v" * self.chance.choice(sizes)
            self.batches.append((self.end, batch(self.end, records, value=value)))
            self.end += records

    def read(self, offset: int, most: int) -> bytes:
        ends = [base for base, _ in self.batches[1:]] + [self.end]
        wanted = [one for (_, one), end in zip(self.batches, ends, strict=True) if end > offset]
        return b"".join(wanted)[: max(most, len(wanted[0]))] if wanted else b""

    def compact(self) -> None:
        """Remove random batches, but never the last one."""
        kept = [one for one in self.batches[:-1] if self.chance.random() > 0.3]
        self.batches = [*kept, self.batches[-1]]


class FarConnection:
    """A connection whose requests are answered in order after a round trip."""

    def __init__(self, broker: FarBroker) -> None:
        self._broker = broker
        self._due: list[tuple[float, Any, bytes]] = []
        self.api_versions = {FETCH: (4, VERSION_BY_ID)}
        self.peer, self.trip_s, self.may_send = "far", TRIP_S, True
        self.waiting_since, self.wants_write, self.is_ending = None, False, False
        self.is_lost = False

    @property
    def in_flight(self) -> int:
        return len(self._due)

    def submit(self, key: int, version: int, parts: Sequence[bytes], context: object) -> None:
        assert key == FETCH
        request = FetchRequest.decode(b"".join(parts), version=version)
        at = self._broker.clock.now + TRIP_S * self._broker.chance.uniform(1, 1.5)
        at = max([at, *(one for one, _, _ in self._due)])
        self._due.append((at, context, self._broker.answer(request, version)))

    def receive(self) -> list[tuple[Any, memoryview]]:
        if self.is_lost:
            raise Disconnected("lost")
        now = self._broker.clock.now
        arrived = [(one, memoryview(bytearray(body))) for at, one, body in self._due if at <= now]
        self._due = self._due[len(arrived) :]
        return arrived


class FarBroker(ClusterSide):
    """A cluster with one distant broker."""

    def __init__(self, chance: random.Random, logs: Sequence[Log]) -> None:
        self.chance, self.logs = chance, logs
        self.hand_clock = HandClock()
        super().__init__(
            settings=work_of().source,
            background=cast("Any", None),
            selector=selectors.DefaultSelector(),
            pool=FramePool(0),
            clock=self.hand_clock,
        )
        self.clock: HandClock = self.hand_clock
        self.topic_ids[TOPIC] = TOPIC_ID
        self.epoch = 3
        self.requests_outside_of_sessions = self.returned_bytes = 0
        self._in_session: dict[int, tuple[int, int, int]] = {}
        self.elect(self.epoch)

    def elect(self, epoch: int) -> None:
        self.epoch = epoch
        for number in range(len(self.logs)):
            self.leaders[TopicPartition(TOPIC, number)] = Leader(NODE, epoch)

    def lose_one(self) -> None:
        """Break one of the connections."""
        if self.connections:
            cast("Any", self.chance.choice(list(self.connections.values()))).is_lost = True

    def connection_to(self, node: int) -> Any:
        return self.connections.setdefault(node, cast("Any", FarConnection(self)))

    def flush(self, node: int, connection: Any) -> None:
        assert self.connections[node] is connection

    def on_throttled(self, connection: Any, ms: int) -> None:
        assert not ms

    def answer(self, request: Any, version: int) -> bytes:
        named: dict[int, tuple[int, int, int]] = {
            one.partition: (one.fetch_offset, one.partition_max_bytes, one.current_leader_epoch)
            for topic in request.topics
            for one in topic.partitions
        }
        is_kept = request.session_epoch >= 0
        wanted = named
        if not is_kept:
            self.requests_outside_of_sessions += 1
        else:
            if request.session_epoch == 0:
                self._in_session = {}
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    self._in_session.pop(number, None)
            self._in_session |= named
            wanted = self._in_session
        room, partitions = request.max_bytes, []
        for number, (offset, most, epoch) in wanted.items():
            error = 0 if epoch in (-1, self.epoch) else FENCED_LEADER_EPOCH
            log = self.logs[number]
            records = b"" if error or room <= 0 else log.read(offset, min(most, room))
            room -= len(records)
            aborted = None
            if request.isolation_level == READ_COMMITTED:
                aborted = [
                    _PARTITION.AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first in log.aborted_in(offset, log.end)
                ]
            self.returned_bytes += len(records)
            partitions.append(
                _PARTITION(
                    partition_index=number,
                    error_code=error,
                    high_watermark=log.end,
                    last_stable_offset=log.end,
                    log_start_offset=0,
                    aborted_transactions=aborted,
                    preferred_read_replica=-1,
                    records=records,
                )
            )
        response = FetchResponse(
            throttle_time_ms=0,
            error_code=0,
            session_id=77 if is_kept else 0,
            responses=[_TOPIC(topic_id=TOPIC_ID, partitions=partitions)] if partitions else [],
        )
        return bytes(response.encode(version=version))
