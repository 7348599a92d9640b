"""Groups and their offsets on real brokers. Offsets are read in batches, and set without joining
the group.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from tests.support.client import Outgoing, consumer, produce
from tests.support.eventually import eventually
from tests.support.groups import offsets_in_transaction
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import (
    GROUPS_AT_ONCE,
    Committed,
    OffsetReader,
    commit_offsets,
    fetch_offsets,
    is_refused_as_active,
)
from twinlog.errors import BrokerRefused, TwinlogError
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


@pytest.fixture
def coordinators(source_cluster: LocalCluster) -> Iterator[Coordinators]:
    with ClusterClient(settings_for(source_cluster.bootstrap)) as client:
        yield Coordinators(client)


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4()}"


def member(cluster: LocalCluster, group: str, topic: str, protocol: str) -> Consumer:
    """Return a consumer that is a member of the group, using the classic or the new group
    protocol.
    """
    client = consumer(cluster, config={"group.id": group, "group.protocol": protocol})
    client.subscribe([topic])
    eventually(lambda: bool(client.poll(0.1)) or bool(client.assignment()))
    return client


@pytest.mark.witness(
    "group offsets are read in every group state, and set only if the group has no members",
    case="classic",
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_is_read_in_every_state_and_set_only_when_empty(
    source_cluster: LocalCluster,
    coordinators: Coordinators,
    fresh_topic: str,
    name: str,
    protocol: str,
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"%d" % n) for n in range(10)])
    tp = TopicPartition(fresh_topic, 0)
    client = member(source_cluster, name, fresh_topic, protocol)
    client.commit(offsets=[Assigned(fresh_topic, 0, 4)], asynchronous=False)

    listed = list_groups(coordinators)[name]
    assert listed.is_active
    assert listed.has_offsets
    assert fetch_offsets(coordinators, [name]) == {name: {tp: Committed(offset=4)}}

    refused = commit_offsets(coordinators, {name: {tp: Committed(offset=1)}})[name]
    assert isinstance(refused, TwinlogError)
    assert is_refused_as_active(refused)
    client.close()
    eventually(lambda: not list_groups(coordinators)[name].is_active)
    found = fetch_offsets(coordinators, [name])[name]
    assert found == {tp: Committed(offset=4)}  # the rejected commit has not changed the offset

    assert commit_offsets(coordinators, {name: {tp: Committed(offset=7)}}) == {name: {tp: None}}
    assert fetch_offsets(coordinators, [name]) == {name: {tp: Committed(offset=7)}}


def test_many_groups_in_one_call(
    source_cluster: LocalCluster, coordinators: Coordinators, fresh_topic: str, name: str
) -> None:
    create_topic(source_cluster, fresh_topic, 3)
    wanted = {
        f"{name}-{number}": {
            TopicPartition(fresh_topic, partition): Committed(offset=number, metadata="m")
            for partition in range(3)
        }
        for number in range(50)
    }
    answers = commit_offsets(coordinators, wanted)
    assert {error for answer in answers.values() for error in dict(answer).values()} == {None}  # type: ignore[arg-type]
    assert fetch_offsets(Coordinators(coordinators.client), wanted) == wanted
    assert set(wanted) <= set(list_groups(coordinators))


def test_offsets_that_are_too_large_for_one_request(
    source_cluster: LocalCluster, coordinators: Coordinators, fresh_topic: str, name: str
) -> None:
    """Brokers append the offsets of a request as one batch of at most 1 MB. On the source, commits
    of a large group are smaller, because each member commits only its own partitions.
    """
    create_topic(source_cluster, fresh_topic, 400)
    wanted = {
        TopicPartition(fresh_topic, partition): Committed(offset=partition, metadata="m" * 4000)
        for partition in range(400)
    }
    answer = commit_offsets(coordinators, {name: wanted, f"{name}-empty": {}})
    assert answer == {name: dict.fromkeys(wanted), f"{name}-empty": {}}
    assert fetch_offsets(Coordinators(coordinators.client), [name]) == {name: wanted}


@pytest.mark.witness("an unknown group has no offsets")
def test_group_that_does_not_exist_has_no_offsets(coordinators: Coordinators, name: str) -> None:
    assert fetch_offsets(coordinators, [name]) == {name: {}}
    assert name not in list_groups(coordinators)


def test_offsets_in_an_open_transaction_are_not_settled(
    source_cluster: LocalCluster, fresh_topic: str, name: str
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    tps = [TopicPartition(fresh_topic, partition) for partition in range(2)]
    before = {tp: Committed(offset=3) for tp in tps}
    with ClusterClient(settings_for(source_cluster.bootstrap), api_timeout_s=0.5) as client:
        there = Coordinators(client)
        commit_offsets(there, {name: before})
        with offsets_in_transaction(source_cluster, name, {tps[0]: 7}) as end:
            assert fetch_offsets(there, [name]) == {name: before}
            refused = fetch_offsets(there, [name], settled=True)[name]
            assert isinstance(refused, BrokerRefused)
            assert refused.code == "UNSTABLE_OFFSET_COMMIT"
            assert "find-hanging" in str(refused)
            end()
    with ClusterClient(settings_for(source_cluster.bootstrap)) as client:
        after = fetch_offsets(Coordinators(client), [name], settled=True)
    assert after == {name: before | {tps[0]: Committed(offset=7)}}


def test_unchanged_responses_are_not_decoded_again(
    source_cluster: LocalCluster, coordinators: Coordinators, fresh_topic: str, name: str
) -> None:
    create_topic(source_cluster, fresh_topic, 2)
    here = [TopicPartition(fresh_topic, partition) for partition in range(2)]
    groups = [f"{name}-{number:02}" for number in range(GROUPS_AT_ONCE + 1)]
    commit_offsets(coordinators, {group: {here[0]: Committed(offset=1)} for group in groups})
    reader = OffsetReader(coordinators)
    first, second = reader.read(groups), reader.read(reversed(groups))
    assert first == {group: {here[0]: Committed(offset=1)} for group in groups}
    assert all(second[group] is first[group] for group in groups)

    now = {here[0]: Committed(offset=2), here[1]: Committed(offset=5, metadata="new")}
    commit_offsets(coordinators, {groups[-1]: now})
    third = reader.read([*groups, f"{name}-unknown"])
    assert third == first | {groups[-1]: now, f"{name}-unknown": {}}
    assert all(third[group] is first[group] for group in groups[:GROUPS_AT_ONCE])


def test_equal_and_changed_answers_of_a_coordinator_that_has_moved(
    target3: LocalCluster, fresh_topic: str, name: str
) -> None:
    create_topic(target3, fresh_topic, replication_factor=3)
    here = TopicPartition(fresh_topic, 0)
    with ClusterClient(settings_for(target3.bootstrap)) as client:
        coordinators = Coordinators(client)
        reader = OffsetReader(coordinators)

        def node() -> int | TwinlogError:
            asked = coordinators.ask([name], lambda at, some: dict.fromkeys(some, at), doing="at")
            return asked[name]

        def read() -> object:
            return reader.read([name])[name]

        commit_offsets(coordinators, {name: {here: Committed(offset=1)}})
        first, killed = read(), node()
        assert read() is first
        assert isinstance(killed, int)
        target3.kill(killed)
        try:
            eventually(lambda: read() == {here: Committed(offset=1)})
            assert node() != killed
            again = read()
            assert again is read()
            commit_offsets(coordinators, {name: {here: Committed(offset=2)}})
            assert read() == {here: Committed(offset=2)}
        finally:
            target3.restart(killed)
        assert read() == {here: Committed(offset=2)}
