"""A lane finds the leaders of partitions in the metadata of brokers, some of which are stale."""

import selectors
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.driver import HandClock, work_of
from twinlog.cluster.net.framing import FramePool
from twinlog.cluster.net.metadata import (
    NO_EPOCH,
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from twinlog.errors import TwinlogError
from twinlog.lane.sides.cluster_side import LEADERLESS_PAUSE_S, OLDER_FOR_S, ClusterSide, Leader
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition

TP = TopicPartition("orders", 0)
FIRST, SECOND = TopicId("01" * 16), TopicId("02" * 16)
BROKERS = {
    node: Broker(node=node, host="127.0.0.1", port=9092 + node, rack=None) for node in (1, 2)
}


@dataclass
class Client:
    """Returns the metadata that the test has set, as a broker would."""

    answer: ClusterMetadata | None = None
    asked: int = 0
    closed: int = 0

    def metadata(self, topics: list[str]) -> ClusterMetadata:
        assert topics == [TP.topic]
        assert self.answer is not None
        self.asked += 1
        return self.answer

    def close(self) -> None:
        self.closed += 1


@dataclass
class Jobs:
    """Runs background jobs immediately."""

    is_closed: bool = False

    def submit(self, _: object, job: Any, then: Any, otherwise: Any) -> None:
        try:
            found = job()
        except TwinlogError as error:
            otherwise(error)
        else:
            then(found)


@dataclass
class Rig:
    clock: HandClock = field(default_factory=HandClock)
    client: Client = field(default_factory=Client)

    def __post_init__(self) -> None:
        self.side = ClusterSide(
            settings=work_of().source,
            background=cast("Any", Jobs()),
            selector=selectors.DefaultSelector(),
            pool=FramePool(0),
            clock=self.clock,
        )
        self.side._idle.append(cast("Any", self.client))

    def hears(
        self, leader: int, epoch: int, *, topic_id: TopicId = FIRST, after_s: float = 0.0
    ) -> Leader | None:
        """Return the leader that the side uses after a broker has returned this metadata."""
        partition = PartitionMetadata(
            number=0, leader=leader, leader_epoch=epoch, replicas=(1, 2), isr=(1, 2), error=0
        )
        topic = TopicMetadata(
            name=TP.topic, topic_id=topic_id, is_internal=False, error=0, partitions=(partition,)
        )
        self.client.answer = ClusterMetadata(
            cluster_id="c", controller=1, brokers=BROKERS, topics={TP.topic: topic}
        )
        self.clock.now += after_s
        self.side.need_topics((TP.topic,))
        asked = self.client.asked
        self.side.tick()
        assert self.client.asked == asked + 1
        return self.side.leaders.get(TP)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("host", ["kafka-2..svc", "a" * 64 + ".svc", "kafka\0"])
def test_broker_with_an_impossible_name_is_not_reached_and_ends_no_lane(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    wrong = {2: Broker(node=2, host=host, port=9092, rack=None)}
    monkeypatch.setitem(globals(), "BROKERS", BROKERS | wrong)
    assert rig.hears(2, 4) == Leader(2, 4)
    assert rig.side.connection_to(2) is None
    assert list(rig.side.unreached) == [2]
    assert rig.side.problem is not None
    assert rig.side.problem.code == "UNREACHABLE"


PAUSE_S = LEADERLESS_PAUSE_S


def test_newer_leader_is_kept_despite_a_stale_response(rig: Rig) -> None:
    assert rig.hears(1, 4) == Leader(1, 4)
    assert rig.hears(2, 5) == Leader(2, 5)
    assert rig.hears(1, 4) == Leader(2, 5)
    # the broker that saw no leader has older metadata
    assert rig.hears(-1, 4, after_s=PAUSE_S) == Leader(2, 5)
    assert TP not in rig.side.leaderless


def test_replaced_leader_is_not_taken_where_the_newer_one_is_not_known_any_more(rig: Rig) -> None:
    rig.hears(2, 5)
    rig.side.forget_leader(TP)
    assert rig.hears(1, 4) is None
    assert rig.client.closed == 0
    assert rig.hears(2, 5, after_s=PAUSE_S) == Leader(2, 5)
    assert rig.client.closed == 1, "who was behind is asked again"


def test_broker_that_does_not_know_that_it_leads_is_not_queried_without_a_pause(rig: Rig) -> None:
    rig.hears(1, 4)
    asked = rig.client.asked
    for _ in range(10):
        rig.side.forget_leader(TP)
        rig.side.tick()
    assert rig.client.asked == asked + 1
    assert rig.hears(1, 4, after_s=PAUSE_S) == Leader(1, 4)
    assert rig.client.closed == 1, "the metadata may be stale, so another broker is queried"
    assert rig.hears(1, 4, after_s=PAUSE_S) == rig.hears(1, 4) == Leader(1, 4)


def test_queries_end_and_a_cluster_with_permanently_older_epochs_is_accepted(
    rig: Rig,
) -> None:
    rig.hears(2, 5)
    for _ in range(int(OLDER_FOR_S / PAUSE_S)):
        assert rig.hears(1, 3, after_s=PAUSE_S) == Leader(2, 5)
    assert rig.hears(1, 3, after_s=PAUSE_S) == Leader(1, 3)
    asked = rig.client.asked
    rig.clock.now += PAUSE_S
    rig.side.tick()
    assert rig.client.asked == asked


def test_seconds_begin_again_with_every_broker_that_is_not_behind(rig: Rig) -> None:
    rig.hears(2, 5)
    for _ in range(int(2 * OLDER_FOR_S / PAUSE_S)):
        assert rig.hears(1, 4, after_s=PAUSE_S) == Leader(2, 5)
        assert rig.hears(2, 5, after_s=PAUSE_S) == Leader(2, 5)


def test_epochs_of_a_topic_that_was_recreated_begin_again(rig: Rig) -> None:
    rig.hears(2, 5)
    assert rig.hears(1, 0, topic_id=SECOND) == Leader(1, 0)


@pytest.mark.parametrize(("topic_id", "epoch"), [(NO_TOPIC_ID, 0), (FIRST, NO_EPOCH)])
def test_each_answer_counts_where_nothing_tells_which_is_older(
    rig: Rig, topic_id: TopicId, epoch: int
) -> None:
    rig.hears(2, 5, topic_id=topic_id)
    assert rig.hears(1, epoch, topic_id=topic_id) == Leader(1, epoch)


def test_occasional_queries_do_not_always_go_to_the_same_broker(rig: Rig) -> None:
    rig.hears(1, 4)
    rig.side.query_another_broker((TP.topic,))
    assert rig.hears(2, 5) == Leader(2, 5)
    assert rig.client.closed == 1
    rig.hears(2, 5)
    assert rig.client.closed == 1
