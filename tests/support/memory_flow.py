"""A flow in memory: one partition, its lanes and their driver, with in-memory logs.

The rules of the copy are the real ones (`PartitionCopy`, `MapTail`, `starts_in_groups`, the map's
rows). Only sockets, processes and clocks are simulated. A *step* is one thing that can happen next:
a request arrives, a response is lost, a lane dies, a broker expires a producer ID. `MemoryFlow.do`
runs steps in any order. `check` checks the invariants after every step.

The simulated driver and lane do in a few lines what `control.running.flow_run`,
`control.lanes.takes` and `lane.assignments` do. Methods name their counterpart if it matters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tests.support.folded_rows import fold
from tests.support.memory_lanes import Lane, Late, LivingLane
from tests.support.memory_log import Answer, MemoryLog, MemoryView, find_starts
from tests.support.memory_source import EXPIRY_MS, HOUR_MS, MemorySource
from tests.support.memory_steps import CHANGES, STEPS, UNHEARD
from tests.support.one_copy import answer
from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.late_requests import SILENCE_MS, USER_TIMEOUT_MS
from twinlog.lane.messages import HandOver
from twinlog.lane.reporting import hand_over
from twinlog.mirror.accepted import Accepted
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.map import map_tail
from twinlog.mirror.map.map_tail import MapTail
from twinlog.mirror.map.offset_map import ChunkRow, PartitionKey, PartitionMap, Run, Term, run_at
from twinlog.mirror.skips import Skip
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import Isolation, TopicId, TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

__all__ = ["MemoryFlow"]

HERE: Final = TopicPartition("orders", 0)
THERE: Final = TopicPartition("A.orders", 0)
SOURCE_ID, TARGET_ID = TopicId("a" * 32), TopicId("b" * 32)
KEY: Final = PartitionKey(SOURCE_ID, TARGET_ID, 0)
PRODUCER_ID: Final = 9
NOT_ENOUGH_REPLICAS: Final = 19
FOREVER: Final = (1 << 63) - 1
MAY_STOP: Final = {"SOURCE_TRUNCATED"}
"""Codes with which a partition may stop without a fault: the source deleted records that were not
copied.
"""
STRANGE: Final = {"EXTRA_RECORDS", "DIVERGED", "TARGET_TRUNCATED"}
"""Codes that a foreign record causes."""
STRAY: Final = b"stray"
WRONG: Final = "the copy stopped for no reason"


@dataclass(slots=True)
class MemoryFlow(MemorySource):
    """One partition, from its first start to the end of a program of steps."""

    steps: ClassVar[tuple[str, ...]] = STEPS
    unheard: ClassVar[tuple[str, ...]] = UNHEARD
    """Names of the steps of a lane that the driver considers dead."""
    last_steps: ClassVar[tuple[str, ...]] = ("start", "send", "fetch")
    """Names of the steps that `finish` repeats until none is possible."""
    target: MemoryLog = field(default_factory=MemoryLog)
    map_topic: list[ChunkRow] = field(default_factory=list)
    lane: Lane | None = None
    late: list[Late] = field(default_factory=list)
    living: list[LivingLane] = field(default_factory=list)
    stopped: TwinlogError | None = None
    taken: dict[str, int] = field(default_factory=dict)
    """Number of times that each step was possible."""
    begins_at: int = -1
    transform: str = ""
    """Digest of the transform of the partition's records, or empty for a raw copy."""
    has_stranger: bool = False
    skips: tuple[Skip, ...] = ()
    """Records that the copy must skip."""
    accepted: tuple[Accepted, ...] = ()
    """Foreign records that were accepted."""
    _generation: int = 0
    _wait_until_ms: int = 0
    _lanes_until_ms: int = 0
    """Time until which a lost lane may still copy."""
    _is_unheard: bool = False
    """True during a step of a lane that the driver considers dead."""
    _of_living: set[int] = field(default_factory=set)
    """Target offsets that lanes wrote after the driver had given them up."""
    _acked: tuple[int, int] = (-1, -1)
    _handed: tuple[HandOver, Term] | None = None
    _folded: tuple[int, list[ChunkRow], PartitionMap | None] | None = None
    _is_cleaned: bool = False
    """True if compaction removed records that the lane has read, but which are not sent or not
    acknowledged.
    """

    # -- the source --------------------------------------------------------------------------------

    def compact_source(self, number: int) -> bool:
        """Run the source's cleaner, which removes the records of one key except those of open
        transactions.

        This step is impossible while requests of an earlier lane may arrive. It is also impossible
        until the lane has read again the records that were written by a lane that was given up.
        Compacting these would stop the partition with a wrong reason (docs/hazards.md, what is
        left).
        """
        if self.now_ms < self._wait_until_ms or any(one.requests for one in self.late):
            return False
        if self._of_living if self.lane is None else self._has_missed(self.lane):
            return False
        self._is_cleaned = self.lane is not None and self.lane.copy.queued_bytes > 0
        stable = self.source.last_stable
        key = b"k%d" % (number % 5)
        taken = self.source.compact(lambda r: r.offset >= stable or r.key != key)
        self.gone.update(record.offset for record in taken)
        return bool(taken)

    def delete_source(self, number: int) -> bool:
        """Run the source's retention, which deletes at most up to the last stable offset. Only
        rarely does it delete records that are not copied.
        """
        lane = self.lane
        reached = lane.copy.acked_upstream if lane is not None else -1
        until = self.source.last_stable if number % 64 == 0 else min(reached, self.source.end)
        if until <= self.source.log_start:
            return False
        before = self.source.log_start
        self.source.delete_before(until)
        if self.known() is None:  # no row has fixed yet where the copy begins
            self.gone.update(at for at in self.written if at < until)
        return self.source.log_start > before

    # -- the driver --------------------------------------------------------------------------------

    def has_stopped(self) -> bool:
        return self.stopped is not None

    def has_lane(self) -> bool:
        return self.lane is not None

    def known(self) -> PartitionMap | None:
        """Return the partition's map as a reader would get it now."""
        count, newest = len(self.map_topic), self.map_topic[-1:]
        if self._folded is None or self._folded[:2] != (count, newest):
            self._folded = count, newest, fold(self.map_topic).get(KEY)
        return self._folded[2]

    def start(self, _number: int) -> bool:
        """Assign the partition to a lane: `take_of`, and the lane's processing of the Take."""
        if self.lane is not None or self.has_stopped() or self.put_off():
            return False
        if self._handed is not None:
            self._take_over(*self._handed)
            return True
        found = self._look(self.known())
        if isinstance(found, TwinlogError):
            self._trouble(found)
            return True
        self._begin(found)
        return True

    def _look(self, known: PartitionMap | None) -> StartPoint | TwinlogError:
        request = StartRequest(
            source=HERE,
            target=THERE,
            source_topic_id=SOURCE_ID,
            target_topic_id=TARGET_ID,
            runs=() if known is None else tuple(known.runs),
            mark=None if known is None else known.mark,
            transformed=() if known is None else known.transformed,
            fingerprints={} if known is None else known.fingerprints,
            our_producers=frozenset({PRODUCER_ID}),
            acked_ordinal=self._acked[0],
            acked_epoch=self._acked[1],
            skips=self.skips,
            accepted=self.accepted,
        )
        rules = StartRules(
            producer_id=PRODUCER_ID, is_ours_alone=True, isolation=Isolation.READ_COMMITTED
        )
        here = MemoryView({HERE: self.source}, SOURCE_ID)
        there = MemoryView({THERE: self.target}, TARGET_ID)
        (found,) = find_starts([request], here, there, rules).values()
        return found

    @property
    def rules(self) -> CopyRules:
        return CopyRules(
            producer_id=PRODUCER_ID,
            isolation=Isolation.READ_COMMITTED,
            is_ours_alone=True,
            producer_expiry_ms=EXPIRY_MS,
        )

    def _begin(self, found: StartPoint) -> None:
        """Apply the result of a cold start, as `Assignments.started` does."""
        known = self.known()
        taken = () if known is None else tuple(known.runs)
        position = Run(found.ordinal, found.upstream, found.k + found.ordinal)
        open_from = -1 if known is None else known.open_from
        earlier = "" if known is None else known.transform
        runs = map_tail.first_runs(
            taken, open_from, found.jumps, position, begins_chunk=earlier != self.transform
        )
        prints = {} if known is None else known.fingerprints
        term = self.new_term()
        tail = MapTail(
            key=KEY,
            topic=HERE.topic,
            term=term,
            producer_id=PRODUCER_ID,
            mark=found.as_mark,
            fingerprint=prints.get(runs[-1].ordinal),
            dirty=not taken or bool(found.jumps),
            transform=self.transform,
        ).begin(runs, earlier)
        self._copy(found, tail)

    def new_term(self) -> Term:
        """Return the new term of a cold start."""
        self._generation += 1
        return Term(self._generation, 0)

    def put_off(self) -> bool:
        """Return True if a lost lane may still start the partition, so that its start is delayed as
        by `control.lanes.takes.put_off`.
        """
        return self.known() is None and self.now_ms < self._wait_until_ms

    def _take_over(self, handed: HandOver, term: Term) -> None:
        """Start a partition that was handed over, as `Assignments.on_take` does."""
        self._handed = None
        known = self.known()
        tail = MapTail(
            key=KEY,
            topic=HERE.topic,
            term=term,
            chunk=handed.chunk,
            runs=list(handed.runs),
            producer_id=PRODUCER_ID,
            mark=handed.start.as_mark,
            durable_ordinal=handed.durable_ordinal,
            dirty=handed.durable_ordinal < 0 and known is None,
            transform=self.transform,
        )
        self._copy(handed.start, tail)

    def _copy(self, start: StartPoint, tail: MapTail) -> None:
        if self.begins_at < 0:
            self.begins_at = start.upstream
        copy = self._made(
            source=HERE,
            target=THERE,
            source_topic_id=SOURCE_ID,
            target_topic_id=TARGET_ID,
            rules=self.rules,
            start=start,
            tail=tail,
            end=FOREVER,
            limit_bytes=1 << 20,
            may_reject_records=self.target.most_records > 0,
            last_run=tail.runs[-1],
            now_ms=self.now_ms,
            late_requests=self.now_ms < self._wait_until_ms,
            old_lane=self.now_ms < self._lanes_until_ms,
            skips=self.skips,
        )
        copy.leader.on_metadata(self.target.epoch, requested_epoch=-1)
        self.lane = Lane(copy)

    def _made(self, **given: Any) -> PartitionCopy:
        return PartitionCopy(**given)

    def _trouble(self, error: TwinlogError) -> None:
        """Return if the lane's error is retriable. Otherwise stop the partition with the error's
        code.
        """
        if error.fate is Fate.RETRIABLE:
            return
        assert isinstance(error, PartitionError), error
        may_stop = {*MAY_STOP, *(STRANGE if self.has_stranger else ())}
        assert error.code in may_stop, f"{WRONG}: {error}"
        self.stopped = error

    # -- the lane ----------------------------------------------------------------------------------

    def fetch(self, number: int) -> bool:
        """Fetch one to four batches, up to the last stable offset."""
        lane = self.lane
        if lane is None or not lane.copy.wants_fetch:
            return False
        position = lane.copy.intake.position
        if position < self.source.log_start:
            self._give_back(0)  # after SOURCE_OUT_OF_RANGE, the next start checks the log
            return True
        raw = self.source.read(position, 1 + number % 4, below=self.source.last_stable)
        aborted = [one for one in self.source.aborted if one.last_offset >= position]
        if not raw:
            return False
        lane.copy.on_fetched(raw, aborted, self.now_ms)
        return True

    def copy_on(self, number: int) -> bool:
        """Run the copy without faults one to four times: fetch, write the map, send all batches,
        and process the responses.
        """
        for _ in range(1 + number % 4):
            for step in (self.fetch, self.write_map, self.rows_are_durable):
                step(number)
            while self.send(0):
                pass
            while self.arrive(0) or self.answer(0):
                pass
        return self.lane is not None

    def write_map(self, _number: int) -> bool:
        """Send the next map rows if none are in flight, as `MapWriter.pump` does."""
        lane = self.lane
        if lane is None or lane.rows:
            return False
        while (row := lane.copy.tail.next_row()) is not None:
            lane.rows.append(row)
        return bool(lane.rows)

    def rows_are_durable(self, _number: int) -> bool:
        lane = self.lane
        if lane is None or not lane.rows:
            return False
        rows, lane.rows = lane.rows, []
        self.map_topic += [row for row, _ in rows]
        for _, run in rows:
            lane.copy.tail.on_durable(run)
        self._settle()
        return True

    def rows_are_refused(self, number: int) -> bool:
        """Reject the map rows in flight, because too few replicas are in sync. The rows may be in
        the log nevertheless.
        """
        lane = self.lane
        if lane is None or not lane.rows:
            return False
        rows, lane.rows = lane.rows, []
        if number % 2:
            self.map_topic += [row for row, _ in rows]
        for _ in rows:
            lane.copy.tail.on_refused()
        self._settle()
        return True

    def map_connection_breaks(self, _number: int) -> bool:
        lane = self.lane
        if lane is None or not lane.rows:
            return False
        rows, lane.rows = lane.rows, []
        self.late.append(Late(self.now_ms + USER_TIMEOUT_MS, deque(), [row for row, _ in rows]))
        for _ in rows:
            lane.copy.tail.on_lost()
        self._settle()
        return True

    def send(self, _number: int) -> bool:
        """Send one batch, as `TargetSide.pump` does."""
        lane = self.lane
        if lane is None:
            return False
        batch = lane.copy.next_batch(self.now_ms)
        if batch is not None:
            lane.requests.append(bytes(batch.data))
        self._settle()
        return batch is not None

    def arrive(self, _number: int) -> bool:
        """Let the target process the lane's oldest request."""
        lane = self.lane
        if lane is None or not lane.requests:
            return False
        before = self.target.end
        lane.answers.append(self.target.append(lane.requests.popleft()))
        if self._is_unheard:
            self._of_living.update(range(before, self.target.end))
        return True

    def refuse(self, _number: int) -> bool:
        """Reject the lane's oldest request, because too few replicas are in sync.

        If the target is about to expire the producer ID, this is possible only soon after a
        problem. At other times the copy sends requests in a pipeline, and does not cover a
        rejection and an expiry between two of them (docs/hazards.md, what is left).
        """
        lane = self.lane
        if lane is None or not lane.requests:
            return False
        tail = self.target.producer(PRODUCER_ID)
        is_kept = tail is not None and tail.last_timestamp >= self.now_ms - EXPIRY_MS
        if not is_kept and self.now_ms >= lane.copy._trouble_until_ms:
            return False
        lane.requests.popleft()
        lane.answers.append(Answer(NOT_ENOUGH_REPLICAS, -1))
        return True

    def answer(self, _number: int) -> bool:
        lane = self.lane
        if lane is None or not lane.answers:
            return False
        got = lane.answers.popleft()
        answer(
            lane.copy,
            got.base_offset,
            error=got.error,
            append_time=got.log_append_time_ms,
            now=self.now_ms,
        )
        self._is_cleaned = self._is_cleaned and lane.copy.queued_bytes > 0
        self._settle()
        return True

    def connection_breaks(self, _number: int) -> bool:
        """Break the lane's connection. Its requests may still arrive, but their responses are
        lost.
        """
        lane = self.lane
        if lane is None or not (lane.requests or lane.answers):
            return False
        self._leave_late(lane)
        self._disconnect(lane)
        return True

    def _disconnect(self, lane: Lane) -> None:
        lane.answers.clear()
        lane.copy.on_disconnected(
            PartitionError("gone", code="TARGET_DISCONNECTED", fate=Fate.RETRIABLE), self.now_ms
        )
        self._settle()

    def _leave_late(self, lane: Lane) -> None:
        if lane.requests and not self._is_cleaned:
            late = Late(self.now_ms + USER_TIMEOUT_MS, lane.requests, [], self._is_unheard)
            self.late.append(late)
        lane.requests, lane.answers = deque(), deque()

    def late_request_arrives(self, number: int) -> bool:
        """Let a request of a broken connection arrive. Its response is lost."""
        waiting = [one for one in self.late if one.requests]
        if not waiting:
            return False
        one, before = waiting[number % len(waiting)], self.target.end
        self.target.append(one.requests.popleft())
        if one.is_of_living:
            self._of_living.update(range(before, self.target.end))
        return True

    def late_row_arrives(self, number: int) -> bool:
        waiting = [one for one in self.late if one.rows]
        if not waiting:
            return False
        self.map_topic.append(waiting[number % len(waiting)].rows.pop(0))
        return True

    def _settle(self) -> None:
        """Give back a failed partition after it has drained, as `Assignments.settle` does."""
        lane = self.lane
        if lane is None or lane.copy.in_flight or lane.copy.tail.writing:
            return
        copy = lane.copy
        if self._is_unheard:
            if copy.trouble is not None or copy.state is CopyState.DRAINING:
                self.lane = None
        elif copy.trouble is not None:
            wait_ms = USER_TIMEOUT_MS if copy.has_unknown_outcomes else 0
            self._report(copy)
            self._give_back(wait_ms)
            self._trouble(copy.trouble)
        elif copy.source_trouble is not None:
            if copy.is_drained:
                self._report(copy)
                self._give_back(0)
                self._trouble(copy.source_trouble)
        elif copy.state is CopyState.DRAINING and not (
            copy.has_undurable_position or (copy.tail.dirty and self.known() is None)
        ):
            self._report(copy)
            handed = hand_over(copy)
            self._handed = None if handed is None else (handed, copy.tail.term)
            self.lane = None

    def _give_back(self, wait_ms: int) -> None:
        # the partition is given back only after its rows are durable
        if self.lane is not None and self.lane.rows:
            return
        self.lane = None
        if not self._is_unheard:
            self._wait_until_ms = max(self._wait_until_ms, self.now_ms + wait_ms)

    def _report(self, copy: PartitionCopy) -> None:
        """Report the lane's progress to the driver, as `Partition.on_progress` does."""
        ordinal, epoch = copy.acked_ordinal, copy.leader.checked_epoch
        if ordinal >= self._acked[0] or epoch != self._acked[1]:
            self._acked = ordinal, epoch

    def report(self, _number: int) -> bool:
        if self.lane is None:
            return False
        self._report(self.lane.copy)
        return True

    def release(self, _number: int) -> bool:
        """End the lease: the lane drains, and the next lane resumes at the position that it hands
        over.
        """
        lane = self.lane
        if lane is None or lane.copy.state is not CopyState.COPYING:
            return False
        lane.copy.note_position()
        lane.copy.drain()
        self._settle()
        return True

    def kill(self, _number: int) -> bool:
        """Kill the lane. The driver notices it, as in `RunState.give_up`."""
        lane = self.lane
        if lane is None:
            return False
        self._leave_late(lane)
        if lane.rows:
            rows = [row for row, _ in lane.rows]
            self.late.append(Late(self.now_ms + USER_TIMEOUT_MS, deque(), rows))
        self._lost()
        return True

    def _lost(self) -> None:
        self.lane, self._handed = None, None
        self._lanes_until_ms = self.now_ms + SILENCE_MS
        self._wait_until_ms = max(self._wait_until_ms, self._lanes_until_ms + USER_TIMEOUT_MS)

    def lose(self, _number: int) -> bool:
        """Let the driver give up a lane that is still running, so that two lanes copy for a while.

        This is impossible for a lane with records that the cleaner has since removed, because the
        next lane reads other records in their place (docs/hazards.md, what is left).
        """
        lane = self.lane
        if lane is None or self._is_cleaned:
            return False
        self.living.append(LivingLane(lane, self.now_ms + SILENCE_MS))
        self._lost()
        return True

    def living_lane_moves(self, number: int) -> bool:
        """Run a step of a lane that was given up. The driver does not learn of it."""
        if not self.living:
            return False
        one = self.living[number % len(self.living)]
        with self._unheard(one):
            step: Callable[[int], bool] = getattr(
                self, self.unheard[number // 4 % len(self.unheard)]
            )
            return step(number)

    # -- the target --------------------------------------------------------------------------------

    def forget(self, _number: int) -> bool:
        """Expire the target's producer IDs whose last record is too old.

        This is impossible if the target knew a lane's producer ID, a lane that was given up has
        written since, and no batch of the first lane has arrived (docs/hazards.md, what is left).
        """
        lanes = [*(one.lane for one in self.living), *((self.lane,) if self.lane else ())]
        unproven = [one.copy for one in lanes if self._has_missed(one) and not one.copy._is_proven]
        if any(copy.is_protected(copy.last_timestamp, self.now_ms) for copy in unproven):
            return False
        before = self.target.producer(PRODUCER_ID)
        self.target.forget(self.now_ms - EXPIRY_MS)
        return before is not None and self.target.producer(PRODUCER_ID) is None

    def wait(self, number: int) -> bool:
        """Let a second, an hour, or more than a day pass. No request stays in flight for longer
        than the silence limit.
        """
        long_ms = (1_000, HOUR_MS, EXPIRY_MS + HOUR_MS)[number % 3]
        lane = self.lane
        on_way = lane is not None and bool(lane.requests or lane.answers or lane.rows)
        if long_ms > SILENCE_MS and on_way:
            return False
        self.now_ms += long_ms
        self._end_living()
        self._drop_late()
        if lane is not None and self.now_ms >= self._lanes_until_ms:
            lane.copy.on_earlier_lane_ended(is_over=self.now_ms >= self._wait_until_ms)
        return True

    def _has_missed(self, lane: Lane) -> bool:
        """Return True if a lane that was given up has written records at or after the offset up to
        which this lane's records are acknowledged.
        """
        written = max(self._of_living, default=-1)
        return lane.copy.late_requests and written >= lane.copy.acked_downstream

    def _end_living(self) -> None:
        """End the lanes that have received nothing from the driver for too long."""
        for one in [one for one in self.living if one.until_ms <= self.now_ms]:
            self.living.remove(one)
            rows = [row for row, _ in one.lane.rows]
            until_ms = one.until_ms + USER_TIMEOUT_MS
            self.late.append(Late(until_ms, one.lane.requests, rows, is_of_living=True))

    def _drop_late(self) -> None:
        self.late = [one for one in self.late if one.until_ms > self.now_ms]

    def stranger_writes(self, number: int) -> bool:
        """Write one record to the target as another client. The copy must stop with a code."""
        if number % 8 or self.has_stranger or self.known() is None:
            return False
        self.has_stranger = True
        stray = Record(0, self.now_ms, None, STRAY)
        self.target.append(bytes(encode_batch([stray], codec=Codec.NONE)))
        return True

    def compress_anew(self, number: int) -> bool:
        """Change the target's `compression.type`, so that batches of several records exceed its
        size limit, or none does.

        A lane knows from its start whether there is such a limit. If the limit is set while old
        records are pipelined and the target expires the producer ID, a gap is possible
        (docs/hazards.md, what is left).
        """
        before, wanted = self.target.most_records, (0, 1, 2)[number % 3]
        if self.lane is not None and not before:
            return False
        self.target.most_records = wanted
        return wanted != before

    def lose_tail(self, number: int) -> bool:
        """Elect a leader uncleanly that lacks the newest batches. Requests in flight to the old
        leader are rejected.
        """
        if not self.target.batches:
            return False
        batches = self.target.batches
        at = batches[max(0, len(batches) - 1 - number % 3)].header.base_offset
        for one in self.late:
            one.requests.clear()
        for each in self._each_lane():
            each.requests.clear()
            if each.copy.in_flight:
                self._disconnect(each)
        self.target.truncate(at)
        for each in self._each_lane():
            each.copy.leader.on_metadata(self.target.epoch, requested_epoch=-1)
        return True

    def _each_lane(self) -> Iterator[Lane]:
        """Yield each lane as the current one: first those that were given up, then the partition's
        lane.
        """
        for one in list(self.living):
            with self._unheard(one):
                yield one.lane
        if self.lane is not None:
            yield self.lane

    @contextmanager
    def _unheard(self, one: LivingLane) -> Iterator[None]:
        heard, self.lane, self._is_unheard = self.lane, one.lane, True
        try:
            yield
        finally:
            has_ended = not self.has_lane()
            self.lane, self._is_unheard = heard, False
            if has_ended:
                self.living.remove(one)

    def compact_map(self, _number: int) -> bool:
        """Compact the map topic, so that only the newest row of each key remains."""
        newest = {(row.term, row.chunk): row for row in self.map_topic}
        kept = [row for row in self.map_topic if newest[row.term, row.chunk] is row]
        was = len(self.map_topic)
        self.map_topic = kept
        return len(kept) < was

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every record is on the target once and in order, and that the map is right."""
        there = self.target.records()
        known = self.known()
        before = self.begins_at - 1
        # After the acknowledged records, a late batch may be at offsets for which the map has
        # announced another record. The lane detects the late batch with its next batch.
        sure = -1 if self.lane is None else self.lane.copy.acked_ordinal
        for record in there:
            if record.value == STRAY:
                continue
            upstream = int((record.value or b"")[1:])
            assert upstream > before, f"u{upstream} behind u{before}: {self._shown()}"
            for at in range(before + 1, upstream):
                assert at not in self.written or at in self.gone, f"u{at} is missing"
            before = upstream
            assert known is not None, "records without a row"
            k = known.runs[0].downstream - known.runs[0].ordinal
            run = run_at(known.runs, record.offset - k)
            said = None if run is None else run.upstream_of(record.offset - k)
            if (
                record.offset - k < sure
                and upstream not in self.gone
                and record.offset not in self._of_living
            ):  # for skipped records the map may name any offset before the next record
                assert said == upstream, f"offset {record.offset} is u{upstream}, map: {said}"

    def _shown(self) -> list[bytes | None]:
        return [record.value for record in self.target.records()]

    def finish(self) -> None:
        """Run without further faults until all requests have arrived and the copy is complete."""
        for number in range(len(self._transactions)):
            self.end_transaction(number + 1)
        self.produce(1)  # a lane checks a new leader's log only before it sends a batch
        for _ in range(10_000):
            for step in (self.answer, self.arrive, self.rows_are_durable, self.write_map):
                step(0)
            self.wait(0)
            moved = [getattr(self, name)(3) for name in self.last_steps]
            lane = self.lane
            if self.has_stopped():
                return
            if lane is not None and not any(moved) and self._is_at_rest(lane):
                break
        else:
            raise AssertionError(f"the copy does not come to an end: {self.lane}")
        self.check()
        self.check_complete(lane)

    def check_complete(self, lane: Lane) -> None:
        """Check that all records of the source were copied, by this lane or an earlier one."""
        del lane
        copied = {int((r.value or b"")[1:]) for r in self.target.records() if r.value != STRAY}
        left = {r.offset for r in self.source.records()} - self.gone
        assert left <= copied, f"never copied: {sorted(left - copied)}"

    def _is_at_rest(self, lane: Lane) -> bool:
        return not (lane.rows or lane.requests or lane.answers or lane.copy.tail.dirty) and (
            lane.copy.is_idle
        )

    def do(self, program: bytes) -> None:
        """Run a program. Each two bytes are one step: the first selects the step, the second is its
        argument.
        """
        for at in range(0, len(program) - 1, 2):
            name = self.steps[program[at] % len(self.steps)]
            step: Callable[[int], bool] = getattr(self, name)
            if step(program[at + 1]):
                self.taken[name] = self.taken.get(name, 0) + 1
                if name in CHANGES:
                    self.check()
