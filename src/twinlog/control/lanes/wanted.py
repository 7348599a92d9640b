"""Determines which partitions a flow copies now, by the discovered topics and the intents."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.errors import TwinlogError
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.state.intents import FlowIntents
from twinlog.model import TopicPartition

Partitions = dict[TopicPartition, Partition]


def replan(
    partitions: Partitions,
    plans: Iterable[PartitionPlan],
    intents: FlowIntents,
    create: Callable[[PartitionPlan], Partition],
) -> list[Partition]:
    """Apply plans and intents. Return the partitions that must leave their lanes, if any.

    When a paused partition is resumed, its next lane searches the position in both logs. The
    position at which the former lane stopped may not be valid any more.
    """
    leaving: list[Partition] = []
    released = intents.unmirrored_topics
    wanted = {plan.source: plan for plan in plans if plan.source.topic not in released}
    for tp, plan in wanted.items():
        known = partitions.get(tp)
        if known is None:
            partitions[tp] = create(plan)
            continue
        if known.plan.targets != plan.targets:
            known.handed = None
            leaving.append(known)
        known.replan(plan)
        if known.placement is Placement.RELEASED:
            known.placement = Placement.PENDING
    for tp, partition in list(partitions.items()):
        if tp not in wanted and partition.is_wanted:
            mark_unwanted(partition)
            leaving.append(partition)
        elif partition.is_forgotten:
            del partitions[tp]
            continue
        partition.repair(intents)
        partition.is_paused = partition.is_wanted and intents.pause_of(tp.topic) is not None
        if partition.is_paused:
            partition.handed, partition.is_seen = None, False
            leaving.append(partition)
    return leaving


def mark_unwanted(partition: Partition) -> None:
    """Mark a partition as no longer mirrored. It is kept for display."""
    partition.is_wanted, partition.handed, partition.begun = False, None, None
    partition.failure = None  # problems of a partition that is no longer mirrored are not shown
    if partition.lane is None:
        partition.leave_lane(Placement.RELEASED)


def see_source(
    partitions: Iterable[Partition], topics: Container[str], released: Container[str]
) -> dict[str, str]:
    """Note which topics the source lists. Return the copied topics that are missing for the first
    time, with their remote topics.
    """
    vanished: dict[str, str] = {}
    for partition in partitions:
        topic = partition.plan.source.topic
        if partition.is_wanted or topic in topics or topic in released:
            partition.vanished_ms = None
        elif not partition.vanished_ms:
            partition.vanished_ms = partition.clock.wall_ms()
            vanished[topic] = partition.plan.target.topic
    return vanished


def vanished_text(partition: Partition) -> str:
    """Return the text for a partition whose topic the source no longer lists, else ""."""
    if partition.placement is not Placement.RELEASED or not partition.vanished_ms:
        return ""
    return kept_text(partition.plan.target.topic)


def kept_text(copy: str) -> str:
    """Return the text for the copy of a topic that the source no longer lists."""
    return f"deleted at the source, or no longer visible; {copy} is kept"


def hold_back(partitions: Iterable[Partition], error: TwinlogError | None) -> None:
    """Set the error that prevents partitions from starting for the first time. None clears it."""
    waiting = (
        partition for partition in partitions if partition.is_wanted and partition.last_plan is None
    )
    for partition in waiting:
        if partition.placement is not Placement.PENDING:
            continue
        if error is not None and partition.failure is None:
            partition.note_failure(error.code, error.what, retriable=True)
        elif error is None and partition.failure is not None:
            partition.failure, partition.retry_at = None, 0.0


def continue_from(
    partitions: Partitions,
    former: Iterable[Partition],
    create: Callable[[PartitionPlan], Partition],
) -> None:
    """Continue the counts of the previous run's partitions, and show those that are no longer
    wanted as RELEASED. No other state is valid in a new generation, because another leader may have
    copied in the meantime.
    """
    for before in former:
        partition = partitions.get(before.plan.source)
        if partition is None:
            partition = partitions[before.plan.source] = create(before.plan)
            mark_unwanted(partition)
            partition.since, partition.vanished_ms = before.since, before.vanished_ms
            if before.placement is Placement.RELEASED:
                partition.left_at = before.left_at
        partition.records, partition.bytes = before.total_records, before.total_bytes
