"""A copy is simulated, and both logs are compacted at random. The runs of the map are then rebuilt
by content alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from twinlog.mirror.map.offset_map import (
    ChunkRow,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    run_at,
)
from twinlog.mirror.map.rebuilt_map import (
    ABSENT,
    FROM_BEGINNING,
    DescribedMaps,
    FollowedPath,
    Follower,
    NumberedRecord,
    RunList,
    Slot,
    TargetWindow,
    rows,
)
from twinlog.model import TopicId

KEY = PartitionKey(TopicId("1" * 32), TopicId("2" * 32), 0)
TERM = Term(7, 0)


class Copy:
    """A source log in which an offset has a record, a marker or nothing, and the target records
    that were copied from it.
    """

    def __init__(self) -> None:
        self.records: dict[int, int] = {}
        """Identity of each record that the source still has, by upstream offset."""
        self.markers: set[int] = set()
        self.end = 0
        self.target: dict[int, int] = {}
        self.truth: list[int] = []
        """Upstream offset of each ordinal (count of the records that were copied before)."""
        self.start = 0

    def write(self, number: int) -> None:
        self.records[self.end] = number
        self.end += 1

    def mark(self) -> None:
        self.markers.add(self.end)
        self.end += 1

    def copy(self) -> None:
        after = self.truth[-1] if self.truth else -1
        for offset in sorted(self.records):
            if offset > after:
                self.target[len(self.truth)] = self.records[offset]
                self.truth.append(offset)

    def slots(self, begin: int = 0, *, is_compacted: bool = True) -> Iterator[Slot]:
        holes = self.start if begin <= self.start else 0
        for offset in range(max(begin, self.start), self.end):
            if offset in self.records:
                yield Slot(holes, offset, self.records[offset])
                holes = 0
            elif offset not in self.markers and is_compacted:
                holes += 1
        yield Slot(holes, self.end, ABSENT)

    def window(self) -> TargetWindow:
        there = iter([NumberedRecord(o, self.target[o]) for o in sorted(self.target)])
        return TargetWindow(there, 0, len(self.truth))

    def follow(self, *, is_compacted: bool = True) -> FollowedPath:
        follower = Follower(self.window(), 0, set())
        return follower.follow(self.slots(is_compacted=is_compacted), FROM_BEGINNING)

    def next_upstream(self) -> int:
        """Return the upstream offset of the first record that is not copied, or the log end if
        there is none.
        """
        later = [offset for offset in self.records if offset > self.truth[-1]]
        return min(later, default=self.end)


def agrees(copy: Copy, found: FollowedPath) -> None:
    assert found.ends == (copy.next_upstream(),), found
    runs = [found.runs[at] for at in range(len(found.runs))]
    for ordinal, upstream in enumerate(copy.truth):
        run = run_at(runs, ordinal)
        if run is None:
            assert upstream not in copy.records or ordinal not in copy.target
            continue
        if ordinal in copy.target and upstream in copy.records:
            assert run.upstream_of(ordinal) == upstream
        # rule E of the offset map: a translation skips nothing
        assert run.upstream_of(ordinal) >= upstream
    last = runs[-1].upstream_of(len(copy.truth))
    assert copy.truth[-1] < last <= copy.next_upstream()


def test_markers_between_records_are_found() -> None:
    copy = Copy()
    for number in range(1, 200):
        copy.write(number)
        if number % 7 == 0:
            copy.mark()
            if number % 14 == 0:
                copy.mark()
    copy.copy()
    copy.write(900)
    agrees(copy, copy.follow(is_compacted=False))


@pytest.mark.parametrize("seed", range(300))
def test_logs_cleaned_at_any_time_are_followed(seed: int) -> None:
    chance = random.Random(seed)
    source_clean, target_clean = chance.random() < 0.7, chance.random() < 0.5
    copy = played(chance, source_clean=source_clean, target_clean=target_clean)
    if not copy.truth:
        return
    found = copy.follow()
    is_sure = not target_clean and (found.equal or not source_clean)
    if is_sure or (len(found.ends) == 1 and found.equal):
        agrees(copy, found)


def played(chance: random.Random, *, source_clean: bool, target_clean: bool) -> Copy:
    copy, keys = Copy(), dict[int, int]()
    number = 0
    for _ in range(chance.randrange(1, 12)):
        for _ in range(chance.randrange(12)):
            if chance.random() < 0.2:
                copy.mark()
                continue
            number += 1
            keys[number] = chance.randrange(1, 8)
            copy.write(number)
        if source_clean and chance.random() < 0.5:
            clean(copy.records, keys, below=chance.randrange(copy.end + 1))
        if chance.random() < 0.6:
            copy.copy()
        if target_clean and copy.truth and chance.random() < 0.5:
            clean(copy.target, keys, below=chance.randrange(len(copy.truth) + 1))
    return copy


def clean(log: dict[int, int], keys: dict[int, int], *, below: int) -> None:
    newest = {keys[number]: offset for offset, number in sorted(log.items())}
    for offset in [o for o in log if o < below]:
        if newest[keys[log[offset]]] != offset:
            del log[offset]


def test_records_deleted_at_the_beginning_of_the_source_are_allowed() -> None:
    copy = Copy()
    for number in range(1, 50):
        copy.write(number)
    copy.copy()
    for offset in range(20):
        del copy.records[offset]
    copy.start = 20
    found = copy.follow(is_compacted=False)
    agrees(copy, found)
    assert found.runs[0] == Run(20, 20, 20)


def test_records_deleted_at_the_beginning_of_the_target_are_mapped_nevertheless() -> None:
    copy = Copy()
    for number in range(1, 50):
        copy.write(number)
    copy.copy()
    for ordinal in range(20):
        del copy.target[ordinal]
    found = copy.follow(is_compacted=False)
    agrees(copy, found)
    assert found.runs[0] == Run(0, 0, 0)


@pytest.mark.parametrize("change", ["missing", "changed", "foreign", "twice", "more"])
def test_any_other_difference_is_found(change: str) -> None:
    copy = Copy()
    for number in range(1, 50):
        copy.write(number)
    copy.copy()
    there = [copy.target[o] for o in sorted(copy.target)]
    match change:
        case "missing":
            del there[30]
        case "changed":
            there[30] = 777
        case "foreign":
            there.insert(30, 777)
        case "twice":
            there.insert(30, there[29])
        case _:
            there.append(777)
    copy.target = dict(enumerate(there))
    copy.truth = list(range(len(there)))
    for is_compacted in (False, True):
        found = copy.follow(is_compacted=is_compacted)
        assert found.ends == ()
        assert found.differs is not None
        assert 29 <= found.differs[1] <= 49


def test_repeated_records_are_not_decided() -> None:
    copy = Copy()
    for _ in range(10):
        copy.write(5)
    copy.start = 2
    copy.target = dict.fromkeys(range(4), 5)
    copy.truth = list(range(4))
    del copy.records[0], copy.records[1]
    assert len(copy.follow(is_compacted=False).ends) > 1


@pytest.mark.parametrize("count", [1, 399, 400, 401, 700, 1500])
@pytest.mark.parametrize("producers", [{4}, {4, 5, 6}])
def test_every_row_leaves_a_map_to_start_by(count: int, producers: set[int]) -> None:
    runs = RunList(k=70)
    upstream = 0
    for number in range(count):
        upstream += 3 + number % 2
        runs.add(number * 2, upstream)
        upstream += 2
    whole = [runs[at] for at in range(count)]
    end = count * 2 + 10
    known = PartitionMap(key=KEY, topic="t")
    described = DescribedMaps()
    assert not described.is_complete(KEY, 0)
    for key, value in rows(runs, key=KEY, topic="t", term=TERM, producers=producers):
        assert not described.is_complete(KEY, 0)
        row = ChunkRow.decode(key, value)
        assert len(row.runs) <= 400
        known.apply(row)
        described.add(key, value)
        assert known.runs[0] == whole[0]
        for ordinal in range(end):
            said, true = run_at(known.runs, ordinal), run_at(whole, ordinal)
            assert said is not None
            assert true is not None
            if ordinal >= end - 100:
                assert said.upstream_of(ordinal) == true.upstream_of(ordinal)
            assert said.upstream_of(ordinal) >= true.upstream_of(ordinal)
        assert all(
            a.upstream < b.upstream for a, b in zip(known.runs, known.runs[1:], strict=False)
        )
    assert described.is_complete(KEY, 0)
    assert list(known.runs) == whole
    assert known.producers == producers


def test_an_interrupted_rebuild_is_open_even_after_rows_of_a_mirror() -> None:
    runs = RunList(k=0)
    for number in range(1000):
        runs.add(number, number * 2)
    every = list(rows(runs, key=KEY, topic="t", term=TERM, producers={4}))
    later = ChunkRow(
        key=KEY, term=Term(8, 0), chunk=0, topic="t", runs=(Run(1000, 2000, 1000),)
    ).encode()
    described = DescribedMaps()
    for row in [*every[:-1], later]:
        described.add(*row)
    assert not described.is_complete(KEY, 0)
    for row in rows(runs, key=KEY, topic="t", term=Term(9, 0), producers={4}):
        described.add(*row)
    assert described.is_complete(KEY, 0)
