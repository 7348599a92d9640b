"""Take messages as a driver sends them to a lane."""

from __future__ import annotations

from typing import Final

from twinlog.lane.messages import HandOver, TakePartition
from twinlog.mirror.map.offset_map import Mark, Run, Term
from twinlog.model import StartAt, TopicId, TopicPartition

__all__ = ["HERE_ID", "PRODUCER", "THERE_ID", "take"]

PRODUCER: Final = 9
HERE_ID: Final = TopicId("a" * 32)
THERE_ID: Final = TopicId("b" * 32)


def take(
    number: int,
    *,
    wait_ms: int = 0,
    mark: Mark | None = None,
    handed: HandOver | None = None,
    stamps: bool = False,
) -> TakePartition:
    """Return the Take (assignment) of partition `number`, whose topic was copied before.

    `wait_ms`: time in which late requests may arrive. `mark`: the mark of the offset map. `handed`:
    the position from the previous lane; None if the lane must find it. `stamps`: True if the target
    sets its own timestamps.
    """
    return TakePartition(
        source=TopicPartition("t", number),
        target=TopicPartition("A.t", number),
        source_topic_id=HERE_ID,
        target_topic_id=THERE_ID,
        term=Term(1, 1),
        limit_bytes=1 << 20,
        has_log_append_time=stamps,
        may_reject_records=False,
        start=StartAt(),
        group_at=-1,
        began_at=-1,
        former_partitions=(),
        had_former_copy=False,
        had_row=False,
        end=2**63 - 1,
        runs=(Run(0, 0, 0),),
        runs_from=-1,
        open_from=-1,
        mark=mark,
        fingerprints={},
        our_producers=(PRODUCER,),
        acked_ordinal=-1,
        acked_epoch=-1,
        late_requests_ms=wait_ms,
        handed=handed,
    )
