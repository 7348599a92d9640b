"""A partition changes while a `format("twinlog")` task reads it. These tests need no Spark
session.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.client import Outgoing, eventually, produce, produce_transaction
from tests.support.settings import settings_for
from tests.support.topics import create_topic, delete_records, delete_topic, leader
from tests.support.unclean import LostTail, create_on_two
from twinlog.cluster.client import ClusterClient
from twinlog.errors import Fate, RecordsLost, TwinlogError
from twinlog.model import Isolation, TopicPartition
from twinlog.records import tasks
from twinlog.records.decoding import ColumnDecoder
from twinlog.records.gaps import OffsetRange
from twinlog.records.tasks import RangeReader
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

ROWS = 60
IN_BATCH = 5
SHORT_S = 3.0
"""Time limit of a read in these tests, in seconds. The default is a minute."""


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reader request each batch separately."""
    monkeypatch.setattr(tasks, "FIRST_BYTES", 1)
    monkeypatch.setattr(tasks, "FETCH_BYTES", 1)


def put(cluster: LocalCluster, topic: str) -> None:
    for first in range(0, ROWS, IN_BATCH):
        records = [Outgoing(b"k", b"%d" % at) for at in range(first, first + IN_BATCH)]
        produce(cluster, topic, records, linger_ms=100)


class Reading:
    """The reader of a task that reads all rows. A test can read the first response, and the rest
    later.
    """

    def __init__(
        self, cluster: LocalCluster, topic: str, *, fails: bool = True, end: int = ROWS
    ) -> None:
        self.client = ClusterClient(settings_for(cluster.bootstrap), api_timeout_s=SHORT_S)
        wanted = OffsetRange(tp=TopicPartition(topic, 0), first=0, end=end)
        reader = RangeReader(
            self.client,
            wanted,
            ColumnDecoder(wanted.tp, ["offset", "value"]),
            isolation=Isolation.READ_COMMITTED,
            fails_on_data_loss=fails,
        )
        self._rows = reader.read()

    def first(self) -> list[int]:
        """Return the rows of the first response. The reader has not sent the next request yet."""
        return offsets(next(self._rows))

    def rest(self) -> list[int]:
        return [offset for rows in self._rows for offset in offsets(rows)]


def offsets(rows: pa.RecordBatch) -> list[int]:
    """Return the offsets of the rows. Check that the values are the same numbers."""
    found: list[int] = rows.column("offset").to_pylist()
    assert [int(value) for value in rows.column("value").to_pylist()] == found
    return found


@pytest.fixture
def topic(source_cluster: LocalCluster, fresh_topic: str) -> Iterator[str]:
    create_topic(source_cluster, fresh_topic)
    yield fresh_topic
    delete_topic(source_cluster, fresh_topic)


@pytest.mark.parametrize("fails", [True, False])
def test_records_are_deleted(
    source_cluster: LocalCluster,
    topic: str,
    in_parts: None,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(source_cluster, topic)
    reading = Reading(source_cluster, topic, fails=fails)
    seen = reading.first()
    assert seen == list(range(len(seen)))
    assert len(seen) < 40
    delete_records(source_cluster, topic, before=42)
    with caplog.at_level(logging.WARNING, "twinlog.records"):
        if fails:
            with pytest.raises(RecordsLost) as caught:
                reading.rest()
            assert (caught.value.code, caught.value.lost) == ("RETENTION", (len(seen), 42))
        else:
            assert reading.rest() == list(range(42, ROWS))
            (line,) = caplog.messages
            assert f"{topic}-0: offsets [{len(seen)}, 42) were deleted" in line
            assert line.endswith("[RETENTION]")


def test_all_remaining_records_are_deleted(
    source_cluster: LocalCluster, topic: str, in_parts: None
) -> None:
    put(source_cluster, topic)
    reading = Reading(source_cluster, topic, fails=False)
    reading.first()
    delete_records(source_cluster, topic, before=ROWS)
    assert reading.rest() == []


def test_a_transaction_that_does_not_end(source_cluster: LocalCluster, topic: str) -> None:
    """The task reads up to the high watermark, as with `endingOffsets`, and the last records are in
    an open transaction. The read fails with TIMED_OUT, and succeeds after the transaction has
    ended.
    """
    put(source_cluster, topic)
    caught: list[TwinlogError] = []

    def read() -> None:
        reading, begun = Reading(source_cluster, topic, end=ROWS + 3), time.monotonic()
        with pytest.raises(TwinlogError, match=f"no batch at offset {ROWS}, although") as error:
            reading.rest()
        caught.append(error.value)
        assert SHORT_S / 2 < time.monotonic() - begun < 5 * SHORT_S

    records = [Outgoing(b"k", b"open")] * 3
    produce_transaction(source_cluster, topic, records, commit=False, before=read)
    (error,) = caught
    assert (error.code, error.fate) == ("TIMED_OUT", Fate.RETRIABLE)
    assert "transaction that is still open" in error.message
    assert Reading(source_cluster, topic, end=ROWS + 3).rest() == list(range(ROWS))


def test_the_leader_dies_and_another_one_leads(
    source3: LocalCluster, fresh_topic: str, in_parts: None
) -> None:
    create_on_two(source3, fresh_topic)
    put(source3, fresh_topic)
    steps = LostTail(source3, fresh_topic)
    steps.both_in_sync()
    reading = Reading(source3, fresh_topic)
    reading.client.api_timeout_s = 60.0
    seen = reading.first()
    assert len(seen) < ROWS
    source3.kill(steps.leads)
    try:
        seen += reading.rest()
        assert seen == list(range(ROWS))
        assert leader(source3, fresh_topic) == steps.follows
    finally:
        source3.restart(steps.leads)
    steps.both_in_sync()


def test_the_leader_dies_and_no_broker_leads(
    source3: LocalCluster, fresh_topic: str, in_parts: None
) -> None:
    """The leader dies and no other broker can lead. The read fails within a time limit. When the
    leader is back, the rest is read.
    """
    create_topic(source3, fresh_topic)
    put(source3, fresh_topic)
    leads = leader(source3, fresh_topic)
    reading = Reading(source3, fresh_topic)
    assert len(reading.first()) < ROWS
    source3.kill(leads)
    try:
        begun = time.monotonic()
        with pytest.raises(TwinlogError) as caught:
            reading.rest()
        assert time.monotonic() - begun < 5 * SHORT_S
        assert (caught.value.code, caught.value.fate) == ("UNREACHABLE", Fate.RETRIABLE)
        eventually(lambda: leader(source3, fresh_topic) == -1, what="no leader")
        begun = time.monotonic()
        with pytest.raises(TwinlogError) as caught:
            Reading(source3, fresh_topic).first()
        assert time.monotonic() - begun < 5 * SHORT_S
        assert (caught.value.code, caught.value.fate) == ("LEADER_NOT_AVAILABLE", Fate.RETRIABLE)
    finally:
        source3.restart(leads)
    eventually(lambda: leader(source3, fresh_topic) == leads, what="the leader is back")
    assert Reading(source3, fresh_topic).rest() == list(range(ROWS))
