"""Finds where a copy ends in a topic that only its flow wrote to until other clients did.

The batches of the flow come first, and those of other clients after them, so the border is bisected
by the producer IDs of batches. This works even if the leader has forgotten the flow's producer ID.
It costs a few small fetches per partition.
"""

from __future__ import annotations

from collections.abc import Callable

from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.wire.record_batch import BatchHeader


class BorderUnknown(Exception):
    """Raised if the log does not show the border. The text has the reason."""


def copy_border(
    known: PartitionMap, log: tuple[int, int], batch_from: Callable[[int, int], BatchHeader | None]
) -> int:
    """Return the offset after the flow's last record in a log with these bounds.

    `batch_from(offset, end)` returns the batch that contains an offset, or the next one that begins
    before `end`. Raises BorderUnknown if retention or the cleaner deleted the batches around the
    border, because they may have been the flow's.
    """
    first = known.runs[0]
    low, foreign = max(log[0], first.downstream), log[1]
    if log[0] > first.downstream:
        header = batch_from(low, foreign)
        if header is None or header.producer_id not in known.producers:
            raise BorderUnknown(f"retention has deleted the border: the log begins at {log[0]}")
    while low < foreign:
        middle = (low + foreign) // 2
        header = batch_from(middle, foreign)
        if header is not None and header.magic >= 2 and header.producer_id in known.producers:
            low = header.next_offset
        else:
            foreign = (
                middle  # no batch here: the cleaner deleted up to the next batch of another client
            )
    after = batch_from(low, log[1])
    hole = log[1] if after is None else after.base_offset
    if hole > low:
        raise BorderUnknown(f"the cleaner has deleted the batches of [{low}, {hole})")
    return low
