"""Decides for how many batches a Fetch waits at the broker while batches arrive steadily.

A batch that is read alone costs a turn of the lane: a Fetch response, the next Fetch, a Produce
request and its response. Batches that are read together share the turn, and small ones may be
joined. So if at least two batches are due within a few milliseconds, the next Fetch waits for them.

    batches        . . . . . . . .            .            .
    lowest         F F F F F F F F            F            F      F: response, and a turn
    balanced         F   F   F   F            F            F
                   |<- steady ->|             |<- not steady: nothing is gained by waiting ->|

The broker responds as soon as it has the bytes of the batches that are due, so the last of these
batches does not wait. A Fetch never waits longer than the limit. After a response without records
the traffic is no longer steady, and the next Fetch waits for the first record only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 64 * 1024
"""Maximum `min_bytes` of a Fetch. If there is a backlog, more bytes are available, so brokers
respond immediately.
"""

SLOW_S: Final = 0.02
"""Maximum interval between batches in the averages. Longer intervals count as this one, so that
steady traffic after a pause is noticed soon.
"""

SHARE: Final = 0.3
"""Weight of the newest response in the moving averages."""


@dataclass(slots=True)
class Gathering:
    """The interval and size of the batches that one broker returns."""

    longest_ms: int
    """Maximum time (ms) for which a Fetch waits for more than one batch; 0 if it must not wait."""
    _interval_s: float = SLOW_S
    _batch_bytes: float = 0.0
    _arrived_at: float = 0.0

    def on_records(self, now: float, batches: int, size: int) -> None:
        """Update the averages after a response with `batches` batches of `size` bytes in total.
        `now`: monotonic time.
        """
        count = max(1, batches)
        interval = min(SLOW_S, now - self._arrived_at) / count
        self._arrived_at = now
        self._interval_s += SHARE * (interval - self._interval_s)
        self._batch_bytes += SHARE * (size / count - self._batch_bytes)

    def on_empty(self) -> None:
        """Reset the interval after a response without records, because traffic is no longer
        steady.
        """
        self._interval_s = SLOW_S

    @property
    def least_bytes(self) -> int:
        """Number of bytes for which the next Fetch must wait, or 0 if it must return with the first
        record.
        """
        due = int(self.longest_ms / 1000 / self._interval_s)
        return min(MOST_BYTES, int((due - 0.5) * self._batch_bytes)) if due > 1 else 0
