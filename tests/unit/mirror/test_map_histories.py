"""Any history of an offset map is read as the log that it describes. Terms (cold starts) end
anywhere, rows are lost, rejected or late, chunks (rows) fill up, and a cleaner runs at any moment.

The log is a list: record n has the ordinal n, and its value is its upstream offset. The upstream
offsets that a lane reads are generated at random each time, as if the source had been compacted in
the meantime. So rows that were written ahead, but never followed by their records, differ from the
later log.
"""

from __future__ import annotations

import random
from dataclasses import replace
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.folded_rows import fold
from twinlog.mirror.map import map_tail
from twinlog.mirror.map.map_tail import MapTail, first_runs
from twinlog.mirror.map.offset_map import (
    ChunkRow,
    PartitionKey,
    PartitionMap,
    Run,
    Term,
    run_at,
)
from twinlog.model import TopicId

KEY = PartitionKey(TopicId("a" * 32), TopicId("b" * 32), 3)
K = 70
FEW_RUNS = 3
"""Maximum number of runs in a chunk (a row of the map). It is small, so that chunks fill up."""

Round = list[tuple[ChunkRow, Run]]


class MapHistory(RuleBasedStateMachine):
    """One partition of a flow, its map topic, and the lanes that have the partition one after the
    other.
    """

    repeats_newest_chunk = True

    def __init__(self) -> None:
        super().__init__()
        self.patched = mock.patch.object(map_tail, "RUNS_PER_CHUNK", FEW_RUNS)
        self.patched.start()
        self.topic: list[ChunkRow] = []
        self.late: list[ChunkRow] = []
        """Rows of lost connections and dead lanes, which may still arrive."""
        self.log: list[int] = []
        self.terms = 0
        self.begin()

    def teardown(self) -> None:
        self.patched.stop()

    # -- lanes -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start cold: read the map and the log."""
        known = self.folded()
        ordinal = len(self.log)
        position = Run(ordinal, self.log[-1] + 1 if self.log else 0, K + ordinal)
        repeated = known.open_from if self.repeats_newest_chunk else -1
        runs = first_runs(known.runs, repeated, (), position)
        term = Term(self.terms, 0)
        tail = MapTail(key=KEY, topic="orders", term=term, producer_id=1, dirty=not known.runs)
        self.tail = tail.begin(runs)
        self.terms += 1
        self.rest()

    def rest(self) -> None:
        """Bring the lane to rest: no map row is in flight, and no record that was read waits to be
        written.
        """
        self.round: Round = []
        self.queue: list[tuple[int, Run | None]] = []
        """Upstream offset of each record that was read, with the run that it begins, if any."""
        self.first = self.tail.runs[0].ordinal if self.tail.durable_ordinal < 0 else -1
        self.last = self.tail.runs[-1]

    def folded(self) -> PartitionMap:
        return fold(self.topic).get(KEY, PartitionMap(key=KEY, topic="orders"))

    @rule()
    def lane_dies(self) -> None:
        self.late += [row for row, _ in self.round]
        self.begin()

    @rule(gaps=st.lists(st.integers(0, 2), min_size=1, max_size=8))
    def lane_reads(self, gaps: list[int]) -> None:
        for gap in gaps:
            ordinal = len(self.log) + len(self.queue)
            before = self.queue[-1][0] if self.queue else self.log[-1] if self.log else -1
            upstream = max(before + 1, self.last.upstream_of(ordinal)) + gap
            run = Run(ordinal, upstream, K + ordinal)
            starts = None if run.continues(self.last) else run
            if starts is not None:
                self.last = run
                self.tail.announce(run, None)
            self.queue.append((upstream, starts))
        if self.tail.durable_ordinal < self.first:
            self.tail.dirty = True

    @precondition(lambda self: not self.round and self.tail.dirty)
    @rule(most=st.integers(1, 4))
    def lane_writes_rows(self, most: int) -> None:
        while len(self.round) < most and (made := self.tail.next_row()) is not None:
            self.round.append(made)

    @precondition(lambda self: self.round)
    @rule()
    def rows_are_durable(self) -> None:
        self.topic += [row for row, _ in self.round]
        for _, run in self.round:
            self.tail.on_durable(run)
        self.round = []

    @precondition(lambda self: self.round)
    @rule(appended=st.booleans())
    def rows_are_refused(self, appended: bool) -> None:
        """Reject the rows in flight. With NOT_ENOUGH_REPLICAS_AFTER_APPEND they are in the topic
        nevertheless.
        """
        self.topic += [row for row, _ in self.round if appended]
        for _ in self.round:
            self.tail.on_refused()
        self.round = []

    @precondition(lambda self: self.round)
    @rule()
    def connection_breaks(self) -> None:
        self.late += [row for row, _ in self.round]
        for _ in self.round:
            self.tail.on_lost()
        self.round = []

    @rule(most=st.integers(1, 5))
    def records_are_sent(self, most: int) -> None:
        for _ in range(most):
            if not self.queue:
                return
            upstream, run = self.queue[0]
            if self.tail.durable_ordinal < (self.first if run is None else run.ordinal):
                return
            self.log.append(upstream)
            del self.queue[0]

    @precondition(lambda self: not self.round)
    @rule()
    def lease_changes(self) -> None:
        """Hand the partition over. Records that were read but not sent are dropped, and the next
        lane continues from the handed-over position.
        """
        handed = self.tail.hand_over(len(self.log))
        if handed is None:
            self.begin()
            return
        before = self.tail
        self.tail = MapTail(
            key=KEY,
            topic="orders",
            term=before.term,
            chunk=handed.chunk,
            runs=list(handed.runs),
            producer_id=1,
            durable_ordinal=handed.durable_ordinal,
            dirty=handed.durable_ordinal < 0,
        )
        self.rest()

    # -- the topic ---------------------------------------------------------------------------------

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def a_late_row_arrives(self, data: st.DataObject) -> None:
        self.topic.append(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    @rule(share=st.integers(1, 4))
    def topic_is_compacted(self, share: int) -> None:
        """Compact a part of the topic. The cleaner leaves the end of the log unchanged."""
        upto = len(self.topic) * share // 4
        newest = {row.encode()[0]: at for at, row in enumerate(self.topic)}
        self.topic = [
            row for at, row in enumerate(self.topic) if at >= upto or newest[row.encode()[0]] == at
        ]

    # -- invariants --------------------------------------------------------------------------------

    @invariant()
    def map_says_where_each_record_came_from(self) -> None:
        runs = self.folded().runs
        said = [
            None if (run := run_at(runs, at)) is None else run.upstream_of(at)
            for at in range(len(self.log))
        ]
        assert said == self.log

    @invariant()
    def order_of_keys_makes_no_difference(self) -> None:
        by_key: dict[bytes, list[ChunkRow]] = {}
        for row in self.topic:
            by_key.setdefault(row.encode()[0], []).append(row)
        groups = list(by_key.values())
        random.Random(len(self.topic)).shuffle(groups)
        other = fold([row for group in groups for row in group]).get(KEY)
        assert list(other.runs if other else ()) == list(self.folded().runs)


class NoRepetition(MapHistory):
    """A term's first row has only its position, as in the first releases."""

    repeats_newest_chunk = False


TestMapHistory = MapHistory.TestCase
TestMapHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_late_row_and_the_cleaner_take_no_run_away() -> None:
    first, second = Run(0, 0, 0), Run(5, 7, 5)
    old = ChunkRow(key=KEY, term=Term(1, 0), chunk=0, topic="orders", runs=(first, second))
    ahead = replace(old, runs=(*old.runs, Run(8, 20, 8)))
    new = replace(old, term=Term(2, 0), runs=(first, second, Run(8, 11, 8)))
    assert list(fold([old, new, ahead])[KEY].runs) == list(new.runs)
    assert list(fold([new, ahead])[KEY].runs) == list(new.runs), "compacted"


def test_maps_of_earlier_releases_lose_nothing_to_a_late_row_either() -> None:
    """In earlier releases, the first map row of a term (cold start) has only the term's own
    position. Compaction has removed the rows of the previous term, but a late row of the previous
    term arrives again. The runs in this row must be used, except the last one, which the newer term
    replaced.
    """
    first, second = Run(0, 0, 0), Run(5, 7, 5)
    old = ChunkRow(key=KEY, term=Term(1, 0), chunk=0, topic="orders", runs=(first, second))
    ahead = replace(old, runs=(*old.runs, Run(8, 20, 8)))
    new = replace(old, term=Term(2, 0), runs=(Run(8, 11, 8),))
    truth = [first, second, Run(8, 11, 8)]
    assert list(fold([old, new, ahead])[KEY].runs) == truth
    assert list(fold([new, ahead])[KEY].runs) == truth, "compacted"
