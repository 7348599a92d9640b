"""Produce requests and responses equal those of Kafka's own schema."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from twinlog.errors import CorruptData
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.produce import (
    VERSION_BY_ID,
    VERSION_BY_NAME,
    ProducedPartition,
    produce_answer,
    produce_request,
)
from twinlog.wire.record_batch import Buffer

ORDERS, SALES = TopicPartition("orders", 3), TopicPartition("sales", 0)
IDS = {"orders": TopicId("a" * 32), "sales": TopicId("b" * 32)}
NAMES = {topic_id.raw: topic for topic, topic_id in IDS.items()}
VERSIONS = (VERSION_BY_NAME, VERSION_BY_ID)
TOPIC = ProduceResponse.TopicProduceResponse
PARTITION = TOPIC.PartitionProduceResponse


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 126, 127, 300, 70_000])
def test_requests_for_one_batch_and_for_several(version: int, size: int) -> None:
    one: dict[TopicPartition, Buffer] = {ORDERS: b"x" * size}
    for batches in (one, {**one, SALES: b"y" * size}):
        raw = b"".join(produce_request(version, batches, IDS, 30_000))
        request = ProduceRequest.decode(raw, version=version)
        found = {}
        for topic in request.topic_data:
            name = topic.name if version < VERSION_BY_ID else NAMES[topic.topic_id.bytes]
            for data in topic.partition_data:
                found[TopicPartition(name, data.index)] = data.records
        assert found == batches
        assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 30_000, None)


def response(version: int, results: dict[TopicPartition, dict[str, Any]]) -> memoryview:
    """Return a Produce response with these results, as a broker would send it."""
    topics = []
    for tp, result in results.items():
        partition = PARTITION(
            version=version,
            **{
                "index": tp.partition,
                "error_code": 0,
                "base_offset": 70,
                "log_start_offset": 5,
                "record_errors": [],
                "error_message": None,
                **result,
            },
        )
        by_id = {"topic_id": uuid.UUID(IDS[tp.topic])}
        name = by_id if version >= VERSION_BY_ID else {"name": tp.topic}
        topics.append(TOPIC(version=version, partition_responses=[partition], **name))
    raw = ProduceResponse(version=version, responses=topics, throttle_time_ms=9)
    return memoryview(raw.encode(version=version))


def produced(tp: TopicPartition, **changes: Any) -> ProducedPartition:
    usual = {"error": 0, "base_offset": 70, "log_append_time_ms": -1}
    return ProducedPartition(**{"tp": tp, "message": None, **usual, **changes})


INVALID = PARTITION.BatchIndexAndErrorMessage(
    version=VERSION_BY_ID, batch_index=4, batch_index_error_message="no"
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({}, {}),
        ({"error_code": 45, "base_offset": -1}, {"error": 45, "base_offset": -1}),
        ({"log_append_time_ms": 1_800}, {"log_append_time_ms": 1_800}),
        ({"error_code": 87, "error_message": "why"}, {"error": 87, "message": "why"}),
        (
            {"error_code": 87, "record_errors": [INVALID]},
            {"error": 87, "message": "record 4 of the batch: no", "record": 4},
        ),
    ],
)
def test_responses_to_one_batch_and_to_several(
    version: int, result: dict[str, Any], expected: dict[str, Any]
) -> None:
    first = produced(ORDERS, **expected)
    found = produce_answer(version, response(version, {ORDERS: result}), NAMES)
    assert (found[0], list(found[1])) == (9, [first])
    both = response(version, {ORDERS: result, SALES: {}})
    assert list(produce_answer(version, both, NAMES)[1]) == [first, produced(SALES)]


def test_a_new_leader_in_the_response_is_passed_over() -> None:
    leader = PARTITION.LeaderIdAndEpoch(version=VERSION_BY_ID, leader_id=2, leader_epoch=7)
    view = response(VERSION_BY_ID, {ORDERS: {"error_code": 6, "current_leader": leader}})
    assert list(produce_answer(VERSION_BY_ID, view, NAMES)[1]) == [produced(ORDERS, error=6)]


def test_a_response_of_the_usual_size_is_not_taken_for_the_usual_one() -> None:
    usual = bytes(response(VERSION_BY_ID, {ORDERS: {}}))
    for at in (0, 17, 48, 49, 50, 51, 56):
        damaged = bytearray(usual)
        damaged[at] = 9
        with pytest.raises(CorruptData):
            produce_answer(VERSION_BY_ID, memoryview(bytes(damaged)), NAMES)
