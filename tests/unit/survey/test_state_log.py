"""The state topic is read only when its rows may have changed. The broker's responses are
simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EpochEnd
from twinlog.cluster.net.settings import ClusterSettings
from twinlog.errors import Disconnected, TwinlogError
from twinlog.mirror.state.generations import has_written_row
from twinlog.model import NO_TOPIC_ID
from twinlog.survey import state_reader
from twinlog.survey.state_reader import STATE_PARTITION, StateLog, StateReader, _LogBounds
from twinlog.wire.records import Record

FLOW = "A->B"
BOUNDS = _LogBounds("one", 3, 0, 0)


class Topic:
    """A state topic in memory."""

    def __init__(self) -> None:
        self.bounds, self.rows = BOUNDS, [has_written_row(FLOW, 0)]
        self.fails: TwinlogError | None = None
        self.epoch_end = 0
        self.asked, self.read = 0, list[int]()

    def now(self, _client: object) -> _LogBounds:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return self.bounds._replace(end=len(self.rows))

    def read_to_end(self, *args: Any, end: int) -> Iterator[Record]:
        for offset in range(args[3], end):
            self.read.append(offset)
            yield Record(offset, 0, *self.rows[offset])

    def epoch_ends(self, *_: object) -> dict[object, EpochEnd]:
        return {STATE_PARTITION: EpochEnd(leader_epoch=3, end_offset=self.epoch_end)}

    def append(self, *numbers: int) -> None:
        self.rows += [has_written_row(FLOW, number) for number in numbers]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()
    monkeypatch.setattr(_LogBounds, "now", made.now)
    monkeypatch.setattr(state_reader, "read_to_end", made.read_to_end)
    monkeypatch.setattr(state_reader, "leader_epoch_ends", made.epoch_ends)
    return made


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made = [1000.0]
    monkeypatch.setattr("twinlog.survey.state_reader.time.monotonic", lambda: made[0])
    return made


@pytest.fixture
def client() -> ClusterClient:
    return ClusterClient(ClusterSettings(alias="B", bootstrap=(("b", 1),)), api_timeout_s=0.01)


def test_deciding_readers_query_and_followers_use_existing_reads(
    topic: Topic, client: ClusterClient, now: list[float]
) -> None:
    log = StateLog()
    assert log.at_hand() is None
    assert log.follow(client).producers == {0}
    topic.append(1)
    asked = topic.asked
    assert log.follow(client).producers == {0}
    assert topic.asked == asked
    assert log.read(client).producers == {0, 1}
    assert log.follow(client).producers == {0, 1}
    topic.append(2)
    now[0] += state_reader.FOLLOWS_WITHIN_S
    assert log.follow(client).producers == {0, 1, 2}
    assert topic.read == [0, 1, 2]


def test_rows_of_a_log_that_does_not_answer_are_not_given(
    topic: Topic, client: ClusterClient, now: list[float]
) -> None:
    log = StateLog()
    log.read(client)
    topic.fails = Disconnected("away")
    with pytest.raises(Disconnected):
        log.read(client)
    now[0] += state_reader.FOLLOWS_WITHIN_S
    with pytest.raises(Disconnected):
        log.follow(client)
    assert log.at_hand() is None


@pytest.mark.parametrize(
    ("change", "epoch_end", "is_another"),
    [
        ({}, 0, False),
        ({"topic_id": "two"}, 0, True),
        ({"start": 1}, 0, True),
        ({"leader_epoch": 4}, 1, False),
        ({"leader_epoch": 4}, 0, True),
        ({"leader_epoch": 2}, 1, True),
    ],
)
def test_all_is_read_again_where_rows_may_be_others(
    topic: Topic, client: ClusterClient, change: dict[str, Any], epoch_end: int, is_another: bool
) -> None:
    log = StateLog()
    log.read(client)
    topic.bounds, topic.epoch_end = BOUNDS._replace(**change), epoch_end
    topic.rows = []
    topic.append(7, 8)
    assert log.read(client).producers == ({7, 8} if is_another else {0, 8})
    assert topic.read == ([0, 0, 1] if is_another else [0, 1])


def test_a_log_that_became_shorter_is_read_again(topic: Topic, client: ClusterClient) -> None:
    log = StateLog()
    topic.append(1)
    log.read(client)
    topic.rows.pop()
    assert log.read(client).producers == {0}


def test_a_topic_without_an_id_is_read_again_by_deciding_readers(
    topic: Topic, client: ClusterClient, now: list[float]
) -> None:
    topic.bounds = BOUNDS._replace(topic_id=NO_TOPIC_ID)
    log = StateLog()
    for _ in range(2):
        log.read(client)
    assert topic.read == [0, 0]
    for _ in range(4):
        now[0] += state_reader.WITHOUT_ID_S / 3
        log.follow(client)
    assert topic.read == [0, 0, 0]


def test_no_thread_waits_for_another_longer_than_for_the_cluster(
    topic: Topic, client: ClusterClient
) -> None:
    log = StateLog()
    with log._turn, pytest.raises(TwinlogError, match="another thread"):
        log.read(client)
    assert log.read(client).producers == {0}


def test_a_flow_keeps_rows_that_a_recreated_topic_lacks(
    topic: Topic, client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = StateLog()
    monkeypatch.setattr(state_reader, "state_log", lambda _: log)
    reader = StateReader(client, FLOW)
    assert reader.at_hand() is None
    first = reader.read()
    assert reader.at_hand() == first
    topic.bounds, topic.rows = BOUNDS._replace(topic_id="two"), []
    topic.append(5)
    assert reader.read().producers == {0, 5}
