"""The driver's state of every partition of a flow: its phase, its lane, and when it is retried.

PENDING --Take--> ASSIGNED --Released--> PENDING (handed over) | DONE
   ^                 |
   |                 |--Troubled, retriable--> PENDING, after a growing pause
   `--30 s-- FAILED <--Troubled, fatal--
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from twinlog.clock import CLOCK, Clock, GrowingPause
from twinlog.codes import PartitionState, Trait, has
from twinlog.config.values.times import in_iso
from twinlog.control.duties.handed_topics import HandedTopics, handed_topics
from twinlog.control.duties.rounds import PartitionView
from twinlog.control.lanes.retention_outlook import RetentionOutlook
from twinlog.control.watch.latency import SpreadWindow, TimingWindow
from twinlog.control.watch.snapshot import StateSince
from twinlog.lane.messages import Gap, HandOver, PartitionProgress, UnreachableCluster
from twinlog.mirror.map.offset_map import Term
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.plan import FOREVER, PartitionPlan
from twinlog.mirror.skips import Poison, Skip
from twinlog.mirror.state.intents import FlowIntents, WantedAcceptance, WantedSkip
from twinlog.model import LeaseCopy, TopicId

# The recovery point: the time up to which the target has all records of the source.

MOST_OBSERVATIONS: Final = 64


@dataclass(slots=True)
class RecoveryPoint:
    """The recovery point of one partition, from observed log ends and reached offsets. Times are
    seconds of a monotonic clock.

    The recovery point is conservative: it is always the time of an observation, after which records
    may have arrived. It is unknown without an observation.
    """

    end: int | None = None
    """The end of the source's log when it was last read, or None if it was never read."""
    upstream: int | None = None
    """Source offset below which all records are on the target, or None if unknown."""
    at: float | None = None
    """The recovery point, or None if unknown."""
    was_known: bool = False
    """Whether the recovery point was known at any time before."""
    doubtful_since: float | None = None
    """Time since when the source's log ends before the end of the copy, because it lost records or
    is the log of another topic. Until a lane has checked this, the possible loss is unknown.
    """
    waits_since: float | None = None
    """Time since when at least one record is known to wait for its copy, or None."""
    _seen_at: float = 0.0
    _pending: deque[tuple[int, float]] = field(default_factory=deque)
    """Observed log ends above `upstream`, each with the time of its observation; both increase."""

    @property
    def records(self) -> int | None:
        """Return the number of source offsets that are not on the target, or None if unknown."""
        if self.doubtful_since is not None or self.end is None:
            return None
        if self.upstream is None:
            return None if self.end else 0
        return max(0, self.end - self.upstream)

    def note_end(self, end: int, noted_at: float, upstream: int | None) -> None:
        """Note that at `noted_at` the source's log ended at `end`, and was copied to `upstream`."""
        self.end, self._seen_at = end, noted_at
        if end < (upstream or 0):
            self.invalidate(noted_at)
        elif end <= (self.upstream or 0):
            self._pending.clear()  # pending ends are higher: the source lost their records
            self.at, self.was_known, self.waits_since = noted_at, True, None
        else:
            self.waits_since = self.waits_since if self._pending else noted_at
            while self._pending and self._pending[-1][0] >= end:
                self._pending.pop()
            self._pending.append((end, noted_at))
            if len(self._pending) > MOST_OBSERVATIONS:
                newest = self._pending.pop()
                self._pending = deque([*list(self._pending)[::2], newest])

    def invalidate(self, noted_at: float) -> None:
        """Note that the source's log is not, or no longer, the log that was copied."""
        self.at, self.doubtful_since = None, self.doubtful_since or noted_at
        self.waits_since = None
        self._pending.clear()

    def note_copied(self, upstream: int) -> None:
        """Note that all records below this source offset are on the target, as a lane reports."""
        self.doubtful_since = None
        # a lower offset than before: the target lost records, or the last report was premature
        if self.upstream is not None and upstream < self.upstream:
            self.at = None
            if not self._pending and self.end is not None and self.end > upstream:
                self._pending.append((self.end, self._seen_at))
                self.waits_since = self._seen_at
        self.upstream = upstream
        while self._pending and self._pending[0][0] <= upstream:
            self.at, self.was_known = self._pending.popleft()[1], True
            self.waits_since = self.at if self._pending else None


log = logging.getLogger(__name__)

RETRY_FAILED_S: Final = 25.0
"""Seconds before a failed partition is retried. Including the attempt, this is at most 30 s."""

REPORT_IS_FRESH_S: Final = 2.5
"""Maximum age of a fresh report in seconds. Lanes report changes once a second."""

DELETED_SHOWN_S: Final = 7 * 86_400.0
"""Seconds for which partitions of a deleted source topic are shown."""

RELEASED_SHOWN_S: Final = 3600.0
"""Seconds for which partitions that are no longer mirrored are shown. They are not kept forever
because topics may be created and deleted for years.
"""

UNREACHABLE: Final = "UNREACHABLE"
FIRST_PAUSE_S: Final = 0.1
LEFT_OUT_S: Final = 30.0
"""Maximum seconds of waits for late requests that a problem's duration (`troubled_s`) does not
include, because no lane can write during such a wait. One wait is shorter. After a lane has left,
`is_begun` remains True for this long.
"""


class Placement(StrEnum):
    """The phase of a partition's life. See the top of this module."""

    PENDING = "pending"
    ASSIGNED = "assigned"
    FAILED = "failed"
    DONE = "done"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a partition has stopped, and when it did: in ms of the wall clock for display,
    and in s of a monotonic clock.
    """

    code: str
    message: str
    since_ms: int
    began: float


@dataclass(slots=True, kw_only=True)
class Partition:
    """The driver's state of one partition."""

    plan: PartitionPlan
    clock: Clock = CLOCK
    flow: str = ""
    """The flow's name, for log lines."""
    is_shared: bool = False
    """Whether other clients may write to its target topic."""
    is_wanted: bool = True
    """Whether the topic is selected. If not, the partition is released, and kept for display."""
    vanished_ms: int | None = None
    """Wall clock time (ms) at which the source stopped listing the topic. It is None if the
    partition is wanted, or is unwanted for another reason.
    """
    is_paused: bool = False
    """Whether an operator has paused it."""
    placement: Placement = Placement.PENDING
    lane: LaneKey | None = None
    term: Term = field(default=Term(-1, -1))
    handed: HandOver | None = None
    last_plan: PartitionPlan | None = None
    """The plan by which the last lane copied, or None if no lane has copied."""
    failure: Failure | None = None
    held_back: Failure | None = None
    """The transaction of the source that has been open for too long and holds the copy back, or
    None. The lane continues.
    """
    progress: PartitionProgress | None = None
    since: StateSince = field(default_factory=StateSince)
    """The partition's last state, and when it began."""
    recovery: RecoveryPoint = field(default_factory=RecoveryPoint)
    keeping: RetentionOutlook = field(default_factory=RetentionOutlook)
    queried_end: int | None = None
    """The end of the source's log for consumers when the driver last read it, or None if it never
    did. Under read_committed this is the last stable offset.
    """
    at_end_ms: int | None = None
    """Wall clock time (ms) at which all records were last known to be copied, or None if never."""
    reported_ms: int | None = None
    """Wall clock time (ms) of the last report. `reported_at` is the time since boot in seconds."""
    reported_at: float | None = None
    age: TimingWindow = field(default_factory=TimingWindow)
    latency: TimingWindow = field(default_factory=TimingWindow)
    spread: SpreadWindow = field(default_factory=SpreadWindow)
    """Latencies of the flow's batches: one window that all partitions of the flow share."""
    acked_ordinal: int = -1
    acked_epoch: int = -1
    begun: tuple[TopicId, TopicId] | None = None
    """IDs of the source and target topic between which a lane of this process has started the copy.
    Set to None by an error that casts doubt on whether the target topic is this copy.
    """
    is_seen: bool = False
    """Whether the current lane has found its position in both logs. This does not carry over to the
    next lane, because nothing detects other writers between two lanes.
    """
    lost: tuple[int, int] | None = None
    """Range of copied source offsets that the source has lost, or None. With a range, a start is
    possible only if the last copied record is found at the source again, which disproves the loss.
    """
    blocking_offsets: tuple[int, int] | None = None
    """Source offsets [first, next) that stopped the partition last, if they are known."""
    skips: tuple[WantedSkip, ...] = ()
    """Records that operators want to skip."""
    accepted: tuple[WantedAcceptance, ...] = ()
    """Records of other clients on the target that an operator accepted."""
    _logged_skips: set[tuple[int, int]] = field(default_factory=set)
    _logged_lost: set[tuple[int, int]] = field(default_factory=set)
    records: int = 0
    """Records copied before the current Take. `bytes` is their size."""
    bytes: int = 0
    copied: dict[int, LeaseCopy] = field(default_factory=dict)
    """Records and bytes that lanes copied until they returned the partition, by lease."""
    _lane_began_at: int | None = None
    """The source offset at which the current lane began, or None if unknown."""
    wait_until: float = 0.0
    """Monotonic time until which requests of a dead lane may arrive."""
    retry_at: float = 0.0
    left_at: float = 0.0
    """Monotonic time at which its placement last changed."""
    _pause: GrowingPause = field(
        default_factory=lambda: GrowingPause(first_s=FIRST_PAUSE_S, most_s=RETRY_FAILED_S)
    )

    @property
    def total_records(self) -> int:
        live = self._live_progress
        return self.records + (0 if live is None else live.records)

    @property
    def total_bytes(self) -> int:
        live = self._live_progress
        return self.bytes + (0 if live is None else live.bytes)

    @property
    def _live_progress(self) -> PartitionProgress | None:
        return self.progress if self.placement is Placement.ASSIGNED else None

    @property
    def is_taken_over(self) -> bool:
        """Return True if the lane found records of other clients after its own, in a topic to which
        other clients may write.
        """
        return self.progress is not None and self.progress.state == PartitionState.TAKEN_OVER

    @property
    def is_begun(self) -> bool:
        """Return True if the lane has verified that the target has this copy, or is empty. After an
        error that does not contradict this, it remains True until the retry, because changed
        configs of the topic may be the remedy.
        """
        is_now = self.lane is not None or self.placement is Placement.DONE
        is_recent = is_now or self.clock.monotonic() - self.left_at < LEFT_OUT_S
        return self.is_seen and is_recent and self._was_begun

    @property
    def has_written(self) -> bool:
        """Return True if a lane of this process wrote records from the current source topic to the
        current target topic. The map must then have a row of this partition.
        """
        return self._was_begun and self.acked_ordinal > 0

    @property
    def _was_begun(self) -> bool:
        ids = self.plan.source_topic_id, self.plan.target_topic_id
        return self.is_wanted and self.begun == ids

    @property
    def is_behind_others(self) -> bool:
        """Return True if other clients wrote to the target partition before this flow's last
        record, so that target offsets count their records as well.
        """
        at = self.progress
        return self.is_shared and at is not None and at.downstream != max(at.ordinal, 0)

    @property
    def is_replaced(self) -> bool:
        """Return True if the topic was re-created, so that the last lane's position is invalid."""
        return self.last_plan is not None and (
            self.last_plan.source_topic_id != self.plan.source_topic_id
            or self.last_plan.target_topic_id != self.plan.target_topic_id
        )

    def replan(self, plan: PartitionPlan) -> None:
        """Apply the plan of a new discovery. Its topics may have been re-created."""
        before, self.plan, self.is_wanted = self.plan, plan, True
        ids = plan.source_topic_id, plan.target_topic_id
        if (before.source_topic_id, before.target_topic_id) != ids:  # another copy begins
            self.acked_ordinal, self.acked_epoch, self.lost = -1, -1, None
            self.recovery, self.keeping = RecoveryPoint(), RetentionOutlook()
            self.queried_end = self.blocking_offsets = self.held_back = None
        if before.target_topic_id != plan.target_topic_id:
            self.retry_at = 0.0
        if self.is_replaced:
            self.handed = None
        if before.limit_bytes != plan.limit_bytes:
            self.retry_at = 0.0  # records that were too large may fit now

    def on_progress(self, progress: PartitionProgress) -> Iterable[str]:
        """Store the lane's report. If the copy has progressed, clear the partition's error.

        Return the codes of logged warnings.
        """
        self.lost = None
        moved = progress.ordinal > self.acked_ordinal
        at_end = progress.source_end >= 0 and progress.upstream >= progress.source_end
        if moved or (at_end and not progress.waits_for_map):
            self._pause.reset()
            self.failure = None
        if self.progress is None:
            before = self.recovery.upstream
            is_first = before is None and not progress.records
            self._lane_began_at = progress.upstream if is_first else before
        self.progress = progress
        self.reported_ms = self.clock.wall_ms()
        if not self.is_replaced:  # otherwise it is a late report of the previous copy
            if progress.ordinal >= self.acked_ordinal or progress.target_epoch != self.acked_epoch:
                self.acked_ordinal, self.acked_epoch = progress.ordinal, progress.target_epoch
            self.recovery.note_copied(progress.upstream)
            self.keeping.note_copied(progress.last_timestamp)
            self.begun, self.is_seen = (self.plan.source_topic_id, self.plan.target_topic_id), True
        self.reported_at = self.clock.boot()
        now = self.clock.monotonic()
        self.age.add(now, progress.age)
        self.latency.add(now, progress.latency)
        self.spread.add(now, progress.latency)
        gap_codes = () if progress.gap is None else (self._log_gap(progress.gap),)
        return (*gap_codes, *self._log_lost(progress.lost), *self._log_left_out(progress.left_out))

    @property
    def poison(self) -> Poison | None:
        """Return the record that stops the partition if operators can skip it, else None."""
        if self.failure is None or self.blocking_offsets is None:
            return None
        if not has(self.failure.code, Trait.CAN_BE_SKIPPED):
            return None
        first, following = self.blocking_offsets
        is_batch = self.failure.code == "CORRUPT_BATCH"
        skip = Skip(first=first, next=following, is_batch=is_batch)
        return Poison(skip=skip, topic_id=str(self.plan.source_topic_id))

    def repair(self, intents: FlowIntents) -> None:
        """Set the records to skip or accept. If they changed, retry a failed partition now."""
        source, target = self.plan.source, self.plan.target
        skips = tuple(s for s in intents.skips if s.is_of(source, self.plan.source_topic_id))
        accepted = tuple(a for a in intents.accepted if a.is_of(target, self.plan.target_topic_id))
        is_new = (skips, accepted) != (self.skips, self.accepted)
        if is_new and self.placement is Placement.FAILED:
            self.retry_at = 0.0
        self.skips, self.accepted = skips, accepted

    @property
    def source_end(self) -> int | None:
        """Return the end of the source's log as last observed, or None if unknown.

        A lane that sees the log's end reports it together with its position, so their difference is
        the lag. Otherwise the end that the driver read counts, or the reported end if it is higher.
        """
        live, seen, reported = self._live_progress, self.queried_end, None
        if self.progress is not None and self.progress.source_end >= 0:
            reported = self.progress.source_end
        if seen is None or self.is_taken_over:
            return reported
        if live is None or reported is None:
            return seen
        return reported if live.sees_end and self.is_fresh else max(reported, seen)

    @property
    def position(self) -> int | None:
        """Return the source offset below which all records are on the target. It is known from a
        lane's report, or from both logs before a lane began. None if unknown.
        """
        reported = self.recovery.upstream
        return self.keeping.start_upstream if reported is None else reported

    @property
    def is_behind(self) -> bool:
        """Return True if the source is known to have more records than the target."""
        position = self.position
        return position is not None and position < (self.recovery.end or 0)

    @property
    def is_fresh(self) -> bool:
        """Return True if the lane has reported within the last 2.5 s."""
        at = self.reported_at
        return at is not None and self.clock.boot() - at < REPORT_IS_FRESH_S

    def learns_end(self, progress: PartitionProgress) -> bool:
        """With `--once`: set the end of the copy from the lane's report, if the driver could not
        read it at the start because the source partition had no leader. Return True if it was set.
        """
        if self.plan.end != FOREVER or progress.source_end < 0:
            return False
        self.plan = replace(self.plan, end=progress.source_end)
        return True

    def _warn(self, text: str, *about: object, code: str) -> str:
        """Log a warning about this partition. Return its code."""
        tp, line = self.plan.source, f"%s: {text} [%s]"
        log.warning(line, tp, *about, code, extra={"flow": self.flow, **tp._asdict(), "code": code})
        return code

    def _log_gap(self, gap: Gap) -> str:
        return self._warn(
            "upstream offsets [%d, %d): %d of them are missing at the source, although the topic "
            "is not compacted. They were lost, or compacted earlier. The copy continues",
            *(gap.first, gap.next, gap.offsets),
            code="SOURCE_GAP",
        )

    def _log_lost(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Log each range of deleted records once, and yield the code of the warning. A start that
        fails early finds the same range again later.
        """
        for span in ranges:
            if span not in self._logged_lost:
                self._logged_lost.add(span)
                yield self._warn(
                    "the source deleted upstream offsets [%d, %d) before they were copied: "
                    "neither side has them; the copy resumes after them",
                    *span,
                    code="SOURCE_TRUNCATED",
                )

    def _log_left_out(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        for span in ranges:
            wanted = next(
                (w for w in self.skips if (w.skipped.first, w.skipped.next) == span), None
            )
            if wanted is None or span in self._logged_skips:
                continue
            self._logged_skips.add(span)
            yield self._warn(
                "upstream %s left out, as requested since %s by %s (%s)%s",
                f"{'batch' if wanted.skipped.is_batch else 'record'} {wanted.skipped}",
                in_iso(wanted.at_ms),
                wanted.who,
                wanted.code,
                f": {wanted.reason}" if wanted.reason else "",
                code="RECORD_SKIPPED",
            )

    def leave_lane(self, placement: Placement) -> None:
        """Set the placement and remove the lane, whose counts are added to the totals."""
        if self.placement is Placement.ASSIGNED and self.progress is not None:
            self.records += self.progress.records
            self.bytes += self.progress.bytes
            self._count(self.progress)
        if self.placement is not placement:
            self.left_at = self.clock.monotonic()
        self.placement = placement
        self.is_seen = self.is_seen and placement is Placement.DONE
        self.lane = None

    def _count(self, last: PartitionProgress) -> None:
        if self.lane is None or not last.records:
            return
        before = self.copied.get(self.lane.lease)
        self.copied[self.lane.lease] = LeaseCopy(
            *self.plan.source,
            first=self._lane_began_at if before is None else before.first,
            next=last.upstream,
            records=last.records + (0 if before is None else before.records),
            bytes=last.bytes + (0 if before is None else before.bytes),
        )

    def on_lane_lost(self) -> None:
        """Note that the lane is lost. If the partition is wanted, the next lane searches its
        position.
        """
        self.leave_lane(Placement.PENDING if self.is_wanted else Placement.RELEASED)
        self.handed, self.retry_at = None, 0.0

    def note_failure(self, code: str, message: str, *, retriable: bool) -> None:
        """Note the error that stopped the partition, which is retried after a pause."""
        self.handed = None
        before, was_seen = self.failure, self.is_seen
        self._fail(code, message)
        if has(code, Trait.NOT_OURS) or has(code, Trait.ANOTHER_TOPIC):
            self.begun = None
        if code == "TAKEN_OVER" and not retriable and (before is None or before.code != code):
            # retry once: the writer may be another flow that has just begun and is not known yet
            retriable = True
        if retriable:
            self.leave_lane(Placement.PENDING)
            self.retry_at = self.clock.monotonic() + self._pause.next_s()
        else:
            self.leave_lane(Placement.FAILED)
            self.retry_at = self.clock.monotonic() + RETRY_FAILED_S
        self.is_seen = was_seen

    def wait_at_least(self, until: float) -> None:
        """Wait until this monotonic time, because requests of a dead lane may arrive until then."""
        self.wait_until = max(self.wait_until, until)

    def waits_s(self) -> float:
        """Return the seconds until no request of a dead lane can arrive any more."""
        return max(0.0, self.wait_until - self.clock.monotonic())

    def put_off(self) -> None:
        """Delay the start until no request of a dead lane can arrive any more."""
        self.retry_at = self.wait_until

    @property
    def why_put_off(self) -> str:
        """Return a text for display if the start waits for late requests, else an empty text."""
        left_s, is_pending = self.waits_s(), self.placement is Placement.PENDING
        is_meant = self.is_wanted and not self.is_paused
        if not (left_s and is_pending and is_meant) or self.retry_at < self.wait_until:
            return ""
        return (
            "requests of a lane that was lost, or killed with its process, may still arrive: the "
            f"partition starts in about {math.ceil(left_s)} s"
        )

    @property
    def is_over(self) -> bool:
        """Return True if `--once` copies no more of this partition."""
        rests = self.is_paused and self.lane is None
        return rests or self.placement in (Placement.DONE, Placement.RELEASED, Placement.FAILED)

    def troubled_s(self) -> float:
        """Return the seconds since the problem started, or 0 if there is none.

        Up to half a minute of waiting for late requests is not counted, because no lane can write
        before the wait is over. The rest is counted, so that a problem that causes one wait after
        the other is noticed.
        """
        if self.failure is None:
            return 0.0
        # by the monotonic clock, because the wall clock may be changed
        lasts_s = self.clock.monotonic() - self.failure.began
        waited_s = min(max(self.wait_until - self.failure.began, 0.0), LEFT_OUT_S)
        return max(0.0, lasts_s - waited_s)

    def _fail(self, code: str, message: str) -> None:
        before = self.failure
        if before is not None and before.code == code:
            self.failure = replace(before, message=message)
            return
        now_ms, now = self.clock.wall_ms(), self.clock.monotonic()
        self.failure = Failure(code=code, message=message, since_ms=now_ms, began=now)

    def note_unreachable(self, reason: UnreachableCluster | None) -> None:
        """Set or clear UNREACHABLE. `reason`: why the lane cannot reach a cluster, or None."""
        if reason is not None and self.failure is None:
            is_away = has(reason.code, Trait.AWAY)
            self._fail(UNREACHABLE, reason.message if is_away else str(reason))
        elif reason is None and self.failure is not None and self.failure.code == UNREACHABLE:
            self.failure = None

    @property
    def is_forgotten(self) -> bool:
        """Return True if the partition was released so long ago that it is no longer shown."""
        if self.is_wanted or self.placement is not Placement.RELEASED:
            return False
        shown_s = DELETED_SHOWN_S if self.vanished_ms else RELEASED_SHOWN_S
        return self.clock.monotonic() - self.left_at > shown_s

    def is_due(self, now: float) -> bool:
        """Return True if the partition is wanted and not paused, has no lane, and its retry time
        has come.
        """
        waits = self.placement in (Placement.PENDING, Placement.FAILED) and not self.is_paused
        return self.is_wanted and waits and self.retry_at <= now


@dataclass(frozen=True, slots=True, order=True)
class LaneKey:
    """Identifies one attempt of one lane of one lease."""

    lease: int
    lane: int
    attempt: int


# Partitions as the duties of a flow see them.


def view_of(partition: Partition) -> PartitionView:
    """Return a partition for duties, by its lane's last report. For the supervisor's thread."""
    plan, failure = partition.plan, partition.failure
    # the lane's report is not a valid position in a re-created topic
    is_another = failure is not None and has(failure.code, Trait.ANOTHER_TOPIC)
    is_stale = partition.is_replaced or is_another
    is_broken = failure is not None and has(failure.code, Trait.NO_OFFSETS)
    progress = None if is_stale or is_broken else partition.progress
    foreign_code = _foreign_code(partition, is_stale=is_stale)
    return PartitionView(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        reach=None if progress is None else Reach(progress.upstream, progress.downstream),
        is_broken=is_broken,
        is_position_unknown=progress is None and foreign_code != PartitionState.TAKEN_OVER,
        is_keyed=plan.targets > 0,
        is_begun=partition.is_begun,
        has_others=plan.targets > 0 or partition.is_behind_others,
        # None without a lane, because then nothing rewrites rows that the map may have lost
        map_epoch=None if progress is None or partition.lane is None else progress.map_epoch,
        foreign_code=foreign_code,
    )


def handed_topics_of(partitions: Iterable[Partition]) -> HandedTopics:
    """Return the topics that duties are permitted to change; used in the supervisor's thread."""
    return handed_topics(view_of(partition) for partition in partitions if partition.is_wanted)


def _foreign_code(partition: Partition, *, is_stale: bool) -> str:
    failure = partition.failure
    if failure is not None and has(failure.code, Trait.NOT_OURS):
        return failure.code
    return PartitionState.TAKEN_OVER.value if partition.is_taken_over and not is_stale else ""
