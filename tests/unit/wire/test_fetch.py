"""Fetch sessions: the partitions that a request names, and truncated or damaged responses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from twinlog.errors import CorruptData
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.fetch import (
    SESSION_ERRORS,
    VERSION_BY_ID,
    VERSION_BY_NAME,
    AbortedTransaction,
    FetchPosition,
    FetchSession,
)

ORDERS = TopicId("0123456789abcdef" * 2)
VERSIONS = (VERSION_BY_NAME, VERSION_BY_ID)
TOPIC = FetchResponse.FetchableTopicResponse
PARTITION = TOPIC.PartitionData


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def position(offset: int = 0) -> FetchPosition:
    return FetchPosition(offset, 3, 2, 1 << 20)


def a_session(version: int = VERSION_BY_ID, partitions: int = 3) -> FetchSession:
    session = FetchSession(version, Isolation.READ_COMMITTED)
    for partition in range(partitions):
        session.want(tp(partition), ORDERS, position())
    return session


def asked(session: FetchSession) -> Any:
    """Return the session's next request, decoded with Kafka's own schema."""
    raw = b"".join(session.request(max_wait_ms=500, max_bytes=1 << 23))
    return FetchRequest.decode(raw, version=session.version)


def test_time_and_bytes_that_a_response_waits_for() -> None:
    session = a_session()
    raw = b"".join(session.request(max_wait_ms=20, max_bytes=1 << 20, min_bytes=4_000))
    request = FetchRequest.decode(raw, version=session.version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (20, 4_000, 1 << 20)
    assert asked(session).min_bytes == 1


def test_requests_outside_of_a_session_name_everything_and_may_overlap() -> None:
    session = FetchSession(VERSION_BY_ID, Isolation.READ_COMMITTED, is_kept=False)
    for offset in (100, 200):
        session.want(tp(1), ORDERS, position(offset))
        request = asked(session)
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert offsets(request) == {1: offset}
    for _ in range(2):
        found = session.parse(memoryview(answer(VERSION_BY_ID, one(), session=0)))
        assert [each.tp for each in found.partitions] == [tp(1)]


def offsets(request: Any) -> dict[int, int]:
    return {p.partition: p.fetch_offset for t in request.topics for p in t.partitions}


def forgotten(request: Any) -> list[int]:
    return [p for topic in request.forgotten_topics_data for p in topic.partitions]


def answer(version: int, *partitions: Any, error: int = 0, session: int = 77) -> bytes:
    name = {"topic_id": ORDERS} if version >= VERSION_BY_ID else {"topic": "orders"}
    topics = [TOPIC(**name, partitions=list(partitions))] if partitions else []
    response = FetchResponse(
        throttle_time_ms=0, error_code=error, session_id=session, responses=topics
    )
    return bytes(response.encode(version=version))


def one(**fields: Any) -> Any:
    usual = {
        "partition_index": 1,
        "error_code": 0,
        "high_watermark": 10,
        "last_stable_offset": 9,
        "log_start_offset": 2,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"batches",
    }
    return PARTITION(**(usual | fields))


@pytest.mark.parametrize("version", VERSIONS)
def test_only_changed_partitions_are_named_again(version: int) -> None:
    session = a_session(version)
    first = asked(session)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert offsets(first) == {0: 0, 1: 0, 2: 0}
    session.parse(memoryview(answer(version)))
    quiet = asked(session)
    assert (quiet.session_id, quiet.session_epoch) == (77, 1)
    assert (offsets(quiet), forgotten(quiet)) == ({}, [])
    session.parse(memoryview(answer(version)))
    session.want(tp(1), ORDERS, position(10))
    session.want(tp(2), ORDERS, position())  # this position is unchanged
    session.forget(tp(0))
    changed = asked(session)
    assert changed.session_epoch == 2
    assert (offsets(changed), forgotten(changed)) == ({1: 10}, [0])
    session.parse(memoryview(answer(version)))
    session.want(tp(0), ORDERS, position(4))
    assert offsets(asked(session)) == {0: 4}


@pytest.mark.parametrize("error", sorted(SESSION_ERRORS))
def test_a_new_session_begins_with_all_partitions(error: int) -> None:
    session = a_session()
    asked(session)
    session.parse(memoryview(answer(VERSION_BY_ID)))
    session.want(tp(1), ORDERS, position(10))
    asked(session)
    found = session.parse(memoryview(answer(VERSION_BY_ID, error=error, session=0)))
    assert (found.error, found.partitions) == (error, ())
    again = asked(session)
    assert (again.session_id, again.session_epoch) == (0, 0)
    assert offsets(again) == {0: 0, 1: 10, 2: 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_fields_of_a_response_are_read(version: int) -> None:
    session = a_session(version)
    asked(session)
    whole = one(
        aborted_transactions=[PARTITION.AbortedTransaction(producer_id=5, first_offset=3)],
        diverging_epoch=PARTITION.EpochEndOffset(epoch=4, end_offset=600),
    )
    failed = one(partition_index=2, error_code=6, records=None)
    found = session.parse(memoryview(bytearray(answer(version, whole, failed))))
    good, bad = found.partitions
    assert (good.tp, good.error, bytes(good.records or b"")) == (tp(1), 0, b"batches")
    assert (good.high_watermark, good.last_stable_offset, good.log_start) == (10, 9, 2)
    assert good.aborted == (AbortedTransaction(5, 3),)
    assert good.diverging == (4, 600)
    assert good.records is not None
    assert not good.records.readonly, "headers are rewritten in place"
    assert (bad.tp, bad.error, bad.diverging) == (tp(2), 6, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_prefix_is_corrupt(version: int) -> None:
    aborted = [PARTITION.AbortedTransaction(producer_id=5, first_offset=3)]
    diverging = PARTITION.EpochEndOffset(epoch=4, end_offset=600)
    raw = answer(version, one(aborted_transactions=aborted, diverging_epoch=diverging), one())
    for length in range(len(raw)):
        session = a_session(version)
        with pytest.raises(CorruptData):
            session.parse(memoryview(raw[:length]))


@given(st.sampled_from(VERSIONS), st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255))))
def test_damaged_answers_raise_nothing_but_corrupt_data(
    version: int, damage: list[tuple[int, int]]
) -> None:
    diverging = PARTITION.EpochEndOffset(epoch=4, end_offset=600)
    raw = bytearray(answer(version, one(), one(partition_index=2, diverging_epoch=diverging)))
    for at, bits in damage:
        raw[at % len(raw)] ^= bits
    session = a_session(version)
    try:
        session.parse(memoryview(raw))
    except CorruptData:
        return


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_random_responses_raise_nothing_but_corrupt_data(version: int, raw: bytes) -> None:
    session = a_session(version)
    try:
        session.parse(memoryview(raw))
    except CorruptData:
        return


def test_an_end_that_was_reported_counts_while_the_broker_omits_it() -> None:
    session = a_session()
    asked(session)
    assert session.reported_end(tp(1)) == -1
    session.parse(memoryview(answer(session.version, one())))
    assert (session.reported_end(tp(1)), session.reported_end(tp(0))) == (9, -1)
    session.forget(tp(1))
    session.want(tp(1), ORDERS, position())
    assert offsets(asked(session)) == {}, "the broker does not learn that it was left out"
    assert session.reported_end(tp(1)) == 9
    session.parse(memoryview(answer(session.version)))
    session.forget(tp(1))
    assert forgotten(asked(session)) == [1]
    session.want(tp(1), ORDERS, position())
    assert session.reported_end(tp(1)) == -1, "it will be told"
    session.reset()
    assert session.reported_end(tp(1)) == -1
