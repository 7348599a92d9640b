"""The leader epoch of the map's partition with which a lane reports that its rows exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.driver import HandClock
from twinlog.lane import map_writer
from twinlog.lane.map_writer import MapWriter, Round
from twinlog.lane.sides.cluster_side import Leader
from twinlog.mirror.copy.partition import PartitionCopy
from twinlog.mirror.map.map_tail import RUNS_PER_CHUNK, MapTail
from twinlog.mirror.map.offset_map import PartitionKey, Run, Term
from twinlog.model import NO_TOPIC_ID, TopicPartition

HOME, SOURCE = TopicPartition("map", 0), TopicPartition("t", 0)
Answer = Callable[[Round], None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, writer: MapWriter) -> Answer:
    """Return a function that acknowledges a `Round` (Produce request with map rows) of the
    writer.
    """
    there = SimpleNamespace(tp=HOME, error=0, message=None)
    monkeypatch.setattr(map_writer, "produce_answer", lambda *_: (0, [there]))
    return lambda sent: cast("Any", writer.on_answer)(sent, memoryview(b""))


@pytest.fixture
def writer() -> MapWriter:
    side = SimpleNamespace(
        leaders={HOME: Leader(1, 3)}, need_topics=lambda _: None, names={}, missing=(), topic_ids={}
    )
    events = SimpleNamespace(on_durable=lambda _: None)
    return MapWriter(
        side=cast("Any", side),
        clock=HandClock(),
        topic=HOME.topic,
        topic_id=NO_TOPIC_ID,
        partitions=1,
        events=cast("Any", events),
    )


@dataclass(eq=False)
class Copy:
    """The part of a copy that the map writer uses."""

    tail: MapTail
    source: TopicPartition = SOURCE


@pytest.fixture
def copy(writer: MapWriter) -> PartitionCopy:
    """A copy whose rows exist under leader epoch 3."""
    key = PartitionKey(NO_TOPIC_ID, NO_TOPIC_ID, 0)
    tail = MapTail(key=key, topic="t", term=Term(1, 0), chunk=0, runs=[Run(0, 0, 0)])
    made = cast("PartitionCopy", Copy(tail))
    writer.add(made)
    elects(writer, 3)
    return made


def sent(copy: PartitionCopy, epoch: int) -> Round:
    """Return a `Round` (Produce request) with all map rows that the copy has to write now."""
    rows = []
    while (row := copy.tail.next_row()) is not None:
        rows.append((copy, row[1]))
    return Round(0, HOME, rows, epoch)


def elects(writer: MapWriter, epoch: int) -> None:
    writer.side.leaders[HOME] = Leader(1, epoch)
    writer._note_leader_epoch(HOME, writer._map_partitions[HOME])


def test_rows_are_confirmed_although_the_copy_always_has_newer_ones(
    writer: MapWriter, answer: Answer, copy: PartitionCopy
) -> None:
    elects(writer, 4)
    assert writer.epoch_of(copy) == 3
    round_ = sent(copy, epoch=4)
    # every commit marker begins a run, because it is a gap in the source's offsets
    copy.tail.announce(Run(5, 9, 5), None)
    answer(round_)
    assert copy.tail.dirty
    assert writer.epoch_of(copy) == 4


def test_response_of_the_old_leader_confirms_nothing_about_the_new_one(
    writer: MapWriter, answer: Answer, copy: PartitionCopy
) -> None:
    copy.tail.announce(Run(5, 9, 5), None)
    before = sent(copy, epoch=3)
    elects(writer, 4)
    answer(before)
    assert writer.epoch_of(copy) == 3
    answer(sent(copy, epoch=4))
    assert writer.epoch_of(copy) == 4


def test_all_remembered_chunks_must_be_written_again(
    writer: MapWriter, answer: Answer, copy: PartitionCopy
) -> None:
    for number in range(1, 2 * RUNS_PER_CHUNK):
        copy.tail.announce(Run(number, 2 * number, number), None)
    answer(sent(copy, epoch=3))
    elects(writer, 4)
    rows = sent(copy, epoch=4).rows
    assert len(rows) > 1
    answer(Round(0, HOME, rows[:1], 4))
    assert writer.epoch_of(copy) == 3
    answer(Round(0, HOME, rows[1:], 4))
    assert writer.epoch_of(copy) == 4
