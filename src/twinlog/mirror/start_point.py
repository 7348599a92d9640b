"""Where the copy of a partition resumes, and what a flow decides for all its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twinlog.mirror.map.offset_map import Mark, Run
from twinlog.model import Isolation
from twinlog.wire.recompress import Recompression

EXPIRY_MARGIN_MS: Final = 3_600_000
"""How much earlier than the brokers a producer ID counts as forgotten, or a quarter of the expiry
if that is less.

Brokers compare record timestamps with their own clocks, and Twinlog with its clock. If the local
clock were slow, a forgotten ID would count as known. A fast one errs only in the safe direction. An
hour is more than clocks under NTP ever differ. The cost is that records between 23 and 24 hours old
are sent one batch at a time after a problem.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where a partition resumes, found by a check (`position.py`) or handed over by the previous
    lane.
    """

    ordinal: int
    upstream: int
    k: int
    last_fetched_epoch: int
    """Source leader epoch of offset `upstream` - 1, or -1 if unknown."""
    is_protected: bool
    """Whether the target lists this producer ID for this partition."""
    last_timestamp: int
    """Timestamp of this flow's last record there, in ms; -1 if unknown."""
    taken_over: bool = False
    """Other clients wrote after this flow's last record: nothing may follow."""
    lost: tuple[int, int] | None = None
    """[first, next) of upstream offsets that the source deleted before they were copied, and that
    are skipped because that is accepted, or because the group would have skipped them.
    """
    has_company: bool = False
    """Whether another Twinlog flow writes to the target partition."""
    target_epoch: int = -1
    """Leader epoch of the target partition that was checked, or -1 if unknown."""
    compared: int = -1
    """Number of last records found equal at the source; -1: none was checked."""
    jumps: tuple[Run, ...] = ()
    """Runs before `ordinal` that correct the map: other clients wrote between the records, or were
    first.
    """
    undecided: tuple[int, int] | None = None
    """Target offsets [first, next) that the map had wrong and whose records were not found at the
    source. Translation makes consumers read them again.
    """

    def mark(self, known: Mark | None) -> Mark | None:
        """Return the mark with which the copy begins. `known`: the map's mark from before the
        check.

        A final mark is where this check found the end: an older mark is less informative.
        """
        if self.taken_over:
            return Mark(self.ordinal, self.k + self.ordinal, is_final=True)
        return None if known is None else known._replace(is_final=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRules:
    """Settings of a flow for the copies of all its partitions."""

    producer_id: int
    isolation: Isolation
    is_ours_alone: bool
    producer_expiry_ms: int | None
    """None: unknown, so every partition is unprotected."""
    recompression: Recompression | None = None
    join_bytes: int = 0
    """Small batches are joined up to this size; 0 disables joining."""

    @property
    def safe_age_ms(self) -> int | None:
        if self.producer_expiry_ms is None:
            return None
        return self.producer_expiry_ms - min(EXPIRY_MARGIN_MS, self.producer_expiry_ms // 4)

    def is_remembered_after(self, timestamp: int, now_ms: int) -> bool:
        """Whether the target keeps this producer ID after a record with this timestamp."""
        age = self.safe_age_ms
        return age is not None and timestamp > now_ms - age

    def is_remembered_at(self, start: StartPoint, now_ms: int) -> bool:
        """Whether the target certainly remembers this producer ID at this start point."""
        return start.is_protected and self.is_remembered_after(start.last_timestamp, now_ms)
