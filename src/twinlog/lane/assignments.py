"""The partitions of a lane, each from the message Take to the message Released or Troubled
(`lane.messages`).

    driver                                   lane
      | -- Take, without `handed` ----------->  search of both logs, in the background
      | -- Take, with `handed` -------------->  the message contains the start point
      |                                            |
      |                                            v
      |                                    fetch -> map row -> send -> response
      |                                      ^                            |
      |                                      `--------- next batch -------'
      |                                            |
      | -- Release -------------------------->  drain
      | <- Released: where the copy ended ---------|
      | <- Troubled: code, late requests ----------'   after any error

**Problem.** A partition moves between lanes at every change of leases, at every retry, and when a
lane is lost. Two lanes must never write to it at the same time (`control.running.giving` explains
why), and no lane may continue from a position that is not on the target. Lanes die at any line of
this code, and a frozen lane may resume when its partitions already belong to another lane.

**Invariants**

1. A partition enters a lane by a Take and leaves it by exactly one message: Released or Troubled.
   After that message the lane sends nothing for it.
2. A partition leaves the lane only when none of its batches and map rows is unanswered (`settle`,
   `_is_waiting`). If answers were lost with a connection, Troubled states how long those requests
   may still arrive (`wait_ms`).
3. A partition leaves with a position (`messages.HandOver`) only if that position is certain
   (`reporting.hand_over`). This requires that every request was answered, and that no request of an
   earlier lane can arrive any more. The writer of each foreign record between this flow's records
   must also be known. Otherwise the next lane searches both logs.
4. Nothing is repaired in a lane. After an error the partition sends nothing more, drains, and goes
   back to the driver. The next start checks both logs, whatever the error was.
5. If the source fails, records that were read before the failure are still sent and acknowledged
   (`source_trouble`). If the target fails, records that were read are dropped and read again
   (`trouble`).

**A lane may die at each step**

- *During the search*: nothing was written. The next lane searches again.
- *Before the first row is durable*: no batch was sent, because the first one waits for that row.
  The next lane searches again; a partition without any row in the map first waits until requests of
  this lane have certainly arrived (`control.lanes.takes.put_off`).
- *After a row is durable, before its batch is sent*: the map announces records that are not on the
  target. The next start resumes at the end of the target's log, and its first row voids the
  announcement.
- *After a batch is sent, before its response*: the batch is on the target, or arrives later, or
  never. The next start reads the target's log, and holds back what it must not send yet
  (`mirror.copy.target_log`).
- *After the drain, before Released arrives*: everything is on the target, but the driver sees only
  a lost lane, so the next start searches.
- *After Released has arrived*: the next lane resumes at the position in the message.

A Release first drains the partition. Then some rows must become durable before Released is sent
(`_finish_release`). These are the position after the last record, the very first row of a copy,
which fixes where the copy began, and the final mark of a shared topic. A search that is still
running is abandoned, because it only reads.

**Rejected:** to retry a failed batch in the lane. Each such path would have to be as careful as a
start, and would need what only the driver has: the newest map, and whether another lane wrote. It
would save one message and about five requests, which all partitions that start together share (ADR
3). Also rejected: to let lanes hand partitions to each other. Only the driver knows which lanes are
lost (ADR 1).

Nothing is decided here about records: `mirror.copy.partition` decides what may be sent and what
responses mean.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from twinlog.errors import Fate, PartitionError, TwinlogError
from twinlog.lane.cold_starts import ColdStarts
from twinlog.lane.lane_partition import ColdStart, LanePartition, StartResult
from twinlog.lane.late_requests import USER_TIMEOUT_MS
from twinlog.lane.map_writer import MapWriter
from twinlog.lane.messages import (
    LaneLoad,
    Progress,
    Released,
    ReleasedPartition,
    Take,
    TakePartition,
    Throttle,
    Work,
)
from twinlog.lane.ports import LanePorts
from twinlog.lane.reporting import Reporter, hand_over, handed_tail, troubled_message
from twinlog.lane.sides.pace import TopicBuckets
from twinlog.lane.sides.source_side import SourceSide
from twinlog.lane.sides.target_side import TargetSide
from twinlog.lane.transforming import Transforming
from twinlog.lane.watches.expiry_watch import ExpiryWatch
from twinlog.lane.watches.foreign_records import ForeignRecordWatch
from twinlog.lane.watches.offset_gaps import GapWatch
from twinlog.lane.watches.stalls import NO_LEADER_AFTER_S, NoLeaderWatch, StallWatch
from twinlog.mirror.copy.dead_letters import DeadLetters
from twinlog.mirror.copy.fan_out import Branch, Copy, FanOut, read_to
from twinlog.mirror.copy.intake import OutBatch
from twinlog.mirror.copy.partition import CopyState, PartitionCopy
from twinlog.mirror.copy.transformed import TransformedCopy
from twinlog.mirror.map.map_tail import MapTail, first_runs
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.skips import Skip
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import TopicPartition

Part = TypeVar("Part", bound=PartitionCopy)


class Assignments:
    """All partitions of this lane. The loop calls its methods, and the clusters' sides report
    events to it (`LaneEvents`).
    """

    def __init__(self, work: Work, ports: LanePorts) -> None:
        self._work = work
        self._ports = ports
        source, target, clock = ports.source, ports.target, ports.clock
        self._gaps = GapWatch(ports=ports)
        self.source = SourceSide(
            side=source,
            clock=clock,
            isolation=work.isolation,
            memory_bytes=work.memory_bytes,
            events=self,
            pace=TopicBuckets(clock, has_budget=work.has_budget),
            tuning=work.tuning,
        )
        self._transforming = Transforming(work, ports.transformer, target)
        self._stalls = StallWatch(ports=ports, source=self.source, isolation=work.isolation)
        self.target = TargetSide(
            side=target, clock=clock, events=self, request_bytes=work.tuning.request_bytes
        )
        self.map = MapWriter(
            side=target,
            clock=clock,
            topic=work.map_topic,
            topic_id=work.map_topic_id,
            partitions=work.map_partitions,
            events=self,
        )
        self._rules = CopyRules(
            producer_id=work.producer_id,
            isolation=work.isolation,
            is_ours_alone=work.is_ours_alone,
            producer_expiry_ms=work.producer_expiry_ms,
            recompression=work.tuning.recompression,
            join_bytes=work.tuning.join_bytes,
        )
        self._no_leader = NoLeaderWatch(ports)
        self._starter = ColdStarts(work, self._rules, ports, self._no_leader, self)
        self._expiry = ExpiryWatch(ports=ports, expiry_ms=work.producer_expiry_ms, events=self)
        self._others = ForeignRecordWatch(
            ports=ports,
            isolation=work.isolation,
            known_producers=frozenset(work.known_producers),
            events=self,
        )
        self._partitions: dict[TopicPartition, LanePartition] = {}
        self._leaving: dict[TopicPartition, LanePartition] = {}
        """Partitions that are draining. Each is given back to the driver as soon as it is
        drained.
        """
        self._unsettled: set[TopicPartition] = set()
        """Partitions that `settle` must check, because they may be ready to leave the lane."""
        self.reporter = Reporter(self.source, self._gaps, self.map.epoch_of)
        source.on_leaders = self.source.on_new_leaders
        target.on_leaders = self.target.on_new_leaders
        target.on_connected = lambda _node: self.target.wake_all()

    def on_expiry_changed(self, expiry_ms: int) -> None:
        self._rules = replace(self._rules, producer_expiry_ms=expiry_ms)
        self._starter.copy_rules = self._rules
        for copy in self._copies():
            for part in copy.parts:
                part.set_expiry(self._rules)

    def _copies(self) -> Iterator[Copy]:
        return (held.copy for held in self._partitions.values() if held.copy is not None)

    def _copy(self, tp: TopicPartition) -> Copy | None:
        held = self._partitions.get(tp)
        return None if held is None else held.copy

    @property
    def is_empty(self) -> bool:
        return not self._partitions

    @property
    def is_releasing(self) -> bool:
        """True if partitions are draining, so that a turn of the loop must be short."""
        return bool(self._leaving)

    @property
    def responses_can_wait(self) -> bool:
        """True if the target's responses need not be read before the next records of the source.

        This saves a turn per response. It is possible while more records are due within
        milliseconds and no batch waits for a response.
        """
        return not (self._leaving or self.target.is_blocked) and self.source.is_steady

    def set_known_producers(self, producers: frozenset[int]) -> None:
        """Update the producer IDs of all Twinlog flows.

        If a copy ended because an unknown client wrote to its topic, that client may be one of
        these flows. So the partition is given back to the driver, and the next start checks both
        logs again.
        """
        self._starter.set_known_producers(producers)
        self._others.known_producers = producers
        for copy in self._copies():
            if copy.state is CopyState.TAKEN_OVER and isinstance(copy, PartitionCopy):
                text = (
                    f"{copy.target}: a flow that was unknown before writes to this cluster, and "
                    "may have written the other records; checking again"
                )
                error = PartitionError(text, code="TAKEN_OVER", fate=Fate.RETRIABLE)
                copy.trouble = copy.trouble or error
                self._unsettled.add(copy.source)

    def pump(self, *, hurry: bool) -> None:
        """Send all map rows, batches and fetches that can be sent now."""
        now_ms = self._ports.clock.wall_ms()
        self._starter.tick()
        self._note_ended_lanes()
        self._pass_on_answers(now_ms)
        self.map.pump(now_ms)
        self.target.pump(now_ms)
        self.source.pump(hurry=hurry or self._starter.is_busy)
        if not self._work.is_ours_alone:
            self._others.poll(c for c in self._copies() if isinstance(c, PartitionCopy))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Drain these partitions, and give each back to the driver as soon as it is drained."""
        for tp in partitions:
            self._begin_release(tp, is_done=False)

    def release_all(self) -> None:
        """Drain all partitions, and give them back to the driver."""
        self.release(list(self._partitions))

    def on_take(self, take: Take) -> None:
        """Start these partitions. Search the start point of each, unless it was handed over."""
        cold = []
        for partition in take.partitions:
            held = self._partitions[partition.source] = LanePartition(ColdStart(partition))
            self._starter.expect_late_requests(held.start)
            if (error := self._transforming.refusal(partition)) is not None:
                self._give_back(held, error, wait_ms=partition.late_requests_ms)
            elif partition.handed is None:
                cold.append(held.start)
            else:
                handed = partition.handed
                tail = handed_tail(partition.map_key, partition, handed, self._work)
                self._begin_copy(held, handed.start, tail)
        if cold:
            self._starter.start(cold)

    def on_started(self, take: TakePartition, result: StartResult) -> None:
        partition = self._partitions.get(take.source)
        if partition is None or partition.take is not take:
            return  # the partition was released during the search, so the result is dropped
        if isinstance(result, TwinlogError):
            self._give_back(partition, result, wait_ms=0)
            return
        if self._starter.must_wait(partition.start, result):
            return
        if isinstance(result, tuple):
            self._begin_fan(partition, result)
            return
        position = Run(result.ordinal, result.upstream, result.k + result.ordinal)
        is_other = take.written_by != take.transform
        runs = first_runs(take.runs, take.open_from, result.jumps, position, begins_chunk=is_other)
        mark = result.mark(take.mark, is_alone=self._rules.is_ours_alone)
        tail = MapTail(
            key=take.map_key,
            topic=take.source.topic,
            term=take.term,
            producer_id=self._work.producer_id,
            mark=mark,
            fingerprint=take.fingerprints.get(runs[-1].ordinal),
            # the very first row, corrections of the map, and the end of a copy that other clients
            # ended are written even if there is nothing to copy
            dirty=not take.runs or bool(result.jumps) or (result.taken_over and mark != take.mark),
            transform=take.transform,
        ).begin(runs, take.written_by)
        self._begin_copy(partition, result, tail)

    def _begin_copy(self, partition: LanePartition, start: StartPoint, tail: MapTail) -> None:
        take = partition.take
        kind: Callable[..., PartitionCopy] = PartitionCopy
        if take.transform:
            desk = self._transforming.desk
            assert desk is not None  # noqa: S101 (`Transforming.refusal`)
            to = self._transforming.dead_letters()
            kind = partial(TransformedCopy, transform=take.transform, desk=desk, dead_letters=to)
        copy = self._make_copy(kind, partition, take.target, start, tail, self._rules, take.skips)
        self._begin(partition, copy, [start])

    def _make_copy(
        self,
        kind: Callable[..., Part],
        partition: LanePartition,
        target: TopicPartition,
        start: StartPoint,
        tail: MapTail,
        rules: CopyRules,
        skips: Sequence[Skip] = (),
    ) -> Part:
        take = partition.take
        return kind(
            source=take.source,
            target=target,
            source_topic_id=take.source_topic_id,
            target_topic_id=take.target_topic_id,
            rules=rules,
            start=start,
            tail=tail,
            end=take.end,
            limit_bytes=take.limit_bytes,
            has_log_append_time=take.has_log_append_time,
            may_reject_records=take.may_reject_records or take.compresses,
            last_run=tail.runs[-1] if tail.runs else None,
            now_ms=self._ports.clock.wall_ms(),
            late_requests=partition.start.may_have_missed,
            old_lane=partition.start.has_old_lane,
            skips=skips,
        )

    def _begin_fan(self, partition: LanePartition, starts: Sequence[StartPoint]) -> None:
        take = partition.take
        assert take.fan is not None  # noqa: S101 (only a fan has several starts)
        rules = replace(self._rules, producer_id=take.fan.producer_id, is_ours_alone=False)
        count = len(take.fan.branches)
        branches = []
        for asked, start in zip(take.fan.branches, starts, strict=True):
            tail = MapTail(
                key=take.map_key._replace(branch=asked.target.partition, branches=count),
                topic=take.source.topic,
                term=take.term,
                runs=[read_to(start.ordinal, start.upstream)],
                producer_id=take.fan.producer_id,
                mark=start.as_mark,
                dirty=not asked.runs,
            )
            branches.append(self._make_copy(Branch, partition, asked.target, start, tail, rules))
        copy = FanOut(
            source=take.source,
            source_topic_id=take.source_topic_id,
            branches=branches,
            isolation=self._rules.isolation,
            end=take.end,
            skips=take.skips,
        )
        self._begin(partition, copy, starts)

    def _begin(self, partition: LanePartition, copy: Copy, starts: Iterable[StartPoint]) -> None:
        partition.copy = copy
        partition.lost = tuple(sorted({start.lost for start in starts if start.lost is not None}))
        self._unsettled.add(copy.source)
        if not isinstance(copy, FanOut) or copy.may_read_source():
            self.source.add(copy)
        searched_at, handed = self._starter.searched_at(partition.start), partition.take.handed
        map_epoch = -1 if handed is None else handed.map_epoch
        for part in copy.parts:
            self.map.add(part, map_epoch)
        for part in _writers(copy):
            self.target.add(part, searched_at)

    # -- the steps for one partition

    def on_arrived(self, copy: Copy) -> None:
        for part in copy.parts:
            self.map.note(part)
        for part in _writers(copy):
            self.target.wake(part)
        self._check_done(copy)

    def _pass_on_answers(self, now_ms: int) -> None:
        """Pass the answers of the transforms' application to the copies that offered the ranges."""
        desk = self._transforming.desk
        for copy in () if desk is None else desk.deliver(now_ms):
            if copy.source_trouble is not None:
                self.on_troubled(copy.source, copy.source_trouble)
            self._unsettled.add(copy.source)
            self.on_arrived(copy)

    def on_jumped(self, tp: TopicPartition, jumps: Iterable[tuple[int, int]]) -> None:
        self._gaps.note(tp, jumps)

    def on_durable(self, copy: PartitionCopy) -> None:
        self._unsettled.add(copy.source)
        self.target.wake(copy)
        whole = self._copy(copy.source)
        if isinstance(whole, FanOut) and whole.may_read_source():
            self.source.add(whole)

    def on_answered(self, copy: PartitionCopy) -> None:
        self._unsettled.add(copy.source)
        whole = self._copy(copy.source)
        if isinstance(copy, DeadLetters):
            if isinstance(whole, TransformedCopy) and whole.dead_letters is copy:
                whole.use_answers(self._ports.clock.wall_ms())
                self.on_arrived(whole)
            return
        self.map.note(copy)
        if copy.others.unknown is not None:
            self._others.require_recheck(copy)
        if whole is not None:
            self._check_done(whole)

    def on_writer_known(self, copy: PartitionCopy) -> None:
        self.target.wake(copy)

    def _check_done(self, copy: Copy) -> None:
        if copy.is_done and copy.trouble is None and copy.source not in self._leaving:
            self._begin_release(copy.source, is_done=True)

    def on_troubled(self, tp: TopicPartition, error: TwinlogError) -> None:
        copy = self._copy(tp)
        if copy is None:
            return
        # the records before the bad offset are good, so they are still sent and acknowledged
        self.source.remove(tp)
        copy.source_trouble = error
        self._unsettled.add(tp)

    def _stop_leaderless(self) -> None:
        """Stop partitions that have had no leader for too long, so that their records no longer
        occupy the lane's memory.
        """
        if self._no_leader.all_are_led:
            return
        for copy in self._copies():
            error = self._no_leader.of_source(copy, after_s=NO_LEADER_AFTER_S)
            if error is not None and copy.source_trouble is None:
                self.on_troubled(copy.source, error)
            for part in _writers(copy):
                error = self._no_leader.of_target(part.target, after_s=NO_LEADER_AFTER_S)
                part.trouble = part.trouble or error

    def _note_ended_lanes(self) -> None:
        for tp, is_over in self._starter.earlier_lanes_ended():
            copy = self._copy(tp)
            for part in () if copy is None else copy.parts:
                part.on_earlier_lane_ended(is_over=is_over)
            self._unsettled.add(tp)

    def on_map_failed(self, copy: PartitionCopy, error: PartitionError) -> None:
        self._unsettled.add(copy.source)
        copy.trouble = copy.trouble or error

    def settle(self) -> None:
        """Give failed partitions, and draining ones that are drained, back to the driver."""
        for tp in list(self._unsettled):
            partition = self._partitions.get(tp)
            if partition is None or (copy := partition.copy) is None:
                self._unsettled.discard(tp)
                continue
            if _is_waiting(copy):
                continue  # it stays in `_unsettled`, so the next turn checks it
            if copy.trouble is not None:  # checked before `_leaving`, so that the error is not lost
                late_ms = USER_TIMEOUT_MS + self._throttle().longest_ms
                wait_ms = late_ms if copy.has_unknown_outcomes else 0
                self._give_back(partition, copy.trouble, wait_ms)
            elif copy.source_trouble is not None and copy.is_drained:
                self._give_back(partition, copy.source_trouble, wait_ms=0)
            elif tp in self._leaving:
                self._finish_release(partition)
            elif copy.end <= copy.acked_upstream:
                self._check_done(copy)
            elif copy.source_trouble is None:
                self._unsettled.discard(tp)
        for partition in [
            partition for partition in self._leaving.values() if partition.copy is None
        ]:
            self._finish_release(partition)  # a search only reads, so its result can be dropped

    def _begin_release(self, tp: TopicPartition, *, is_done: bool) -> None:
        held = self._partitions.get(tp)
        if held is None:
            return
        self._leaving[tp], held.is_done = held, is_done
        self._unsettled.add(tp)
        if held.copy is not None:
            for part in held.copy.parts:
                part.note_position()
            held.copy.drain()

    def _finish_release(self, partition: LanePartition) -> None:
        take, copy = partition.take, partition.copy
        unwritten = [] if copy is None else self._unwritten(copy, take)
        if unwritten:
            for part in unwritten:
                self.map.note(part)
            return  # wait until these rows are durable
        if self._gaps.must_stay(take.source):
            return
        handed = None
        if isinstance(copy, PartitionCopy):
            # branches are never handed over: their start is always searched
            handed = hand_over(copy, self.map.epoch_of(copy))
        last = ReleasedPartition(
            source=take.source,
            term=take.term,
            handed=handed,
            done=partition.is_done and copy is not None,
        )
        if copy is not None:
            self._report([partition])
        self._remove(partition)
        self._ports.send(Released(partitions=(last,)))

    def _unwritten(self, copy: Copy, take: TakePartition) -> list[PartitionCopy]:
        for part in copy.parts:
            if not part.is_ours_alone:
                part.tail.note(part.mark(at_rest=True))
        return [
            part
            for part in copy.parts
            if part.has_undurable_position
            or (part.tail.dirty and not (part.is_ours_alone and take.runs))
        ]

    def _give_back(self, partition: LanePartition, error: TwinlogError, wait_ms: int) -> None:
        troubled = troubled_message(partition.take.source, error, partition.copy, wait_ms)
        if partition.copy is not None:
            self._report([partition])
        self._remove(partition)
        self._ports.send(troubled)

    def _remove(self, partition: LanePartition) -> None:
        tp = partition.take.source
        del self._partitions[tp]
        self._leaving.pop(tp, None)
        self._starter.forget(partition.start)
        if partition.copy is not None:
            self.source.remove(tp)
            self._gaps.forget(tp)
            if isinstance(partition.copy, TransformedCopy):
                partition.copy.drop_unsent()
            for part in partition.copy.parts:
                self.map.forget(part)
            for part in _writers(partition.copy):
                self.target.remove(part)

    def note_marks(self) -> None:
        """Write to the offset map how far each source partition was read and, in topics to which
        other clients write, the mark (`mirror.map.offset_map.Mark`). So the next cold start has
        less to read.
        """
        self._note_marks(self._copies())

    def _note_marks(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            for part in copy.parts:
                has_ended = part.state is CopyState.TAKEN_OVER
                if (part.state is not CopyState.COPYING and not has_ended) or part.trouble:
                    continue
                part.note_position()
                if not part.is_ours_alone:
                    part.tail.note(part.mark(at_rest=has_ended))
                self.map.note(part)

    # -- reporting

    def report(self) -> None:
        """Report to the driver what has changed since the last report, and let `settle` check every
        partition. Called once a second.
        """
        self._stop_leaderless()
        for copy, error in self._transforming.unanswered():
            self.on_troubled(copy.source, error)
        # positions of transformed copies are written every second, because records that a filter
        # drops would otherwise be read again after a crash
        self._note_marks(copy for copy in self._copies() if isinstance(copy, TransformedCopy))
        free_responses(
            batch
            for copy in self._copies()
            for part in copy.parts
            for batch in part.waiting_batches()
        )
        self._unsettled.update(self._partitions)
        self._stalls.poll()
        self._gaps.poll()
        self._expiry.poll()
        self._report(self._partitions.values(), self._load())

    def _report(self, partitions: Iterable[LanePartition], load: LaneLoad | None = None) -> None:
        self._ports.send(
            Progress(
                partitions=tuple(self.reporter.changes(partitions, self._ports.clock.wall_ms())),
                unreachable=self._ports.source.problem or self._ports.target.problem,
                throttle=self._throttle(),
                cpu_ms=self.reporter.used_cpu_ms(int(time.process_time() * 1000)),
                load=load,
            )
        )

    def _load(self) -> LaneLoad:
        return LaneLoad(
            waiting_records=sum(
                part.intake.ordinal - part.acked_ordinal
                for copy in self._copies()
                for part in copy.parts
                if part.state is CopyState.COPYING  # in other states, unsent batches were dropped
            ),
            free_bytes=max(0, self.source.room_bytes),
            received_bytes=self._ports.source.traffic.pop().received,
            sent_bytes=self._ports.target.traffic.pop().sent,
        )

    def _throttle(self) -> Throttle:
        return Throttle(
            source_ms=self._ports.source.muted_ms(), target_ms=self._ports.target.muted_ms()
        )


def free_responses(batches: Iterable[OutBatch]) -> None:
    """Copy batches out of each Fetch response of which these batches are less than half.

    A batch is a slice of a response, which may be thousands of times as large, and only the batch
    counts against the lane's memory. So a few batches that wait long, for example because one of
    several target brokers does not respond, must not keep whole responses in memory.
    """
    waiting, sizes = list(batches), Counter[int]()
    for batch in waiting:
        sizes[id(batch.data.obj)] += len(batch.data)
    for batch in waiting:
        response = cast("Sized", batch.data.obj)
        if 2 * sizes[id(response)] < len(response):
            batch.data = memoryview(bytearray(batch.data))


def _is_waiting(copy: Copy) -> bool:
    """Return True if a batch or a map row of the copy is in flight."""
    if isinstance(copy, FanOut) and copy.trouble is not None:
        copy.halt()
    if isinstance(copy, TransformedCopy):
        copy.check_dead_letters()
    return any(part.in_flight or part.tail.writing for part in _writers(copy))


def _writers(copy: Copy) -> tuple[PartitionCopy, ...]:
    """Return all copies that write to the target for one source partition: the parts of `copy`, and
    the writer of its dead letters.
    """
    letters = copy.dead_letters if isinstance(copy, TransformedCopy) else None
    return copy.parts if letters is None else (*copy.parts, letters)
