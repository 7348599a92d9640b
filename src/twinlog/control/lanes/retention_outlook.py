"""Computes how long the source keeps a partition's uncopied records, and how long the copy needs.

A broker deletes a segment when its newest record is older than the topic's retention, or when the
log is too large. The time limit is computed from the last copied record's timestamp. The size limit
is computed from how fast the log start moves towards the next record to copy. Both are lower
bounds, because a segment's records are deleted together, at the time of the newest one.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_S: Final = 600.0
LEAST_S: Final = 20.0
"""Minimum seconds between the first and the last observation for computing a rate."""

ENDLESS_S: Final = 100 * 365 * 86_400.0
"""Times of a century or more count as infinite. A topic may have the largest possible retention.ms,
and the timestamp of a record may be in the far future.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBounds:
    """The log of a source partition at one moment, and the offset up to which it was copied."""

    at: float
    """Monotonic time in seconds."""
    start: int
    end: int
    upstream: int


@dataclass(slots=True)
class RetentionOutlook:
    """The outlook of one lagging partition, from observations of the last ten minutes."""

    start_upstream: int | None = None
    """The next source offset to copy, as found in both logs before a lane of this run began, or
    None if unknown.
    """
    _copied_ms: int | None = None
    _seen: deque[SourceBounds] = field(default_factory=deque)

    def note_source(self, bounds: SourceBounds) -> None:
        """Add an observation of the source's log."""
        self._seen.append(bounds)
        while len(self._seen) > 2 and self._seen[1].at <= bounds.at - WINDOW_S:
            self._seen.popleft()

    def note_copied(self, timestamp: int) -> None:
        """Note the timestamp (ms) of the last copied record, or of the next one; ignored if 0."""
        if timestamp:
            self._copied_ms = timestamp if timestamp > 0 else None

    def note_idle(self, upstream: int, timestamp: int) -> None:
        """Note the next offset to copy, with its timestamp (ms), of a partition without a lane."""
        self.start_upstream = upstream
        self.note_copied(timestamp)

    def forget(self) -> None:
        """Forget the observations, because the partition no longer lags."""
        self._seen.clear()

    @property
    def _window_s(self) -> float:
        return self._seen[-1].at - self._seen[0].at if self._seen else 0.0

    def is_known(self, retention_ms: int | None) -> bool:
        """Return True if an infinite `left_s` means that no deletion is expected, not that too
        little is known. `retention_ms` None: the topic has no time limit.
        """
        return self._window_s >= LEAST_S and (retention_ms is None or self._copied_ms is not None)

    def left_s(self, *, now_ms: int, retention_ms: int | None) -> float:
        """Return the minimum number of seconds for which the source keeps the next record, or
        infinity if no deletion is expected. `retention_ms` None: the topic has no time limit.
        """
        left = math.inf
        if retention_ms is not None and self._copied_ms is not None:
            left = max(0.0, (self._copied_ms + retention_ms - now_ms) / 1000)
        if self._window_s >= LEAST_S:
            first, last = self._seen[0], self._seen[-1]
            rate = (last.start - first.start) / self._window_s
            if rate > 0:
                left = min(left, max(0, last.upstream - last.start) / rate)
        return left if left < ENDLESS_S else math.inf

    def needs_s(self) -> float:
        """Return the seconds until the copy catches up at its current rate. Return infinity if the
        lag does not shrink, and 0 if the rate is unknown.
        """
        if self._window_s < LEAST_S:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        nearer = (first.end - first.upstream) - (last.end - last.upstream)
        needs = (last.end - last.upstream) / (nearer / self._window_s) if nearer > 0 else math.inf
        return needs if needs < ENDLESS_S else math.inf
