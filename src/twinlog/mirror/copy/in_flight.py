"""Batches of one partition that are in flight, and the time span of their records."""

from __future__ import annotations

from collections import deque

from twinlog.mirror.copy.intake import OutBatch


class InFlight(deque[OutBatch]):
    """Batches in the order in which they were sent."""

    oldest = newest = 0
    """Oldest and newest timestamp of the batches sent since nothing was in flight."""

    def sent(self, batch: OutBatch) -> None:
        stamp = batch.max_timestamp
        if not self:
            self.oldest = self.newest = stamp
        elif stamp < self.oldest:
            self.oldest = stamp
        elif stamp > self.newest:
            self.newest = stamp
        self.append(batch)


def drop(batches: deque[OutBatch]) -> int:
    """Remove all batches and return the number of bytes freed."""
    freed = sum(len(batch.data) for batch in batches)
    batches.clear()
    return freed
