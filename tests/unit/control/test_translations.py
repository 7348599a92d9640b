"""Which places are looked for again: only those of groups that committed, or that are not known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from twinlog.cluster.groups.group_offsets import Committed, GroupOffsets
from twinlog.control.groups.offset_places import Place, Places
from twinlog.control.groups.translations import Translations
from twinlog.errors import Unreachable
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.map.translation import Known, Reach
from twinlog.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class KnownPlaces:
    """Identical offsets up to 100 in the partitions that have a place; says what it was asked."""

    def __init__(self, *tps: TopicPartition) -> None:
        self.tps = set(tps)
        self.asked: list[set[TopicPartition]] = []
        self.failure: Exception | None = None

    def find(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Place]:
        self.asked.append(set(tps))
        if self.failure is not None:
            raise self.failure
        known = Known(runs=(Run(ordinal=0, upstream=0, downstream=0),))
        return {
            tp: Place(
                target=TopicPartition(f"A.{tp.topic}", tp.partition),
                log_start=0,
                log_end=100,
                known=known,
                reach=Reach(upstream=100, downstream=100),
                is_way_back=False,
            )
            for tp in self.asked[-1] & self.tps
        }


def translations(places: KnownPlaces) -> Translations:
    return Translations(cast("Places", places))


def offsets(found: Translations) -> dict[tuple[str, TopicPartition], int]:
    return {
        (one.checkpoint.group, one.checkpoint.topic_partition): one.checkpoint.downstream_offset
        for one in found
        if one.checkpoint is not None
    }


def test_nothing_is_looked_for_while_nobody_commits() -> None:
    places = KnownPlaces(FIRST, SECOND)
    found = translations(places)
    now: dict[str, GroupOffsets] = {
        "a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)},
        "b": {FIRST: Committed(offset=5)},
    }
    found.update(now)
    found.update(now)
    found.update({"a": dict(now["a"]), "b": now["b"]})  # read again, the same
    assert places.asked == [{FIRST, SECOND}]
    a, b = TopicPartition("A.orders", 0), TopicPartition("A.orders", 1)
    assert offsets(found) == {("a", a): 3, ("a", b): 4, ("b", a): 5}

    found.update({"a": {FIRST: Committed(offset=7), SECOND: Committed(offset=4)}})
    assert places.asked[1:] == [{FIRST}]
    assert offsets(found) == {("a", a): 7, ("a", b): 4}  # b is gone


def test_what_has_no_place_yet_is_looked_for_in_every_round() -> None:
    places = KnownPlaces(FIRST)
    found = translations(places)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3), SECOND: Committed(offset=4)}}
    found.update(now)
    places.tps.add(SECOND)
    found.update(now)
    found.update(now)
    assert places.asked == [{FIRST, SECOND}, {SECOND}]
    assert set(offsets(found).values()) == {3, 4}


def test_a_round_that_failed_is_made_up_for() -> None:
    places = KnownPlaces(FIRST)
    found = translations(places)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3)}}
    places.failure = Unreachable("away")
    with pytest.raises(Unreachable):
        found.update(now)
    places.failure = None
    found.update(now)
    assert list(offsets(found).values()) == [3]


def test_everything_is_found_anew_when_asked_for() -> None:
    places = KnownPlaces(FIRST)
    found = translations(places)
    now: dict[str, GroupOffsets] = {"a": {FIRST: Committed(offset=3)}}
    found.update(now)
    found.forget()
    found.update(now)
    assert places.asked == [{FIRST}, {FIRST}]
