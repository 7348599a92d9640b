"""Requests about topics, configs, offsets and producer IDs, on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.settings import HURRIED, settings_for
from tests.support.topics import delete_records
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import (
    EARLIEST,
    LATEST,
    EpochEnd,
    OffsetResult,
    leader_epoch_ends,
    list_offsets,
    log_ends,
)
from twinlog.cluster.logs.producers import ProducerState, describe_producers, init_producer_id
from twinlog.cluster.logs.raw_log import produce_batch
from twinlog.cluster.topics.cluster_info import describe_cluster
from twinlog.cluster.topics.configs import describe_broker_configs, describe_topic_configs
from twinlog.cluster.topics.topic_admin import (
    create_partitions,
    create_topic,
    delete_topic,
    validate_topic,
    wait_for_topic,
)
from twinlog.errors import BrokerRefused
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch
from twinlog.wire.topic_settings import ConfigSource

pytestmark = pytest.mark.broker

HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def client(source_cluster: LocalCluster) -> Iterator[ClusterClient]:
    settings = settings_for(source_cluster.bootstrap)
    with ClusterClient(settings, patience=HURRIED) as client:
        yield client


@pytest.fixture
def topic(client: ClusterClient, fresh_topic: str) -> str:
    """A new topic with two partitions."""
    create_topic(client, fresh_topic, partitions=2, replication_factor=1)
    wait_for_topic(client, fresh_topic, partitions=2)
    return fresh_topic


def write(client: ClusterClient, tp: TopicPartition, *, count: int) -> int:
    """Write `count` records whose timestamps are one second apart and begin an hour ago."""
    records = [Record(n, HOUR_AGO_MS + n * 1_000, b"k", b"v") for n in range(count)]
    return produce_batch(client, tp, encode_batch(records, codec=Codec.NONE))


@pytest.mark.witness("a topic is created with its configs")
def test_topic_is_created_with_its_configs(client: ClusterClient, fresh_topic: str) -> None:
    created = create_topic(
        client,
        fresh_topic,
        partitions=3,
        replication_factor=1,
        configs={"cleanup.policy": "compact"},
    )
    topic = wait_for_topic(client, fresh_topic, partitions=3)
    assert created.is_new
    assert topic.topic_id != NO_TOPIC_ID
    entries = describe_topic_configs(client, [fresh_topic])[fresh_topic]
    assert isinstance(entries, list)
    policy = next(entry for entry in entries if entry.name == "cleanup.policy")
    assert (policy.value, policy.source) == ("compact", ConfigSource.DYNAMIC_TOPIC)
    assert not policy.is_default
    assert next(entry for entry in entries if entry.name == "retention.bytes").is_default


def test_topic_that_exists_is_a_result(client: ClusterClient, topic: str) -> None:
    assert not create_topic(client, topic, partitions=9, replication_factor=1).is_new
    assert len(client.metadata([topic]).topics[topic].partitions) == 2


def test_too_high_replication_factor_tells_the_live_brokers(
    client: ClusterClient, fresh_topic: str
) -> None:
    with pytest.raises(BrokerRefused) as caught:
        create_topic(client, fresh_topic, partitions=1, replication_factor=7)
    assert caught.value.code == "REPLICATION_FACTOR"
    assert "replication factor 7" in caught.value.message
    assert "live brokers: 1" in caught.value.message
    assert fresh_topic not in client.metadata().topics


def test_validation_creates_nothing(client: ClusterClient, fresh_topic: str) -> None:
    validate_topic(client, fresh_topic, partitions=1, replication_factor=1)
    with pytest.raises(BrokerRefused, match="INVALID_CONFIG"):
        validate_topic(
            client, fresh_topic, partitions=1, replication_factor=1, configs={"no.such": "1"}
        )
    assert fresh_topic not in client.metadata().topics


def test_topic_grows_once(client: ClusterClient, topic: str) -> None:
    create_partitions(client, topic, 5)
    create_partitions(client, topic, 5)
    assert len(wait_for_topic(client, topic, partitions=5).partitions) == 5
    with pytest.raises(BrokerRefused, match="INVALID_PARTITIONS"):
        create_partitions(client, topic, 4)


def test_deleted_topic_is_gone(client: ClusterClient, topic: str) -> None:
    delete_topic(client, topic)
    with pytest.raises(BrokerRefused) as caught:
        delete_topic(client, topic)
    assert caught.value.code == "TOPIC_MISSING"


def test_configs_of_a_missing_topic_are_an_error_beside_the_others(
    client: ClusterClient, topic: str
) -> None:
    answers = describe_topic_configs(client, [topic, f"{topic}-missing"])
    assert isinstance(answers[topic], list)
    missing = answers[f"{topic}-missing"]
    assert isinstance(missing, BrokerRefused)
    assert missing.code == "TOPIC_MISSING"


def test_broker_configs_of_every_broker(client: ClusterClient) -> None:
    name = "producer.id.expiration.ms"
    configs = describe_broker_configs(client, [name])
    assert set(configs) == set(client.metadata([]).brokers)
    assert all(int(of_one[name].value or "") > 0 for of_one in configs.values())


def test_cluster_tells_itself_and_our_rights(client: ClusterClient) -> None:
    info = describe_cluster(client)
    assert info.cluster_id == client.metadata([]).cluster_id
    assert [broker.node for broker in info.brokers] == sorted(client.metadata([]).brokers)
    assert info.operations is not None


def test_offsets_of_start_end_and_time(
    source_cluster: LocalCluster, client: ClusterClient, topic: str
) -> None:
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(client, full, count=10)
    delete_records(source_cluster, topic, before=3)
    earliest = list_offsets(client, [full, empty], EARLIEST)
    latest = list_offsets(client, [full, empty], LATEST)
    timed = list_offsets(client, [full, empty], HOUR_AGO_MS + 4_500)
    offsets = [
        {tp.partition: answer.offset for tp, answer in found.items()}  # type: ignore[union-attr]
        for found in (earliest, latest, timed)
    ]
    assert offsets == [{0: 3, 1: 0}, {0: 10, 1: 0}, {0: 5, 1: -1}]
    assert timed[full] == OffsetResult(offset=5, timestamp=HOUR_AGO_MS + 5_000, leader_epoch=0)


@pytest.mark.witness("the log end of a leader epoch")
def test_log_end_by_leader_epoch(client: ClusterClient, topic: str) -> None:
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(client, full, count=10)
    assert log_ends(client, [full, empty]) == {
        full: EpochEnd(leader_epoch=0, end_offset=10),
        empty: EpochEnd(leader_epoch=0, end_offset=0),
    }
    assert leader_epoch_ends(client, {full: 0}) == {full: EpochEnd(leader_epoch=0, end_offset=10)}


def test_missing_partition_is_an_error_beside_the_others(client: ClusterClient, topic: str) -> None:
    there, missing = TopicPartition(topic, 0), TopicPartition(topic, 2)
    answers = log_ends(client, [there, missing])
    assert isinstance(answers[there], EpochEnd)
    error = answers[missing]
    assert isinstance(error, BrokerRefused)
    assert error.code == "TOPIC_MISSING"
    assert f"{topic}-2" in error.message


def test_producer_ids_are_never_given_twice(client: ClusterClient) -> None:
    given = [init_producer_id(client) for _ in range(3)]
    assert len({one.producer_id for one in given}) == 3
    assert all(one.producer_id >= 0 and one.producer_epoch == 0 for one in given)


@pytest.mark.witness("the producer state of a partition is read")
def test_partition_remembers_its_producers(client: ClusterClient, topic: str) -> None:
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ours = init_producer_id(client)
    records = [Record(n, HOUR_AGO_MS, b"k", b"v") for n in range(5)]
    batch = encode_batch(
        records,
        codec=Codec.NONE,
        producer_id=ours.producer_id,
        producer_epoch=ours.producer_epoch,
        base_sequence=100,
    )
    assert produce_batch(client, tp, batch) == 0
    assert produce_batch(client, tp, batch) == 0, "the broker knows the batch again"
    assert describe_producers(client, [tp, other]) == {
        tp: {
            ours.producer_id: ProducerState(
                producer_epoch=0,
                last_sequence=104,
                last_timestamp=HOUR_AGO_MS,
                current_transaction_start_offset=-1,
            )
        },
        other: {},
    }
