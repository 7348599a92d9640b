"""When the source side of a lane queries the leaders of partitions, although every Fetch response
is valid: the responses may be stale.
"""

import selectors
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tests.support.driver import HandClock, work_of
from twinlog.cluster.net.framing import FramePool
from twinlog.errors import CorruptData
from twinlog.lane.sides import near_replicas
from twinlog.lane.sides.cluster_side import ClusterSide, Leader
from twinlog.lane.sides.near_replicas import NearReplicas
from twinlog.lane.sides.pace import TopicBuckets
from twinlog.lane.sides.source_side import REFRESH_EVERY_S, SourceSide, SourceState, WaitsFor
from twinlog.model import NO_TOPIC_ID, Isolation, TopicPartition
from twinlog.wire.fetch import FETCH, VERSION_BY_NAME, FetchedPartition

TP = TopicPartition("orders", 0)
LEADER, NEAR = 1, 2


class Copied:
    """A copy that has no batch to send."""

    source = TP
    source_topic_id = NO_TOPIC_ID
    queued_bytes = 0
    wants_fetch = True
    intake: Any


class Brokers(ClusterSide):
    """A cluster whose brokers cannot be reached."""

    def connection_to(self, node: int) -> None:
        return None


class Rig:
    def __init__(self) -> None:
        self.clock, work = HandClock(), work_of()
        self.selector = selectors.DefaultSelector()
        self.side = Brokers(
            settings=work.source,
            background=cast("Any", None),
            selector=self.selector,
            pool=FramePool(0),
            clock=self.clock,
        )
        self.side.leaders[TP] = Leader(LEADER, 0)
        self.source = SourceSide(
            side=self.side,
            clock=self.clock,
            isolation=Isolation.READ_UNCOMMITTED,
            memory_bytes=1 << 30,
            events=cast("Any", None),
            pace=TopicBuckets(self.clock, has_budget=False),
            tuning=work.tuning,
        )
        self.state = self.source.partitions[TP] = SourceState(cast("Any", Copied()))

    def is_read_from(self, node: int) -> None:
        self.source._enter(self.state, WaitsFor.RECORDS, node)

    def asks(self, after_s: float) -> bool:
        """Move the clock. Return True if the topic's metadata is requested after that."""
        self.clock.now += after_s
        self.source.pump(hurry=False)
        wanted, self.side._wanted_topics = self.side._wanted_topics, set()
        assert wanted <= {TP.topic}
        return bool(wanted)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.selector.close()


def test_leaders_of_idle_partitions_are_queried_once_a_minute(rig: Rig) -> None:
    rig.is_read_from(LEADER)
    assert not rig.asks(after_s=REFRESH_EVERY_S - 1)
    assert rig.asks(after_s=1)
    assert not rig.asks(after_s=REFRESH_EVERY_S - 1)
    assert rig.asks(after_s=1)


def test_leader_is_queried_again_although_a_near_replica_has_nothing_new(rig: Rig) -> None:
    rig.source._near.prefer(TP, NEAR)
    rig.is_read_from(NEAR)
    rig.asks(after_s=near_replicas.PREFERRED_FOR_S)
    assert (rig.state.waits_for, rig.state.node) == (WaitsFor.RECORDS, NEAR)
    rig.asks(after_s=REFRESH_EVERY_S + 1)
    assert rig.state.waits_for is WaitsFor.BROKER
    assert rig.source._near.broker_to_read(TP, LEADER) == LEADER


MB = 1 << 20


def fetched_from(tp: TopicPartition) -> FetchedPartition:
    return FetchedPartition(
        tp=tp,
        error=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start=0,
        aborted=(),
        diverging=None,
        preferred_replica=-1,
        records=memoryview(bytearray(1)),
    )


class Asked:
    """A connection to a broker that records the Fetch requests."""

    may_send = True
    api_versions: Final = {FETCH: (0, VERSION_BY_NAME)}

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []

    def submit(self, _key: int, _version: int, parts: list[bytes], _broker: object) -> None:
        self.requests.append(parts)

    @property
    def most_bytes(self) -> int:
        """Maximum bytes that the last request allows for its response."""
        _, _, _, most_bytes = struct.unpack_from(">iiii", self.requests[-1][0])
        return int(most_bytes)


def reached(rig: Rig, monkeypatch: pytest.MonkeyPatch, brokers: int) -> list[Asked]:
    """Let the rig reach this many brokers, each of which leads one partition. Return their
    connections.
    """
    connections = [Asked() for _ in range(brokers)]
    monkeypatch.setattr(Brokers, "connection_to", lambda _self, node: connections[node])
    monkeypatch.setattr(Brokers, "flush", lambda _self, _node, _connection: None)
    for node in range(brokers):
        copied = Copied()
        copied.source = TopicPartition("orders", node)
        copied.intake = SimpleNamespace(position=0, last_fetched_epoch=-1)
        rig.side.leaders[copied.source] = Leader(node, 0)
        rig.source.add(cast("Any", copied))
    return connections


@pytest.mark.parametrize(("brokers", "most"), [(1, 8 * MB), (8, 8 * MB), (16, 4 * MB), (99, MB)])
def test_responses_of_many_brokers_together_fit_into_the_memory(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, brokers: int, most: int
) -> None:
    rig.source.memory_bytes = 64 * MB
    connections = reached(rig, monkeypatch, brokers)
    rig.source.pump(hurry=False)
    assert [one.most_bytes for one in connections] == [most] * brokers


def test_fetch_names_no_rack_while_the_replica_there_is_avoided(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a Fetch names a rack in which the leader knows a replica, the leader returns no records.
    Thus a partition whose nearby replica fails, although the leader still names that replica, would
    never be read.
    """
    (leader,) = reached(rig, monkeypatch, brokers=1)
    near = rig.source._near = NearReplicas("rack-2", rig.clock)
    for fails in (False, True, False):
        if fails:
            near.avoid(TP)
        rig.source.pump(hurry=False)
        rig.source._brokers[0].is_fetching = False
        assert (b"rack-2" in leader.requests[-1][-1]) is not fails
        rig.clock.now += near_replicas.AVOIDED_FOR_S if fails else 0


@pytest.mark.parametrize("node", [LEADER, NEAR])
def test_records_that_are_damaged_on_a_near_replica_are_read_from_the_leader(
    rig: Rig, node: int
) -> None:
    """A damaged replica does not show that the leader's records are damaged, too. If the partition
    stopped, an operator could skip records that the leader still has.
    """
    troubled: list[TopicPartition] = []
    rig.source.events = cast(
        "Any", SimpleNamespace(on_troubled=lambda tp, _error: troubled.append(tp))
    )
    copy: Any = rig.state.copy
    copy.intake = SimpleNamespace(position=0, jumps=[(0, 3)])

    def on_fetched(*_: object) -> None:
        raise CorruptData("its CRC is wrong")

    copy.on_fetched = on_fetched
    rig.source._near.prefer(TP, NEAR)
    rig.is_read_from(node)
    assert not rig.source._queue_records(rig.state, fetched_from(TP))
    assert troubled == ([TP] if node == LEADER else [])
    assert rig.source._near.avoids_any((TP,)) is (node == NEAR)
    assert (rig.state.waits_for is WaitsFor.BROKER) is (node == NEAR)
