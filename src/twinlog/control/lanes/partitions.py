"""What the driver knows of every partition of a flow: where it is, who has it, and when it is tried
next.

PENDING --Take--> ASSIGNED --Released--> PENDING (handed over) | DONE
   ^                 |
   |                 |--Troubled, retriable--> PENDING, after a growing pause
   `--30 s-- FAILED <--Troubled, fatal--
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from twinlog.control.watch.timing_window import TimingWindow
from twinlog.lane.messages import Gap, HandOver, PartitionProgress
from twinlog.mirror.map.offset_map import Term
from twinlog.mirror.plan import FOREVER, PartitionPlan

log = logging.getLogger(__name__)

RETRY_FAILED_S: Final = 25.0
"""A partition that failed is tried again after this time: within 30 s, with what a try takes."""

RELEASED_SHOWN_S: Final = 3600.0
"""A partition that is not mirrored any more is shown for so long: topics come and go for years."""

UNREACHABLE: Final = "UNREACHABLE"
FIRST_PAUSE_S: Final = 0.1


class Placement(StrEnum):
    """Where a partition is in its life."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    FAILED = "FAILED"
    DONE = "DONE"
    RELEASED = "RELEASED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a partition stands still, and since when (ms)."""

    code: str
    message: str
    since_ms: int


@dataclass(slots=True, kw_only=True)
class Partition:
    """One partition in the driver's hands."""

    plan: PartitionPlan
    is_wanted: bool = True
    """False when its topic was taken off the list: it is released and kept for show."""
    placement: Placement = Placement.PENDING
    lane: LaneKey | None = None
    term: Term = field(default=Term(-1, -1))
    handed: HandOver | None = None
    taken: PartitionPlan | None = None
    """The plan by which the last lane copied."""
    failure: Failure | None = None
    progress: PartitionProgress | None = None
    reported_ms: int = 0
    """When `progress` came."""
    age: TimingWindow = field(default_factory=TimingWindow)
    latency: TimingWindow = field(default_factory=TimingWindow)
    acked_ordinal: int = -1
    acked_epoch: int = -1
    lost: tuple[int, int] | None = None
    """Copied upstream offsets that the source was found to have lost. A start that is told of them
    begins only when it has found the last copied record there again, and so takes it back.
    """
    records: int = 0
    """Records copied before the present Take."""
    bytes: int = 0
    wait_until: float = 0.0
    """Monotonic: requests of a dead holder may arrive until then."""
    retry_at: float = 0.0
    left_at: float = 0.0
    """Monotonic: when its placement last changed."""
    _pause_s: float = FIRST_PAUSE_S

    @property
    def total_records(self) -> int:
        live = self._live
        return self.records + (0 if live is None else live.records)

    @property
    def total_bytes(self) -> int:
        live = self._live
        return self.bytes + (0 if live is None else live.bytes)

    @property
    def _live(self) -> PartitionProgress | None:
        return self.progress if self.placement is Placement.ASSIGNED else None

    @property
    def is_replaced(self) -> bool:
        """Where the last lane stopped is no position in a topic that was created since."""
        return self.taken is not None and (
            self.taken.source_topic_id != self.plan.source_topic_id
            or self.taken.target_topic_id != self.plan.target_topic_id
        )

    def replan(self, plan: PartitionPlan) -> None:
        """Topic discovery looked again: the same partition, maybe of another topic of that name."""
        before, self.plan, self.is_wanted = self.plan, plan, True
        ids = plan.source_topic_id, plan.target_topic_id
        if (before.source_topic_id, before.target_topic_id) != ids:  # another copy begins
            self.acked_ordinal, self.acked_epoch, self.lost = -1, -1, None
        if before.target_topic_id != plan.target_topic_id:
            self.retry_at = 0.0
        if self.is_replaced:
            self.handed = None
        if before.limit_bytes != plan.limit_bytes:
            self.retry_at = 0.0  # what was too large may be no more

    def on_progress(self, progress: PartitionProgress) -> Iterable[str]:
        """Keep what the lane reported; movement forgives earlier trouble.

        Returns codes of what was told to people.
        """
        self.lost = None
        moved = progress.ordinal > self.acked_ordinal
        if progress.ordinal >= self.acked_ordinal or progress.target_epoch != self.acked_epoch:
            self.acked_ordinal, self.acked_epoch = progress.ordinal, progress.target_epoch
        at_end = progress.source_end >= 0 and progress.upstream >= progress.source_end
        waits_for_map = self.failure is not None and self.failure.code.startswith("MAP_")
        if moved or (at_end and not waits_for_map):  # at the end, its first row may still wait
            self._pause_s = FIRST_PAUSE_S
            self.failure = None
        self.progress = progress
        self.reported_ms = int(time.time() * 1000)
        now = time.monotonic()
        self.age.add(now, progress.age)
        self.latency.add(now, progress.latency)
        return () if progress.gap is None else (self._tell(progress.gap),)

    def learns_end(self, progress: PartitionProgress) -> bool:
        """With `--once`: where the copy ends could not be asked when the flow began (its source
        had no leader), and now its lane tells it. True when the plan has it from now on.
        """
        if self.plan.end != FOREVER or progress.source_end < 0:
            return False
        self.plan = replace(self.plan, end=progress.source_end)
        return True

    def _tell(self, gap: Gap) -> str:
        code = "SOURCE_GAP"
        log.warning(
            "%s: upstream offsets [%d, %d): %d of them are missing at the source, though the topic "
            "is not compacted: lost there, or compacted before; the copy goes on [%s]",
            self.plan.source,
            gap.first,
            gap.next,
            gap.offsets,
            code,
        )
        return code

    def leave(self, placement: Placement) -> None:
        """The lane does not have it any more: its counts are added up."""
        if self.placement is Placement.ASSIGNED and self.progress is not None:
            self.records += self.progress.records
            self.bytes += self.progress.bytes
        if self.placement is not placement:
            self.left_at = time.monotonic()
        self.placement = placement
        self.lane = None

    def lost_lane(self) -> None:
        """Its lane is gone without a word: it starts cold elsewhere, where it is wanted."""
        self.leave(Placement.PENDING if self.is_wanted else Placement.RELEASED)
        self.handed, self.retry_at = None, 0.0

    def troubled(self, code: str, message: str, *, retriable: bool) -> None:
        """It stopped by itself; the next try comes after a pause."""
        self.handed = None
        since = int(time.time() * 1000)
        if self.failure is not None and self.failure.code == code:
            since = self.failure.since_ms
        self.failure = Failure(code=code, message=message, since_ms=since)
        if retriable:
            self.leave(Placement.PENDING)
            self.retry_at = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, RETRY_FAILED_S)
        else:
            self.leave(Placement.FAILED)
            self.retry_at = time.monotonic() + RETRY_FAILED_S

    def unreachable(self, reason: str) -> None:
        """Its lane cannot reach a cluster and keeps trying."""
        if self.failure is None:
            now_ms = int(time.time() * 1000)
            self.failure = Failure(code=UNREACHABLE, message=reason, since_ms=now_ms)

    def reachable(self) -> None:
        """Its lane reaches both clusters."""
        if self.failure is not None and self.failure.code == UNREACHABLE:
            self.failure = None

    @property
    def is_forgotten(self) -> bool:
        """Released so long ago that nobody asks for it."""
        if self.is_wanted or self.placement is not Placement.RELEASED:
            return False
        return time.monotonic() - self.left_at > RELEASED_SHOWN_S

    def is_due(self, now: float) -> bool:
        """Nobody has it and its time has come."""
        waits = self.placement in (Placement.PENDING, Placement.FAILED)
        return self.is_wanted and waits and self.retry_at <= now


@dataclass(frozen=True, slots=True, order=True)
class LaneKey:
    """One attempt of one lane of one lease."""

    lease: int
    lane: int
    attempt: int
