"""Batches of one partition that are sent and not answered, and of which times their records are."""

from __future__ import annotations

from collections import deque

from twinlog.mirror.copy.intake import OutBatch


class InFlight(deque[OutBatch]):
    """In the order in which they were sent."""

    oldest = newest = 0
    """Timestamps of what was sent since nothing was in flight."""

    def sent(self, batch: OutBatch) -> None:
        """Another one."""
        stamp = batch.max_timestamp
        if not self:
            self.oldest = self.newest = stamp
        elif stamp < self.oldest:
            self.oldest = stamp
        elif stamp > self.newest:
            self.newest = stamp
        self.append(batch)


def drop(batches: deque[OutBatch]) -> int:
    """Returns the bytes that this frees."""
    freed = sum(len(batch.data) for batch in batches)
    batches.clear()
    return freed
