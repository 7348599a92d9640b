"""Partitions as the duties of a flow see them."""

from __future__ import annotations

from twinlog.codes import ANOTHER_TOPIC, LOG_FINDINGS
from twinlog.control.duties.rounds import PartitionView
from twinlog.control.lanes.partitions import Partition


def view_of(partition: Partition) -> PartitionView:
    """The partition as its lane last reported it; only in the supervisor's thread."""
    plan, failure = partition.plan, partition.failure
    # of a topic that was created since, what the lane reported is no position
    is_stale = partition.is_replaced or (failure is not None and failure.code in ANOTHER_TOPIC)
    at = None if is_stale else partition.progress
    return PartitionView(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        next_upstream=-1 if at is None else at.upstream,
        next_downstream=-1 if at is None else at.downstream,
        source_end=-1 if at is None else at.source_end,
        is_broken=failure is not None and failure.code in LOG_FINDINGS,
        is_keyed=plan.targets > 0,
    )
