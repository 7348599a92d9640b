"""Cold starts of a lane: many partitions looked at together, in the background.

A partition that has no leader keeps none of the others waiting: it is looked at when it is led, or
given back. Those whose broker does not answer us have looks of their own, and so has each one whose
end is searched behind much that others wrote.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.lane.events import Found, LaneEvents
from twinlog.lane.late_requests import USER_TIMEOUT_MS
from twinlog.lane.messages import Fan, TakePartition, Work
from twinlog.lane.sides.background import JobKind, LaneJobs
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.lane.watches.no_leader import NO_LEADER_AFTER_S, NoLeaderWatch
from twinlog.mirror.start.cold_start import batched, starts_in_groups
from twinlog.mirror.start.fan_start import FanStart, find_fan_start
from twinlog.mirror.start.our_end import LongSearch
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

Start = StartPoint | FanStart

LOOKS_AT_ONCE: Final = 3
"""Of each sort: each has tails in memory."""

FEW_READS: Final = 2
"""Behind the mark of a partition of a shared topic, where others wait for the same look."""

MANY: Final = 256
"""Partitions of a look that takes seconds where brokers are far: more are shared by two."""

TOGETHER_S: Final = 0.25
"""What is due within this time is due together."""


class Sort(Enum):
    """Looks that do not wait for one another."""

    SOUND = auto()
    SLOW = auto()
    """Their brokers do not answer us."""
    LONG = auto()
    """One partition each: its end is searched (`LongSearch`)."""


class ColdStarts:
    """Finds start points without stopping the loop.

    Partitions that wait are looked at together: one look asks for hundreds as for one. While
    LOOKS_AT_ONCE are under way the others gather.
    """

    def __init__(
        self,
        work: Work,
        copy_rules: CopyRules,
        source: ClusterSide,
        target: ClusterSide,
        background: LaneJobs,
        no_leader: NoLeaderWatch,
        events: LaneEvents,
    ) -> None:
        self._work = work
        self._log = FlowLog(log, work.flow)
        self.copy_rules = copy_rules
        self._source = source
        self._target = target
        self._background = background
        self._events = events
        self._looking: dict[TopicPartition, TakePartition] = {}
        self._waiting: dict[TopicPartition, TakePartition] = {}
        """Those of them that no look has begun for."""
        self._looks = dict.fromkeys(Sort, 0)
        """Under way."""
        self._long: set[TopicPartition] = set()
        """Those whose search was found to be long."""
        self._late_until: dict[TopicPartition, float] = {}
        """Monotonic: until then requests of an earlier holder may arrive."""
        self._lane_until: dict[TopicPartition, float] = {}
        """Monotonic: until then its lane may send, if it lives."""
        self._looked_at: dict[TopicPartition, float] = {}
        """Monotonic: when the last look began; what came since was perhaps not seen."""
        self._delayed: dict[TopicPartition, tuple[float, TakePartition]] = {}
        self._no_leader = no_leader
        self._leaderless: dict[TopicPartition, tuple[float, TakePartition]] = {}
        self._rules = StartRules(
            producer_id=work.producer_id,
            is_ours_alone=work.is_ours_alone,
            isolation=work.isolation,
            known_producers=frozenset(work.known_producers),
        )

    def know(self, producers: frozenset[int]) -> None:
        """These are the ids of all flows of ours."""
        self._rules = replace(self._rules, known_producers=producers)

    @property
    def is_busy(self) -> bool:
        """Partitions are about to start: fetches should not wait long."""
        return bool(self._looking)

    def start(self, takes: Iterable[TakePartition]) -> None:
        """Look at these partitions now."""
        until = time.monotonic() + NO_LEADER_AFTER_S
        for take in takes:
            self._source.need_topics((take.source.topic,))
            self._target.need_topics((take.target.topic,))
            if self._no_leader.of_take(take) is not None:
                self._looking.pop(take.source, None)
                self._leaderless[take.source] = until, take
            else:
                self._looking[take.source] = self._waiting[take.source] = take
        self._begin_looks()

    def expect_late_requests(self, take: TakePartition) -> None:
        """Those of an earlier holder, for as long as the driver says; of none where nobody can have
        sent any, since no row of the map has fixed a start.
        """
        has_begun = bool(take.runs) or take.fan is not None or take.handed is not None
        if take.late_requests_ms and has_begun:
            late_s = take.late_requests_ms / 1000
            self._late_until[take.source] = until = time.monotonic() + late_s
            self._lane_until[take.source] = until - USER_TIMEOUT_MS / 1000

    def may_have_missed(self, take: TakePartition) -> bool:
        """Late requests may arrive after its look began, or after it was handed over."""
        return _is_after(self._late_until, self._looked_at, take)

    def has_old_lane(self, take: TakePartition) -> bool:
        """Its earlier lane may have sent something after its look began, if it lives."""
        return _is_after(self._lane_until, self._looked_at, take)

    def late_requests_over(self, begun: Container[TopicPartition]) -> list[TopicPartition]:
        """Those, among the partitions that have begun, for which the wait has just ended."""
        return _take_over(self._late_until, begun)

    def old_lanes_stopped(self, begun: Container[TopicPartition]) -> list[TopicPartition]:
        """Those whose earlier lane, if it lives, has just stopped by itself."""
        return _take_over(self._lane_until, begun)

    def looked_at(self, tp: TopicPartition) -> float:
        """When the last look at the target's log began; of one that was handed over: now."""
        return self._looked_at.get(tp, time.monotonic())

    def must_wait(self, take: TakePartition, found: Start) -> bool:
        """True when the start point may still move; the partition is then looked at again later.

        A partition need not wait: what it must not send by then it holds back (`PartitionCopy`),
        and one that is at its end has nothing to send. But a late request may hold other records
        than ours by now (the source was compacted), and then our own is answered as its repeat:
        where an answer does not show that (LogAppendTime), all wait. So does what was taken over,
        whose end is noted for good, and a fan, unless the target knows us in each branch: its map
        names single places only.
        """
        if not self.may_have_missed(take):
            return False
        if isinstance(found, FanStart):
            now_ms = int(time.time() * 1000)
            begins = all(self.copy_rules.keeps(point, now_ms) for point in found.points)
        else:
            begins = not found.taken_over
        if begins and take.stamps_own_time is False:
            return False
        self._looking[take.source] = take
        until = math.ceil(self._late_until[take.source] / TOGETHER_S) * TOGETHER_S
        self._delayed[take.source] = until, take
        return True

    def forget(self, tp: TopicPartition) -> None:
        """It left the lane: what was still to be looked at is of no use to who takes it again."""
        self._long.discard(tp)
        self._late_until.pop(tp, None)
        self._lane_until.pop(tp, None)
        self._looked_at.pop(tp, None)
        self._looking.pop(tp, None)
        self._waiting.pop(tp, None)
        self._delayed.pop(tp, None)
        self._leaderless.pop(tp, None)

    def tend(self) -> None:
        """Begin what has waited long enough; called on every turn."""
        if self._leaderless:
            self._tend_leaderless()
        now = time.monotonic()
        due = [take for until, take in self._delayed.values() if until <= now]
        for take in due:
            del self._delayed[take.source]
        if due:
            self.start(due)
        elif self._waiting:
            self._begin_looks()

    def _tend_leaderless(self) -> None:
        now, waiting = time.monotonic(), self._leaderless
        self._leaderless = {}
        led: list[TakePartition] = []
        for until, take in waiting.values():
            error = self._no_leader.of_take(take)
            if error is None:
                led.append(take)
            elif until <= now:
                self._events.started(take, error)
            else:
                self._leaderless[take.source] = until, take
        if led:
            self.start(led)

    def _begin_looks(self) -> None:
        sorts: dict[Sort, list[TakePartition]] = {sort: [] for sort in Sort}
        for take in self._waiting.values():
            sorts[self._sort(take)].append(take)
        for sort, takes in sorts.items():
            free = LOOKS_AT_ONCE - self._looks[sort]
            if not takes or not free:
                continue
            if sort is Sort.LONG:
                looks: Iterable[Sequence[TakePartition]] = batched(takes[:free], 1)
            else:
                count = max(1, min(free - 1, len(takes) // MANY))  # one is left for who comes next
                looks = batched(takes, -(-len(takes) // count))
            for some in looks:
                self._begin_look(some, sort)

    def _sort(self, take: TakePartition) -> Sort:
        if take.source in self._long:
            return Sort.LONG
        return Sort.SOUND if self._no_leader.is_sound(take) else Sort.SLOW

    def _begin_look(self, takes: Sequence[TakePartition], sort: Sort) -> None:
        self._looks[sort] += 1
        left = {take.source: take for take in takes}
        for tp in left:
            del self._waiting[tp]
            self._looked_at[tp] = time.monotonic()

        def found(starts: Mapping[TopicPartition, Found]) -> None:
            for tp, start in starts.items():
                take = left.pop(tp)
                if self._looking.get(tp) is not take:
                    continue
                if isinstance(start, LongSearch):
                    self._long.add(tp)
                    self._waiting[tp] = take
                else:
                    del self._looking[tp]
                    self._events.started(take, start)

        def ended(_: object = None) -> None:
            self._looks[sort] -= 1
            self._begin_looks()

        def failed(error: TwinlogError) -> None:
            found(dict.fromkeys(left, error))
            ended()

        most_reads = None if sort is Sort.LONG else FEW_READS

        def look() -> None:
            self._find(takes, most_reads, lambda some: self._background.post(lambda: found(some)))

        self._background.submit(JobKind.LOOK, look, ended, failed)

    def _find(
        self,
        takes: Sequence[TakePartition],
        most_reads: int | None,
        told: Callable[[Mapping[TopicPartition, Found]], None],
    ) -> None:
        """All that is found is told as it is found."""
        all_requests = {
            take.source: replace(self._request(take), most_reads=most_reads) for take in takes
        }
        requests = [all_requests[take.source] for take in takes if take.fan is None]
        with ExitStack() as stack:
            here = stack.enter_context(self._source.borrowed())
            there = stack.enter_context(self._target.borrowed())
            for client in (here, there):
                stack.enter_context(client.keeping_leaders())
            source, target = ClusterLogView(here), ClusterLogView(there)
            if requests:
                for some in starts_in_groups(requests, source, target, self._rules):
                    self._say_compared(some)
                    told(some)
            for take in takes:
                if take.fan is not None:
                    whole = all_requests[take.source]
                    told({take.source: self._find_fan(whole, take.fan, source, target)})

    def _say_compared(self, found: Mapping[TopicPartition, Found]) -> None:
        for tp, start in found.items():
            if isinstance(start, StartPoint) and start.compared >= 0:
                self._log.info(
                    "start partition=%s ordinal=%d upstream=%d: %s",
                    tp,
                    start.ordinal,
                    start.upstream,
                    f"{start.compared} of the last records are the same on both sides"
                    if start.compared
                    else "no record could be compared, the target's log end and the map say it",
                )

    def _find_fan(
        self, whole: StartRequest, fan: Fan, source: ClusterLogView, target: ClusterLogView
    ) -> Found:
        requests = [
            replace(
                whole,
                target=branch.target,
                is_branch=True,
                runs=branch.runs,
                mark=branch.mark,
                our_producers=frozenset((*branch.our_producers, fan.producer_id)),
            )
            for branch in fan.branches
        ]
        rules = replace(self._rules, producer_id=fan.producer_id)
        try:
            return find_fan_start(requests, source, target, rules)
        except TwinlogError as error:
            return error

    def _request(self, take: TakePartition) -> StartRequest:
        return StartRequest(
            source=take.source,
            target=take.target,
            source_topic_id=take.source_topic_id,
            target_topic_id=take.target_topic_id,
            runs=take.runs,
            runs_from=take.runs_from,
            mark=take.mark,
            fingerprints=take.fingerprints,
            our_producers=frozenset((*take.our_producers, self._rules.producer_id)),
            start=take.start,
            group_at=take.group_at,
            began_at=take.began_at,
            former=take.former,
            is_another=take.is_another,
            had_row=take.had_row,
            acked_ordinal=take.acked_ordinal,
            acked_epoch=take.acked_epoch,
            lost=take.lost,
            may_lose_batches=take.is_picky,
            accept_source_loss=self._work.accept_source_loss,
            skips=take.skips,
            accepted=take.accepted,
        )


def _is_after(
    until: Mapping[TopicPartition, float],
    looked_at: Mapping[TopicPartition, float],
    take: TakePartition,
) -> bool:
    return until.get(take.source, 0.0) > looked_at.get(take.source, 0.0)


def _take_over(
    until: dict[TopicPartition, float], begun: Container[TopicPartition]
) -> list[TopicPartition]:
    """Those that have begun and whose time has come; they are not asked for again."""
    now = time.monotonic()
    over = [tp for tp, at in until.items() if at <= now and tp in begun]
    for tp in over:
        del until[tp]
    return over
