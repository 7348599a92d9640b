"""How much one broker is asked for at once, while a quota binds and while none does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_BYTES: Final = 64 << 10

PASSED: Final = 8
"""So many answers pass before more is asked for: one that is held back costs the time of a mute."""


@dataclass(slots=True)
class ReadSize:
    """Less after each answer that a quota held back, so that it mutes us often and shortly.

    A broker lets an answer pass that fits into what is left of about ten seconds of the quota, and
    answers a larger one with nothing. A single batch is answered whatever was asked for.
    """

    ceiling: int
    most_bytes: int
    _passed: int = 0

    def adapt(self, *, is_throttled: bool) -> None:
        """Halve or double what is asked for at once."""
        self._passed = 0 if is_throttled else self._passed + 1
        if is_throttled:
            self.most_bytes = max(LEAST_BYTES, self.most_bytes // 2)
        elif self._passed >= PASSED:
            self.most_bytes, self._passed = min(self.ceiling, self.most_bytes * 2), 0
