"""A start reads which records of its partition are in the dead-letter topic. The logs are in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.driver import HandClock, work_of
from tests.support.lane_takes import take
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EpochEnd
from twinlog.cluster.net.retry import Deadline, Patience
from twinlog.errors import Fate, TwinlogError
from twinlog.lane import cold_starts
from twinlog.lane.cold_starts import quarantining, read_dead_letters, with_dead_letters
from twinlog.lane.lane_partition import StartResult
from twinlog.mirror.copy.dead_letters import LetterOrigin, dead_letter, origin_of_copy
from twinlog.mirror.copy.ranges import RangeFailure
from twinlog.mirror.start_point import KnownDeadLetters, StartPoint
from twinlog.model import TopicId, TopicPartition
from twinlog.wire.records import Record

HOME = TopicPartition("letters", 0)
LETTERS_ID = TopicId("e" * 32)
A, B = (LetterOrigin("A->B", one, "t", "0") for one in "ab")
REASON = RangeFailure(offset=0, text="ValueError")


@dataclass
class Log:
    """A dead-letter topic. At each query, all replicas have more of it."""

    records: list[Record] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)

    def add(self, origin: LetterOrigin, *offsets: int) -> None:
        source = TopicPartition("orders", 0)
        for at in offsets:
            self.records.append(dead_letter(Record(at, 1, None, b"v"), REASON, origin, source))

    @property
    def client(self) -> ClusterClient:
        return cast("ClusterClient", self)

    @property
    def patience(self) -> Patience:
        return Patience(sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.clock.now += seconds

    def deadline(self, seconds: float) -> Deadline:
        return Deadline.within(seconds, self.clock.monotonic)

    def metadata(self, topics: list[str]) -> Any:
        return SimpleNamespace(topics={one: SimpleNamespace(topic_id=LETTERS_ID) for one in topics})

    def log_ends(self, *_: Any) -> dict[TopicPartition, EpochEnd]:
        return {HOME: EpochEnd(leader_epoch=6, end_offset=len(self.records) or -1)}

    def offset_at(self, *_: Any) -> int:
        return self.visible.pop(0) if self.visible else len(self.records)

    def read_to_end(self, *_: Any, end: int) -> Iterator[Record]:
        assert end == len(self.records)
        return iter(self.records)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    for name in ("log_ends", "offset_at", "read_to_end"):
        monkeypatch.setattr(cold_starts, name, getattr(made, name))
    return made


def test_letters_at_or_after_the_position_of_each_copy_are_found(log: Log) -> None:
    log.add(A, 3, 7, 5)
    log.add(B, 1, 9)
    log.add(A._replace(flow="C->B"), 8)
    log.records.append(Record(0, 1, None, b"of another client"))
    found = read_dead_letters(log.client, HOME, {A: 5, B: 10})
    assert found == {
        A: KnownDeadLetters(LETTERS_ID, 6, (5, 7)),
        B: KnownDeadLetters(LETTERS_ID, 6, ()),
    }


def test_empty_topic_has_none(log: Log) -> None:
    assert read_dead_letters(log.client, HOME, {A: 0}) == {A: KnownDeadLetters(LETTERS_ID, 6, ())}


def test_letters_that_not_all_replicas_have_are_waited_for(log: Log) -> None:
    log.add(A, 3)
    log.visible = [0, 0, 1]
    assert read_dead_letters(log.client, HOME, {A: 0})[A].offsets == (3,)
    log.visible = [0] * 1_000
    with pytest.raises(TwinlogError, match="not on all in-sync replicas") as raised:
        read_dead_letters(log.client, HOME, {A: 0})
    assert (raised.value.code, raised.value.fate) == ("HELD_BACK", Fate.RETRIABLE)


def test_only_starts_of_transformed_partitions_get_them(log: Log) -> None:
    work = work_of(dead_letters=HOME.topic)
    raw, masked, failed = (
        take(0),
        replace(take(1), transform="ab"),
        replace(take(2), transform="ab"),
    )
    point = StartPoint(
        ordinal=0, upstream=4, k=0, last_fetched_epoch=0, is_protected=False, last_timestamp=-1
    )
    takes = [raw, masked, failed]
    found: dict[TopicPartition, StartResult] = dict.fromkeys((raw.source, masked.source), point)
    found[failed.source] = TwinlogError("no leader")
    starts = quarantining(found, takes, work)
    assert starts == {masked.source: point}
    assert quarantining(found, takes, work_of()) == {}
    ids = masked.source_topic_id, masked.target_topic_id
    log.add(origin_of_copy(work.flow, masked.source, *ids), 3, 4)
    (start,) = with_dead_letters(starts, takes, log.client, work).values()
    assert isinstance(start, StartPoint)
    assert start.dead_letters == KnownDeadLetters(LETTERS_ID, 6, (4,))


def test_unreadable_topic_fails_the_starts_that_need_it(log: Log) -> None:
    log.add(A, 3)
    log.visible = [0] * 1_000
    point = StartPoint(
        ordinal=0, upstream=4, k=0, last_fetched_epoch=0, is_protected=False, last_timestamp=-1
    )
    one = replace(take(0), transform="ab")
    work = work_of(dead_letters=HOME.topic)
    (error,) = with_dead_letters({one.source: point}, [one], log.client, work).values()
    assert isinstance(error, TwinlogError) and error.code == "HELD_BACK"
