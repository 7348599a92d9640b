"""Partitions as the duties of a flow see them."""

from __future__ import annotations

from collections.abc import Iterable

from twinlog.codes import PartitionState, Trait, has
from twinlog.control.duties.handed_topics import HandedTopics, handed_topics
from twinlog.control.duties.rounds import PartitionView
from twinlog.control.lanes.partitions import Partition


def view_of(partition: Partition) -> PartitionView:
    """Return the partition by its lane's last report; used in the supervisor's thread."""
    plan, failure = partition.plan, partition.failure
    # of a re-created topic, the lane's report is no valid position
    is_another = failure is not None and has(failure.code, Trait.ANOTHER_TOPIC)
    is_stale = partition.is_replaced or is_another
    is_broken = failure is not None and has(failure.code, Trait.NO_OFFSETS)
    at = None if is_stale or is_broken else partition.progress
    not_ours = _not_ours(partition, is_stale=is_stale)
    return PartitionView(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        next_upstream=-1 if at is None else at.upstream,
        next_downstream=-1 if at is None else at.downstream,
        source_end=-1 if at is None else at.source_end,
        is_broken=is_broken,
        is_unseen=at is None and not_ours != PartitionState.TAKEN_OVER,
        is_keyed=plan.targets > 0,
        is_begun=partition.is_begun,
        has_others=plan.targets > 0 or partition.is_behind_others,
        # without a lane, rows that the map may have lost are not written again
        map_epoch=None if at is None or partition.lane is None else at.map_epoch,
        not_ours=not_ours,
    )


def handed(partitions: Iterable[Partition]) -> HandedTopics:
    """Return the topics that duties may change; used in the supervisor's thread."""
    return handed_topics(view_of(one) for one in partitions if one.is_wanted)


def _not_ours(partition: Partition, *, is_stale: bool) -> str:
    failure = partition.failure
    if failure is not None and has(failure.code, Trait.NOT_OURS):
        return failure.code
    return PartitionState.TAKEN_OVER.value if partition.is_taken_over and not is_stale else ""
