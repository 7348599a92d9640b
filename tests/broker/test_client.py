"""The blocking client with real brokers: it connects, loses its connections, and connects again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from kafka.protocol.admin import ListGroupsRequest

from tests.support.eventually import eventually
from tests.support.settings import HURRIED, settings_for
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_offsets import fetch_offsets
from twinlog.cluster.groups.group_protocol import GroupCalls
from twinlog.cluster.logs.offsets import EpochEnd, log_ends
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import BrokerRefused, Disconnected, TwinlogError, Unreachable, Unsupported
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

FETCH = 1
DEAD = 4711
"""The node of a broker that the cluster does not list."""


@pytest.fixture
def client(source_cluster: LocalCluster) -> Iterator[ClusterClient]:
    with ClusterClient(settings_for(source_cluster.bootstrap), patience=HURRIED) as client:
        yield client


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.witness("brokers, topics and permissions of a cluster are read")
def test_metadata_has_brokers_topics_and_rights(client: ClusterClient, fresh_topic: str) -> None:
    create_topic(client, fresh_topic, partitions=2, replication_factor=1)
    wait_for_topic(client, fresh_topic, partitions=2)
    metadata = client.metadata([fresh_topic])
    topic = metadata.topics[fresh_topic]
    assert metadata.cluster_id
    assert metadata.controller in metadata.brokers
    assert len(topic.topic_id.raw) == 16
    assert [p.number for p in topic.partitions] == [0, 1]
    assert {p.leader for p in topic.partitions} <= set(metadata.brokers)
    assert topic.operations is not None
    assert Operation.WRITE in topic.operations


def test_missing_topic_is_an_answer_and_is_not_created(
    client: ClusterClient, fresh_topic: str
) -> None:
    topic = client.metadata([fresh_topic]).topics[fresh_topic]
    assert (topic.error, topic.partitions) == (3, ())
    assert fresh_topic not in client.metadata().topics


def test_missing_topic_is_an_error_where_it_must_be_there(
    client: ClusterClient, fresh_topic: str
) -> None:
    with pytest.raises(BrokerRefused, match=fresh_topic) as caught:
        client.metadata([fresh_topic], allow_missing=False)
    assert caught.value.code == "TOPIC_MISSING"


def test_first_address_that_answers_is_enough(source_cluster: LocalCluster) -> None:
    settings = settings_for(source_cluster.bootstrap)
    dead = tuple(("127.0.0.1", closed_port()) for _ in range(3))
    with ClusterClient(replace(settings, bootstrap=dead + settings.bootstrap)) as client:
        assert client.metadata([]).brokers


def test_no_broker_responds() -> None:
    port = closed_port()
    settings = ClusterSettings(alias="west", bootstrap=(("127.0.0.1", port),))
    client = ClusterClient(settings, api_timeout_s=0.5)
    with client, pytest.raises(Unreachable) as caught:
        client.metadata([])
    assert caught.value.message.startswith(f"west (127.0.0.1:{port}): connection refused; check ")


@pytest.mark.witness("a broken connection is replaced")
def test_connection_that_broke_is_replaced(client: ClusterClient) -> None:
    node = next(iter(client.metadata([]).brokers))
    client.connection_to(node).sock.shutdown(socket.SHUT_RDWR)
    client.connection_to(None).sock.shutdown(socket.SHUT_RDWR)
    assert client.send(node, ListGroupsRequest()).error_code == 0
    assert client.metadata([]).brokers


def test_attempt_does_not_hide_that_the_connection_broke(client: ClusterClient) -> None:
    connection = client.connection_to(None)
    connection.begin(ListGroupsRequest())
    connection.sock.shutdown(socket.SHUT_RDWR)
    # the broker may be about to write its response, and then resets the connection
    with suppress(ConnectionResetError):
        while connection.sock.recv(1 << 16):
            """The response may have arrived already. It is lost as well."""
    with pytest.raises(Disconnected, match="ListGroups"):
        connection.finish()
    assert not connection.is_usable()


def test_version_that_the_broker_lacks_is_named(client: ClusterClient) -> None:
    connection = client.connection_to(None)
    low, high = connection.api_versions[FETCH]
    assert connection.version_for(FETCH, 999) == high
    with pytest.raises(Unsupported, match=rf"offers Fetch v{low}-v{high}, but v900-v999"):
        connection.version_for(FETCH, 999, minimum=900)
    with pytest.raises(Unsupported, match="does not offer API 4711"):
        connection.version_for(4711, 1)


def test_broker_that_is_not_alive_is_retriable(source_cluster: LocalCluster) -> None:
    settings = settings_for(source_cluster.bootstrap)
    client = ClusterClient(settings, patience=HURRIED, api_timeout_s=0.3)
    with client, pytest.raises(Unreachable, match="broker 4711 is not alive") as caught:
        client.send(DEAD, ListGroupsRequest())
    assert caught.value.code == "BROKER_NOT_AVAILABLE"


def test_leader_and_coordinators_that_are_no_longer_alive_are_looked_up_again(
    client: ClusterClient, fresh_topic: str
) -> None:
    """The client has stored a leader and coordinators, and the cluster no longer lists their
    broker. Every call finds their successors.
    """
    create_topic(client, fresh_topic, partitions=1, replication_factor=1)
    topic = wait_for_topic(client, fresh_topic)
    (partition,) = topic.partitions
    client.led = {fresh_topic: replace(topic, partitions=(replace(partition, leader=DEAD),))}
    (end,) = log_ends(client, topic.tps).values()
    assert isinstance(end, EpochEnd) and end.end_offset == 0

    coordinators = Coordinators(client)
    coordinators.learn(fresh_topic, DEAD)
    assert fetch_offsets(coordinators, [fresh_topic]) == {fresh_topic: {}}

    calls = GroupCalls(client, fresh_topic, 10_000, 10_000)
    calls._node = DEAD
    with pytest.raises(Unreachable, match="broker 4711 is not alive"):
        calls.join(b"", lambda: True)
    joined = calls.join(b"", lambda: True)
    assert joined is not None and joined.leads
    calls.leave(timeout_s=5)


@pytest.mark.faults
def test_leader_that_died_is_followed_to_its_successor(
    source3: LocalCluster, fresh_topic: str
) -> None:
    with ClusterClient(settings_for(source3.bootstrap), patience=HURRIED) as client:
        eventually(lambda: len(client.metadata([]).brokers) == 3)
        create_topic(client, fresh_topic, partitions=6, replication_factor=3)
        found = wait_for_topic(client, fresh_topic, partitions=6)
        tps = [TopicPartition(fresh_topic, p.number) for p in found.partitions]
        victim = found.partitions[0].leader
        source3.kill(victim)
        try:
            answers = log_ends(client, tps)
            assert [str(a) for a in answers.values() if isinstance(a, TwinlogError)] == []
            ends = [a.end_offset for a in answers.values() if isinstance(a, EpochEnd)]
            assert ends == [0] * len(tps)
        finally:
            source3.restart(victim)
        eventually(lambda: len(client.metadata([]).brokers) == 3)
