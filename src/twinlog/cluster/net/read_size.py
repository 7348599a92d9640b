"""Adapts the number of bytes requested from a broker at a time to its quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_BYTES: Final = 64 << 10

PASSED: Final = 8
"""Responses that must pass before more is requested, because a delayed one costs the time of a
mute.
"""


@dataclass(slots=True)
class ReadSize:
    """The requested size is reduced after each response that a quota delayed, so that mutes are
    frequent but short.

    A broker lets a response pass that fits into the rest of about ten seconds of the quota, and
    answers a larger request with nothing. A single batch is returned regardless of the requested
    size.
    """

    ceiling: int
    most_bytes: int
    _passed: int = 0

    def adapt(self, *, is_throttled: bool) -> None:
        """Halve or double the size requested at a time."""
        self._passed = 0 if is_throttled else self._passed + 1
        if is_throttled:
            self.most_bytes = max(LEAST_BYTES, self.most_bytes // 2)
        elif self._passed >= PASSED:
            self.most_bytes, self._passed = min(self.ceiling, self.most_bytes * 2), 0
