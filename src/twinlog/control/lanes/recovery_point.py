"""Up to which moment a partition's records are safe: everything that its source had then is on the
target.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST_OBSERVATIONS: Final = 64


class RecoveryPoint:
    """Of one partition, from ends that were seen and positions that were reached; times are seconds
    of one clock that only goes forward.

    It errs to the safe side: between two observations the earlier one counts, and what was not seen
    is not claimed.
    """

    __slots__ = (
        "_pending",
        "_seen_at",
        "at",
        "doubtful_since",
        "end",
        "upstream",
        "waits_since",
        "was_known",
    )

    def __init__(self) -> None:
        self.end = -1
        """The end of the source's log as it was seen last; -1: never."""
        self.upstream = -1
        """Everything below is on the target; -1: not known."""
        self.at: float | None = None
        """The recovery point; None: none is known."""
        self.was_known = False
        """There was one before."""
        self.doubtful_since: float | None = None
        """Since when the source ends below what was copied: it lost records, or is another topic.
        Until a lane has checked, nobody knows what there is to lose.
        """
        self.waits_since: float | None = None
        """Since when at least something is known to wait; None: nothing does."""
        self._seen_at = 0.0
        self._pending: deque[tuple[int, float]] = deque()
        """(end, when it was seen) of what is still to be copied, both growing."""

    @property
    def records(self) -> int:
        """Offsets of the source that are not on the target; -1: not known."""
        if self.doubtful_since is not None or self.end < 0 or (self.upstream < 0 < self.end):
            return -1
        return max(0, self.end - self.upstream) if self.end else 0

    def see(self, end: int, at: float, upstream: int) -> None:
        """The source ended there when it was asked, and the position was known to be there then."""
        self.end, self._seen_at = end, at
        if end < upstream:
            self.doubt(at)
        elif end <= max(self.upstream, 0):
            self._pending.clear()  # what was seen behind it the source has lost since
            self.at, self.was_known, self.waits_since = at, True, None
        else:
            self.waits_since = self.waits_since if self._pending else at
            while self._pending and self._pending[-1][0] >= end:
                self._pending.pop()
            self._pending.append((end, at))
            if len(self._pending) > MOST_OBSERVATIONS:
                newest = self._pending.pop()
                self._pending = deque([*list(self._pending)[::2], newest])

    def doubt(self, at: float) -> None:
        """What the source has by now was not what was copied, when it was asked."""
        self.at, self.doubtful_since = None, self.doubtful_since or at
        self.waits_since = None
        self._pending.clear()

    def reach(self, upstream: int) -> None:
        """Everything below is on the target, as a lane says."""
        self.doubtful_since = None
        if upstream < self.upstream:  # the target lost it again, or it was claimed too early
            self.at = None
            if not self._pending and self.end > upstream:
                self._pending.append((self.end, self._seen_at))
                self.waits_since = self._seen_at
        self.upstream = upstream
        while self._pending and self._pending[0][0] <= upstream:
            self.at, self.was_known = self._pending.popleft()[1], True
            self.waits_since = self.at if self._pending else None
