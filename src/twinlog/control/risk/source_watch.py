"""Queries the source's log ends every second, even while nothing is copied, because the possible
loss depends on them. For partitions that stay behind it also queries the log start and retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.lanes.retention_outlook import SourceBounds
from twinlog.control.risk import loss, retention
from twinlog.control.risk.held_back import HeldBackWatch, OpenOnes
from twinlog.control.risk.running_flow import InBackground, RunningFlow
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import TwinlogError
from twinlog.flow_log import FlowLog
from twinlog.model import TopicId, TopicPartition

ASK_EVERY_S: Final = 1.0
SHARE_OF_TIME: Final = 0.05
"""Queries take at most this share of the time, regardless of the number of partitions, ..."""

LONGEST_PAUSE_S: Final = 10.0
"""... but are at most this far apart."""

AFTER_FAILURE_S: Final = 2.0

BEHIND_FOR_S: Final = 20.0
BEHIND_EVERY_S: Final = 10.0
RETENTIONS_EVERY_S: Final = 120.0

Offsets = Mapping[TopicPartition, int]


class Source(Protocol):
    """Queries of the source, in any thread, one at a time; each raises TwinlogError."""

    def ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the current log ends of the partitions that can be queried."""

    def ids(self, topics: Iterable[str]) -> Mapping[str, TopicId]:
        """Return the IDs of those topics that exist now."""

    def readable_ends(self, partitions: Iterable[TopicPartition]) -> Offsets | None:
        """Return the offsets up to which they can be copied now; None means their log ends."""

    def starts(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log starts."""

    def retentions(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return retention.ms of the readable topics, or NO_LIMIT."""

    def open_ones(self, partitions: Iterable[TopicPartition]) -> OpenOnes:
        """Return their open transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    ends: Offsets
    readable: Offsets
    starts: Offsets
    ids: Mapping[str, TopicId]
    retentions: Mapping[str, int] | None
    open_ones: OpenOnes | None


@dataclass(slots=True, kw_only=True)
class SourceWatch:
    """Watches one run of a flow, in the supervisor's thread."""

    run: RunningFlow
    source: Source
    log: FlowLog
    retentions: Mapping[str, int] = field(default_factory=dict)
    _next_ask: float = 0.0
    _next_starts: float = 0.0
    _next_retentions: float = 0.0
    _asked_of: set[str] = field(default_factory=set)
    """Topics of the last retention query; later topics are queried immediately."""
    _is_asking: bool = False
    _is_exceeded: bool = False
    _near: set[str] = field(default_factory=set)
    _held_back: HeldBackWatch = field(init=False)

    def __post_init__(self) -> None:
        self._held_back = HeldBackWatch(run=self.run, log=self.log)

    def tend(self, background: InBackground) -> None:
        """Send the next query if it is due."""
        now = self.run.clock.monotonic()
        if self._is_asking or now < self._next_ask or self.run.is_stopping:
            return
        every = self.run.partitions.items()
        followed = {tp: one for tp, one in every if is_followed(one)}
        wanted = {tp: one.recovery.upstream for tp, one in followed.items()}
        ids = {tp: one.plan.source_topic_id for tp, one in followed.items()}
        behind = self._behind(now)
        topics = {tp.topic for tp in behind}
        is_due = now >= self._next_retentions or not topics <= self._asked_of
        asks_retentions = bool(topics) and is_due
        if asks_retentions:
            self._next_retentions, self._asked_of = now + RETENTIONS_EVERY_S, topics
        self._is_asking, self._next_ask = True, now + ASK_EVERY_S
        asked_at = self.run.clock.boot()
        held_back = self._held_back.due()

        def ask() -> _Answers:
            ends = self.source.ends(wanted) if wanted else {}
            readable = self.source.readable_ends(wanted) if wanted else None
            starts = self.source.starts(behind) if behind else {}
            return _Answers(
                ends=ends,
                readable=ends if readable is None else readable,
                starts=starts,
                # after the offsets: IDs are never reused, so they were the same before
                ids=self.source.ids({tp.topic for tp in wanted}) if wanted else {},
                retentions=self.source.retentions(topics) if asks_retentions else None,
                open_ones=self.source.open_ones(held_back) if held_back else None,
            )

        def found(answers: _Answers) -> None:
            took_s = self.run.clock.monotonic() - now
            self._done(now, min(took_s / SHARE_OF_TIME, LONGEST_PAUSE_S))
            answers = self._of_these(answers, ids, asked_at)
            self._take(answers, wanted, asked_at)
            self._held_back.see(answers.ends, answers.readable)
            if answers.open_ones is not None:
                self._held_back.found(held_back, answers.open_ones)

        def failed(_: TwinlogError) -> None:
            # the lanes report the error; unseen partitions are reported as unknown
            self._done(self.run.clock.monotonic(), AFTER_FAILURE_S)

        background(ask, found, failed)

    def _behind(self, now: float) -> Sequence[TopicPartition]:
        """Return the partitions whose log start is due; they have been behind for a while."""
        if now < self._next_starts:
            return ()
        self._next_starts = now + BEHIND_EVERY_S
        behind = []
        for tp, one in self.run.partitions.items():
            if not is_followed(one) or not one.is_behind:
                one.keeping.forget()
            elif self.run.clock.boot() - (one.recovery.at or 0.0) > BEHIND_FOR_S:
                behind.append(tp)
        return behind

    def _of_these(
        self, answers: _Answers, ids: Mapping[TopicPartition, TopicId], asked_at: float
    ) -> _Answers:
        """Return the answers for the topics that are being copied. Offsets are queried by name, and
        no record of a re-created topic is on the target.
        """
        same = {tp for tp, topic_id in ids.items() if answers.ids.get(tp.topic) == topic_id}
        for tp in answers.ends.keys() & ids.keys() - same:
            one = self.run.partitions.get(tp)
            if one is not None and one.plan.source_topic_id == ids[tp]:
                one.recovery.doubt(asked_at)

        def of(found: Offsets) -> Offsets:
            return {tp: offset for tp, offset in found.items() if tp in same}

        return replace(
            answers, ends=of(answers.ends), readable=of(answers.readable), starts=of(answers.starts)
        )

    def _take(self, answers: _Answers, wanted: Offsets, asked_at: float) -> None:
        for tp, end in answers.ends.items():
            if (one := self.run.partitions.get(tp)) is not None:
                one.recovery.see(end, asked_at, wanted[tp])
        for tp, end in answers.readable.items():
            if (one := self.run.partitions.get(tp)) is not None:
                one.asked_end = end
        for tp, start in answers.starts.items():
            one = self.run.partitions.get(tp)
            if one is not None and one.position >= 0:
                upstream, end = one.position, one.recovery.end
                one.keeping.see(SourceBounds(at=asked_at, start=start, end=end, upstream=upstream))
        if answers.retentions is not None:
            self.retentions = answers.retentions

    def _done(self, since: float, pause_s: float) -> None:
        self._is_asking = False
        self._next_ask = max(self._next_ask, since + pause_s)

    def see(self, snapshot: FlowSnapshot) -> None:
        """Log when a problem begins, and when it ends."""
        if snapshot.rpo_excess and not self._is_exceeded:
            self.run.errors[loss.CODE] += 1
            self.log.warning("%s", snapshot.rpo_excess)
        elif self._is_exceeded and not snapshot.rpo_excess:
            self.log.warning("the RPO is met again")
        self._is_exceeded = bool(snapshot.rpo_excess)
        near = retention.warnings(snapshot.partitions)
        for topic in near.keys() - self._near:
            self.run.errors[retention.CODE] += 1
            self.log.warning("%s", near[topic])
        for topic in self._near - near.keys():
            self.log.warning("%s: records not copied yet are no longer at risk of retention", topic)
        self._near = set(near)


def is_followed(partition: Partition) -> bool:
    """Return True if the source is queried about this partition."""
    return partition.is_wanted and partition.placement is not Placement.DONE
