"""How long the source keeps what of a partition is not copied yet, and how long the copy needs.

A broker deletes a segment when its newest record is older than the topic's retention, or when the
log is too large. The first is bounded by the last copied record's timestamp, the second by how fast
the log's start moves towards the position. Both are estimates from below: records of one segment go
together, with the newest of them.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 600.0
LEAST_S: Final = 20.0
"""A shorter time gives no rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBounds:
    """A partition of the source at one moment, and how far its copy was then."""

    at: float
    """Monotonic, in seconds."""
    start: int
    end: int
    upstream: int


class RetentionOutlook:
    """Of one partition that is behind, from what was seen within the last ten minutes."""

    __slots__ = ("_copied_ms", "_seen", "rests_at")

    def __init__(self) -> None:
        self.rests_at = -1
        """The next upstream offset, as both logs had it before a lane of this run began; -1: not
        known, or never asked.
        """
        self._copied_ms = 0
        self._seen: deque[SourceBounds] = deque()

    def see(self, bounds: SourceBounds) -> None:
        """The source's log now."""
        self._seen.append(bounds)
        while len(self._seen) > 2 and self._seen[1].at <= bounds.at - WINDOW_S:
            self._seen.popleft()

    def copied(self, timestamp: int) -> None:
        """Of the last copied record or the next one, in milliseconds; 0: not known to this lane."""
        self._copied_ms = timestamp or self._copied_ms

    def rests(self, upstream: int, timestamp: int) -> None:
        """No lane has it, and these come next: the offset, and when it was written."""
        self.rests_at = upstream
        self.copied(timestamp)

    def forget(self) -> None:
        """It is not behind any more."""
        self._seen.clear()

    @property
    def _window_s(self) -> float:
        return self._seen[-1].at - self._seen[0].at if self._seen else 0.0

    def is_known(self, retention_ms: int | None) -> bool:
        """Whether an infinite `left_s` says anything. `retention_ms` None: the topic has no limit
        of time.
        """
        return self._window_s >= LEAST_S and (retention_ms is None or self._copied_ms > 0)

    def left_s(self, *, now_ms: int, retention_ms: int | None) -> float:
        """For how many seconds at least the source keeps what comes next; infinite where nothing
        shows that it will be deleted. `retention_ms` None: the topic has no limit of time.
        """
        left = math.inf
        if retention_ms is not None and self._copied_ms > 0:
            left = max(0.0, (self._copied_ms + retention_ms - now_ms) / 1000)
        if self._window_s >= LEAST_S:
            first, last = self._seen[0], self._seen[-1]
            rate = (last.start - first.start) / self._window_s
            if rate > 0:
                left = min(left, max(0, last.upstream - last.start) / rate)
        return left

    def needs_s(self) -> float:
        """In how many seconds the copy has caught up at its present pace; infinite where it comes
        no nearer, 0 while that is not known.
        """
        if self._window_s < LEAST_S:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        nearer = (first.end - first.upstream) - (last.end - last.upstream)
        return (last.end - last.upstream) / (nearer / self._window_s) if nearer > 0 else math.inf
