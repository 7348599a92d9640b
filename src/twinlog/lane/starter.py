"""Cold starts of a lane: many partitions looked at together, in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from twinlog.errors import TwinlogError
from twinlog.lane.background import Background
from twinlog.lane.cluster_side import ClusterSide
from twinlog.lane.log_view import ClusterLogView
from twinlog.lane.messages import Fan, TakePartition, Work
from twinlog.mirror.cold_start import find_starts
from twinlog.mirror.copy import CopyRules, StartPoint
from twinlog.mirror.fan_start import FanStart, find_fan_start
from twinlog.mirror.start_request import StartRequest, StartRules
from twinlog.model import TopicPartition

Found = StartPoint | FanStart | TwinlogError
Start = StartPoint | FanStart
OnStarted = Callable[[TakePartition, Found], None]


class Starter:
    """Finds start points without stopping the loop."""

    def __init__(
        self,
        work: Work,
        copy_rules: CopyRules,
        source: ClusterSide,
        target: ClusterSide,
        background: Background,
    ) -> None:
        self._work = work
        self._copy_rules = copy_rules
        self._source = source
        self._target = target
        self._background = background
        self._looking: dict[TopicPartition, TakePartition] = {}
        self._wait_until: dict[TopicPartition, float] = {}
        self._delayed: list[tuple[float, list[TakePartition], OnStarted]] = []
        self._rules = StartRules(
            producer_id=work.producer_id,
            is_ours_alone=work.is_ours_alone,
            read_committed=work.read_committed,
            known_producers=frozenset(work.known_producers),
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
            if take.unprotected_wait_ms and (take.runs or take.fan is not None):
                self._wait_until[take.source] = until + take.unprotected_wait_ms / 1000
        self._look(group, on_started)

    def must_wait(self, take: TakePartition, found: Start, on_started: OnStarted) -> bool:
        """True when the start point may still move; the partition is then looked at again later.

        A protected partition need not wait: a late request of a dead lane carries the sequences
        that follow, and so either is the batch that we would write or is refused.
        """
        until = self._wait_until.pop(take.source, 0.0)
        now_ms = int(time.time() * 1000)
        points = found.points if isinstance(found, FanStart) else (found,)
        if until <= time.monotonic() or all(self._copy_rules.keeps(p, now_ms) for p in points):
            return False
        self._looking[take.source] = take
        self._delayed.append((until, [take], on_started))
        return True

    def tend(self) -> None:
        """Begin what has waited long enough; called on every turn."""
        now = time.monotonic()
        due = [one for one in self._delayed if one[0] <= now]
        if due:
            self._delayed = [one for one in self._delayed if one[0] > now]
            for _, group, on_started in due:
                self._look(group, on_started)

    def _look(self, takes: list[TakePartition], on_started: OnStarted) -> None:
        for take in takes:
            self._looking[take.source] = take
            self._source.need_topics((take.source.topic,))
            self._target.need_topics((take.target.topic,))

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
            for take in takes:
                if take.fan is not None:
                    found[take.source] = self._find_fan(take, take.fan, source, target)
        return found

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
            mark=take.mark,
            fingerprints=take.fingerprints,
            our_producers=frozenset((*take.our_producers, self._rules.producer_id)),
            start=take.start,
            began_at=take.began_at,
            had_other_source=take.had_other_source,
            acked_ordinal=take.acked_ordinal,
            acked_epoch=take.acked_epoch,
            accept_source_loss=self._work.accept_source_loss,
        )
