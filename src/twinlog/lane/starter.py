"""Cold starts of a lane: many partitions looked at together, in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from twinlog.errors import TwinlogError
from twinlog.lane.background import Background
from twinlog.lane.cluster_side import ClusterSide
from twinlog.lane.log_view import ClusterLogView
from twinlog.lane.messages import TakePartition, Work
from twinlog.mirror.cold_start import find_starts
from twinlog.mirror.copy import CopyRules, StartPoint
from twinlog.mirror.start_request import StartRequest, StartRules
from twinlog.model import TopicPartition

Found = StartPoint | TwinlogError
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
            if take.unprotected_wait_ms and take.runs:
                self._wait_until[take.source] = until + take.unprotected_wait_ms / 1000
        self._look(group, on_started)

    def must_wait(self, take: TakePartition, found: StartPoint, on_started: OnStarted) -> bool:
        """True when the start point may still move; the partition is then looked at again later.

        A protected partition need not wait: a late request of a dead lane carries the sequences
        that follow, and so either is the batch that we would write or is refused.
        """
        until = self._wait_until.pop(take.source, 0.0)
        if until <= time.monotonic() or self._copy_rules.keeps(found, int(time.time() * 1000)):
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
        requests = [
            StartRequest(
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
            for take in takes
        ]
        with self._source.lock, self._target.lock:
            return find_starts(
                requests,
                ClusterLogView(self._source.client),
                ClusterLogView(self._target.client),
                self._rules,
            )
