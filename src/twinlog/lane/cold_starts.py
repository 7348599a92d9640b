"""Cold starts of a lane: many partitions looked at together, in the background.

A partition that has no leader keeps none of the others waiting: it is looked at when it is led, or
given back. One whose broker does not answer us is looked at behind the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from twinlog.errors import TwinlogError
from twinlog.lane.messages import Fan, TakePartition, Work
from twinlog.lane.sides.background import Background
from twinlog.lane.sides.cluster_side import ClusterSide
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.lane.watches.no_leader import NO_LEADER_AFTER_S, NoLeaderWatch
from twinlog.mirror.start.cold_start import find_starts
from twinlog.mirror.start.fan_start import FanStart, find_fan_start
from twinlog.mirror.start.request import StartRequest, StartRules
from twinlog.mirror.start_point import CopyRules, StartPoint
from twinlog.model import TopicPartition

log = logging.getLogger(__name__)

Found = StartPoint | FanStart | TwinlogError
Start = StartPoint | FanStart
OnStarted = Callable[[TakePartition, Found], None]


def waits_for_late_requests(take: TakePartition) -> int:
    """For how many ms requests of an earlier holder may still arrive; 0 where nobody can have sent
    any, since no row of the map has fixed a start.
    """
    has_begun = bool(take.runs) or take.fan is not None or take.handed is not None
    return take.unprotected_wait_ms if has_begun else 0


class Starter:
    """Finds start points without stopping the loop."""

    def __init__(
        self,
        work: Work,
        copy_rules: CopyRules,
        source: ClusterSide,
        target: ClusterSide,
        background: Background,
        no_leader: NoLeaderWatch,
    ) -> None:
        self._work = work
        self.copy_rules = copy_rules
        self._source = source
        self._target = target
        self._background = background
        self._looking: dict[TopicPartition, TakePartition] = {}
        self._wait_until: dict[TopicPartition, float] = {}
        self._looked_at: dict[TopicPartition, float] = {}
        self._delayed: list[tuple[float, list[TakePartition], OnStarted]] = []
        self._no_leader = no_leader
        self._leaderless: list[tuple[float, TakePartition, OnStarted]] = []
        self._rules = StartRules(
            producer_id=work.producer_id,
            is_ours_alone=work.is_ours_alone,
            read_committed=work.read_committed,
            known_producers=frozenset(work.known_producers),
            unmapped=frozenset(work.unmapped_targets),
        )

    @property
    def is_busy(self) -> bool:
        """Partitions are about to start: fetches should not wait long."""
        return bool(self._looking)

    def start(self, takes: Iterable[TakePartition], on_started: OnStarted) -> None:
        """Look at these partitions now."""
        group = list(takes)
        until = time.monotonic()
        for take in group:
            if late_ms := waits_for_late_requests(take):
                self._wait_until[take.source] = until + late_ms / 1000
        self._look(group, on_started)

    def must_wait(self, take: TakePartition, found: Start, on_started: OnStarted) -> bool:
        """True when the start point may still move; the partition is then looked at again later.

        A protected partition need not wait: a late request of a dead lane carries the sequences
        that follow, and so either is the batch that we would write or is refused. But it may hold
        other records than ours by now (the source was compacted), and then our own is answered as
        its repeat: where an answer does not show that (LogAppendTime), all wait.
        """
        until = self._wait_until.pop(take.source, 0.0)
        looked_at = self.looked_at(take)  # what came while we looked was perhaps not seen
        now_ms = int(time.time() * 1000)
        points = found.points if isinstance(found, FanStart) else (found,)
        is_kept = all(self.copy_rules.keeps(p, now_ms) for p in points)
        if until <= looked_at or (is_kept and take.stamps_own_time is False):
            return False
        self._looking[take.source] = take
        self._delayed.append((until, [take], on_started))
        return True

    def looked_at(self, take: TakePartition) -> float:
        """Monotonic: when its last look began; 0 of one that was handed over."""
        return self._looked_at.get(take.source, 0.0)

    def forget(self, tp: TopicPartition) -> None:
        """It left the lane."""
        self._looked_at.pop(tp, None)

    def tend(self) -> None:
        """Begin what has waited long enough; called on every turn."""
        if self._leaderless:
            self._tend_leaderless()
        now = time.monotonic()
        due = [one for one in self._delayed if one[0] <= now]
        if due:
            self._delayed = [one for one in self._delayed if one[0] > now]
            for _, group, on_started in due:
                self._look(group, on_started)

    def _tend_leaderless(self) -> None:
        now, waiting = time.monotonic(), self._leaderless
        self._leaderless = []
        led: dict[OnStarted, list[TakePartition]] = {}
        for until, take, on_started in waiting:
            error = self._no_leader.of_take(take)
            if error is None:
                led.setdefault(on_started, []).append(take)
            elif until <= now:
                on_started(take, error)
            else:
                self._leaderless.append((until, take, on_started))
        for on_started, takes in led.items():
            self._look(takes, on_started)

    def _look(self, takes: list[TakePartition], on_started: OnStarted) -> None:
        until = time.monotonic() + NO_LEADER_AFTER_S
        sound: list[TakePartition] = []
        slow: list[TakePartition] = []
        for take in takes:
            self._source.need_topics((take.source.topic,))
            self._target.need_topics((take.target.topic,))
            if self._no_leader.of_take(take) is not None:
                self._looking.pop(take.source, None)
                self._leaderless.append((until, take, on_started))
            else:
                (sound if self._no_leader.is_sound(take) else slow).append(take)
        for group in (sound, slow):
            if group:
                self._look_at(group, on_started)

    def _look_at(self, takes: list[TakePartition], on_started: OnStarted) -> None:
        for take in takes:
            self._looking[take.source] = take
            self._looked_at[take.source] = time.monotonic()

        def found(starts: dict[TopicPartition, Found]) -> None:
            for take in takes:
                if self._looking.get(take.source) is take:
                    del self._looking[take.source]
                on_started(take, starts[take.source])

        def failed(error: TwinlogError) -> None:
            found({take.source: error for take in takes})

        self._background.submit(lambda: self._find(takes), found, failed)

    def _find(self, takes: list[TakePartition]) -> dict[TopicPartition, Found]:
        requests = [self._request(take) for take in takes if take.fan is None]
        found: dict[TopicPartition, Found] = {}
        with self._source.lock, self._target.lock:
            source = ClusterLogView(self._source.client)
            target = ClusterLogView(self._target.client)
            if requests:
                found.update(find_starts(requests, source, target, self._rules))
                self._say_compared(found)
            for take in takes:
                if take.fan is not None:
                    found[take.source] = self._find_fan(take, take.fan, source, target)
        return found

    def _say_compared(self, found: Mapping[TopicPartition, Found]) -> None:
        for tp, start in found.items():
            if isinstance(start, StartPoint) and start.compared >= 0:
                log.info(
                    "start flow=%s partition=%s ordinal=%d upstream=%d: %s",
                    self._work.flow,
                    tp,
                    start.ordinal,
                    start.upstream,
                    f"{start.compared} of the last records are the same on both sides"
                    if start.compared
                    else "no record could be compared, the target's log end and the map say it",
                )

    def _find_fan(
        self, take: TakePartition, fan: Fan, source: ClusterLogView, target: ClusterLogView
    ) -> Found:
        whole = self._request(take)
        requests = [
            replace(
                whole,
                target=branch.target,
                runs=branch.runs,
                mark=branch.mark,
                our_producers=frozenset((*branch.our_producers, fan.producer_id)),
            )
            for branch in fan.branches
        ]
        rules = replace(self._rules, producer_id=fan.producer_id, is_ours_alone=False)
        try:
            return find_fan_start(requests, source, target, rules, may_lose_batches=take.is_picky)
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
            began_at=take.began_at,
            former=take.former,
            is_another=take.is_another,
            acked_ordinal=take.acked_ordinal,
            acked_epoch=take.acked_epoch,
            lost=take.lost,
            accept_source_loss=self._work.accept_source_loss,
        )
