"""Which replica is read: for a while the one that the leader has named, but never one that has just
failed.
"""

import pytest

from tests.support.driver import HandClock
from twinlog.lane.sides import near_replicas
from twinlog.lane.sides.near_replicas import NearReplicas
from twinlog.model import TopicPartition

TP = TopicPartition("orders", 0)
LEADER, NEAR = 1, 2


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_replica_named_by_the_leader_is_read_for_a_while(clock: HandClock) -> None:
    near = NearReplicas("rack-2", clock)
    assert near.broker_to_read(TP, LEADER) == LEADER
    assert near.prefer(TP, NEAR)
    assert near.broker_to_read(TP, LEADER) == NEAR
    assert near.is_read(TP, NEAR)
    assert not near.is_read(TP, LEADER)
    assert not near.has_expired(TP)
    clock.now += near_replicas.PREFERRED_FOR_S + 1
    assert near.has_expired(TP)
    near.forget(TP)
    assert near.broker_to_read(TP, LEADER) == LEADER


def test_failed_replica_is_avoided_for_a_while(clock: HandClock) -> None:
    near = NearReplicas("rack-2", clock)
    near.prefer(TP, NEAR)
    near.avoid(TP)
    assert not near.prefer(TP, NEAR)
    assert near.broker_to_read(TP, LEADER) == LEADER
    clock.now += near_replicas.AVOIDED_FOR_S + 1
    assert near.prefer(TP, NEAR)


def test_unreachable_replica_is_detected(clock: HandClock) -> None:
    near = NearReplicas("rack-2", clock)
    assert not near.cannot_be_reached(TP)
    near.prefer(TP, NEAR)
    assert not near.cannot_be_reached(TP)
    clock.now += near_replicas.CONNECTED_WITHIN_S + 1
    assert near.cannot_be_reached(TP)
