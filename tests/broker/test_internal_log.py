"""Compacted topics of Twinlog, and the reading of whole batches from any offset."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest

from tests.support.settings import HURRIED, settings_for
from tests.support.topics import delete_records
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, fetch_records, produce_batch
from twinlog.cluster.topics.internal_log import (
    ROWS_AT_ONCE,
    append,
    append_once,
    ensure_compacted_topic,
    read_to_end,
)
from twinlog.cluster.topics.topic_admin import create_topic, wait_for_topic
from twinlog.errors import BrokerRefused, ConfigError, Disconnected, Unauthorized
from twinlog.model import TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.wire.record_batch import Codec, read_headers
from twinlog.wire.records import Record, encode_batch

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)


@pytest.fixture
def client(source_cluster: LocalCluster) -> Iterator[ClusterClient]:
    settings = settings_for(source_cluster.bootstrap)
    with ClusterClient(settings, patience=HURRIED) as client:
        yield client


def row(key: str, value: str | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
    return Record(0, NOW_MS, key.encode(), None if value is None else value.encode(), headers)


def test_topic_is_made_once(client: ClusterClient, fresh_topic: str) -> None:
    for partitions in (3, 5):
        found = ensure_compacted_topic(
            client, fresh_topic, partitions=partitions, replication_factor=1
        )
        assert found == 3


@pytest.mark.witness("an internal topic that is not compacted is refused")
def test_topic_with_another_policy_is_refused(client: ClusterClient, fresh_topic: str) -> None:
    create_topic(client, fresh_topic, partitions=1, replication_factor=1)
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete") as caught:
        ensure_compacted_topic(client, fresh_topic, partitions=1, replication_factor=1)
    assert caught.value.code == "INTERNAL_TOPIC_NOT_COMPACTED"


@pytest.mark.witness("records appended to an internal topic are read again")
def test_appended_records_are_read_back(client: ClusterClient, fresh_topic: str) -> None:
    ensure_compacted_topic(client, fresh_topic, partitions=2, replication_factor=1)
    tp = TopicPartition(fresh_topic, 1)
    assert list(read_to_end(client, fresh_topic, 1)) == []
    first = [row("a", "1", (("h", b"x"), ("h", None))), row("b", None)]
    assert append(client, tp, first) == 0
    assert append(client, tp, [row("c", "3")]) == 2
    read = list(read_to_end(client, fresh_topic, 1))
    expected = [*first, row("c", "3")]
    assert read == [record._replace(offset=n) for n, record in enumerate(expected)]
    assert [record.offset for record in read_to_end(client, fresh_topic, 1, 1)] == [1, 2]
    assert list(read_to_end(client, fresh_topic, 1, 3)) == []


def test_deleted_records_are_passed_over(
    source_cluster: LocalCluster, client: ClusterClient, fresh_topic: str
) -> None:
    create_topic(client, fresh_topic, partitions=1, replication_factor=1)
    wait_for_topic(client, fresh_topic)
    tp = TopicPartition(fresh_topic, 0)
    for n in range(4):
        append(client, tp, [row("k", str(n))])
    delete_records(source_cluster, fresh_topic, before=2)
    assert [record.offset for record in read_to_end(client, fresh_topic, 0)] == [2, 3]


def test_position_after_the_end_is_an_error(client: ClusterClient, fresh_topic: str) -> None:
    ensure_compacted_topic(client, fresh_topic, partitions=1, replication_factor=1)
    with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE"):
        list(read_to_end(client, fresh_topic, 0, 7))


def test_record_that_the_topic_cannot_take_is_refused(
    client: ClusterClient, fresh_topic: str
) -> None:
    ensure_compacted_topic(client, fresh_topic, partitions=1, replication_factor=1)
    with pytest.raises(BrokerRefused, match="without key") as caught:
        append(client, TopicPartition(fresh_topic, 0), [Record(0, NOW_MS, None, b"v")])
    assert caught.value.kafka_error == 87
    assert not isinstance(caught.value, Unauthorized)


def test_every_partition_gets_a_whole_batch_whatever_its_share(
    client: ClusterClient, fresh_topic: str
) -> None:
    create_topic(client, fresh_topic, partitions=4, replication_factor=1)
    wait_for_topic(client, fresh_topic, partitions=4)
    tps = [TopicPartition(fresh_topic, n) for n in range(4)]
    for tp in tps[:3]:
        records = [row("k", "v" * 10_000)] * 5
        produce_batch(client, tp, encode_batch(records, codec=Codec.NONE))
    answers = fetch_records(client, dict.fromkeys(tps[:3], (2, 100)) | {tps[3]: (0, 100)})
    for tp in tps[:3]:
        answer = answers[tp]
        assert isinstance(answer, FetchedRecords)
        assert [header.next_offset for header, _ in read_headers(answer.records)] == [5]
        assert (answer.log_start, answer.high_watermark, answer.last_stable_offset) == (0, 5, 5)
    empty = answers[tps[3]]
    assert isinstance(empty, FetchedRecords)
    assert len(empty.records) == 0


def test_offset_outside_the_log_is_an_error_beside_the_others(
    client: ClusterClient, fresh_topic: str
) -> None:
    create_topic(client, fresh_topic, partitions=2, replication_factor=1)
    wait_for_topic(client, fresh_topic, partitions=2)
    inside, outside = TopicPartition(fresh_topic, 0), TopicPartition(fresh_topic, 1)
    answers = fetch_records(client, {inside: (0, 100), outside: (9, 100)})
    assert isinstance(answers[inside], FetchedRecords)
    error = answers[outside]
    assert isinstance(error, BrokerRefused)
    assert error.code == "OFFSET_OUT_OF_RANGE"


class LosesOneAnswer(ClusterClient):
    """A client whose connection breaks after an append. Before it retries, another client writes a
    row.
    """

    others: tuple[ClusterClient, ...] = ()

    def attempt(self, node: int | None, request: Any, **how: Any) -> Any:
        answer = super().attempt(node, request, **how)
        if isinstance(request, ProduceRequest) and self.others:
            (other,), self.others = self.others, ()
            name = request.topic_data[0].name
            append(other, TopicPartition(name, 0), [row("another", "2")])
            raise Disconnected("the answer is lost")
        return answer


@pytest.mark.parametrize("count", [1, ROWS_AT_ONCE + 1])
def test_row_of_which_the_first_counts_is_there_once_after_a_lost_answer(
    client: ClusterClient, fresh_topic: str, count: int
) -> None:
    """The response to an append is lost, and another client appends before the retry. The retry
    must not append the row again. Otherwise compaction would keep only the second copy of the row,
    which follows the other client's row, so the other client's row would be the first one.
    """
    ensure_compacted_topic(client, fresh_topic, partitions=1, replication_factor=1)
    rows = [(b"ours-%d" % at, b"1") for at in range(count)]
    with LosesOneAnswer(client.settings, patience=HURRIED) as ours:
        ours.others = (client,)
        append_once(ours, TopicPartition(fresh_topic, 0), rows)
    found = [(one.key, one.value) for one in read_to_end(client, fresh_topic, 0)]
    first = rows[:ROWS_AT_ONCE]
    assert found == [*first, (b"another", b"2"), *rows[ROWS_AT_ONCE:]]
