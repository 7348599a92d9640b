"""Computes how many records would be lost if a flow's source were lost now, and what limits the
copy. Warns before the source's retention deletes records that are not copied yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from twinlog.codes import NOT_MIRRORED, PartitionState, Trait, has
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.lanes.retention_outlook import ENDLESS_S
from twinlog.control.risk.running_flow import RunningFlow
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.quantities import count, duration, plural, size, total
from twinlog.survey.topic_configs import NO_LIMIT

RPO_EXCEEDED: Final = "RPO_EXCEEDED"
MOST_OF_IT: Final = 0.8
"""Share of the flow's waiting records above which one partition is reported as the bottleneck."""

NOT_AT_RISK: Final = (
    *NOT_MIRRORED,
    *(PartitionState.DONE, PartitionState.TAKEN_OVER),
)
UNSEEN_MS: Final = 30_000
"""If the source has not answered for this many milliseconds, it may have unknown records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The possible loss of a flow: that of all partitions together."""

    records: int | None
    """Number of source offsets that are not on the target; None if unknown for all partitions."""
    ms: int | None
    """Age of the oldest recovery point, in milliseconds; None if unknown for all partitions."""
    unknown: int
    """Number of partitions for which the lost records or the recovery point's age are unknown."""
    worst: PartitionSnapshot | None
    """The partition with the oldest recovery point. Partitions are left out if the source has
    reported within UNSEEN_MS that they are copied to the end.
    """


def loss_records_of(partition: Partition) -> int | None:
    """Return how many source offsets of the partition would be lost, or None if unknown."""
    is_known = _is_mirrored(partition) and _in_doubt_ms(partition) is None
    return partition.recovery.records if is_known else None


def loss_ms_of(partition: Partition, now_ms: int) -> int | None:
    """Return the age of the partition's recovery point in milliseconds, or None if unknown.

    If the source is no longer the one that was copied, return the time since that was noticed.
    Without a recovery point, return how long records are known to wait. If the copy has never
    reached the end of the log, return at least the age of the last copied record.
    """
    if not _is_mirrored(partition):
        return None
    recovery, progress = partition.recovery, partition.progress
    doubt_ms, now = _in_doubt_ms(partition), partition.clock.boot()
    if doubt_ms is not None:
        return doubt_ms
    if recovery.at is not None:
        return int((now - recovery.at) * 1000)
    if recovery.end is None:
        return None
    waits = [] if recovery.waits_since is None else [int((now - recovery.waits_since) * 1000)]
    if progress is not None and progress.last_timestamp > 0 and not recovery.was_known:
        waits.append(now_ms - progress.last_timestamp)
    return max((0, *waits)) if waits else None


def _is_mirrored(partition: Partition) -> bool:
    over = partition.placement in (Placement.RELEASED, Placement.DONE)
    return partition.is_wanted and not over


def _in_doubt_ms(partition: Partition) -> int | None:
    """Return how many ms ago the source began to differ from the copied one, or None."""
    failure, since = partition.failure, partition.recovery.doubtful_since
    if failure is not None and has(failure.code, Trait.ANOTHER_SOURCE):
        return max(0, partition.clock.wall_ms() - failure.since_ms)
    return None if since is None else int((partition.clock.boot() - since) * 1000)


def loss_of(partitions: Sequence[PartitionSnapshot]) -> Loss:
    """Return the possible loss of a flow from its partitions."""
    at_risk = [part for part in partitions if part.state not in NOT_AT_RISK]
    timed = [(part.loss_ms, part) for part in at_risk if part.loss_ms is not None]
    waiting = [(ms, part) for ms, part in timed if part.loss_records != 0 or ms > UNSEEN_MS]
    _, worst = max(waiting, key=lambda pair: pair[0], default=(0, None))
    return Loss(
        records=total(part.loss_records for part in at_risk),
        ms=max((ms for ms, _ in timed), default=None),
        unknown=sum(None in (part.loss_records, part.loss_ms) for part in at_risk),
        worst=worst,
    )


def excess(run: RunningFlow, loss: Loss, rpo_seconds: int | None) -> str:
    """Return a message if the flow exceeds `twinlog.rpo.seconds`, else an empty string."""
    worst = loss.worst
    lost_ms = 0 if worst is None else worst.loss_ms or 0
    if rpo_seconds is None or worst is None or lost_ms <= rpo_seconds * 1000:
        return ""
    ago, where = duration(lost_ms / 1000), f"{worst.topic}-{worst.partition}"
    begin = f"the RPO of {duration(rpo_seconds)} is exceeded: "
    why = f"{bottleneck(run, worst, loss.records)} [{RPO_EXCEEDED}]"
    if worst.loss_records == 0:
        return f"{begin}{where} was last seen {ago} ago, and later records are unknown: {why}"
    number = f"{count(loss.records)} records" if loss.records else "records"
    return (
        f"{begin}without the source {number} of the last {ago} would be lost; {where} is furthest "
        f"behind: {why}"
    )


def bottleneck(run: RunningFlow, worst: PartitionSnapshot, records: int | None) -> str:
    """Return the most likely reason why the partition is behind, as a part of a message."""
    lanes = [lane for lane in run.lanes() if lane.is_ready]
    away = next((str(lane.unreachable) for lane in lanes if lane.unreachable), "")
    throttle = throttle_of(run)
    lost = worst.loss_records
    is_alone = (lost or 0) > MOST_OF_IT * (records or 0) and len(run.partitions) > 1
    is_open = worst.is_held_back or (worst.lag == 0 and bool(lost))
    causes = (
        (bool(worst.code) and not worst.is_held_back, f"it has stopped with {worst.code}"),
        (worst.state is PartitionState.PAUSED, "it is paused"),
        (not lanes, "no lane runs"),
        (bool(away), away),
        (lost == 0, "the source does not report its log end"),
        (is_open, "an open transaction at the source"),
        (bool(throttle), throttle),
        (is_alone, "only this partition is behind, and one lane copies it"),
    )
    rest = f"{plural(len(lanes), 'lane')}, and the network or the brokers are at their limit"
    return next((text for holds, text in causes if holds), rest)


def throttle_of(run: RunningFlow) -> str:
    """Return a text if the flow's limit or a broker quota throttles it, else an empty string."""
    return _limit(run) or _quota(run)


def _limit(run: RunningFlow) -> str:
    pacer = run.pacer
    if pacer is None or not pacer.is_binding:
        return ""
    return f"the flow is throttled by its limit of {size(pacer.limit)}/s"


def _quota(run: RunningFlow) -> str:
    lanes = run.lanes()
    mutes = {
        "source": max((lane.throttle.source_ms for lane in lanes), default=0),
        "target": max((lane.throttle.target_ms for lane in lanes), default=0),
    }
    sides = [
        f"the {side}'s brokers (they mute the connection for {duration(ms / 1000)})"
        for side, ms in mutes.items()
        if ms
    ]
    return f"the flow is throttled by a quota of {' and '.join(sides)}" if sides else ""


RETENTION_NEAR: Final = "RETENTION_NEAR"
NEAR: Final = 0.25
"""A partition that is not catching up is reported if its next record is deleted soon: in less than
this share of the topic's retention.
"""

NEAR_S: Final = 3600.0
"""If retention.ms is unlimited or unknown, this time in seconds replaces the share NEAR. The log
start of such a topic moves because of the log's size.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Whether a partition that is behind will be copied before the source deletes its records."""

    left_ms: int | None
    """Minimum time until the source deletes the next record, or None if unknown or not expected."""
    needs_ms: int | None
    """Time until the copy has caught up, or None if it is not catching up."""
    is_near: bool
    """True if the next record will be deleted before it is copied, at the current rates."""
    is_known: bool
    """False if `left_ms` is None because it is unknown, not because no deletion is expected."""


NONE: Final = Outlook(left_ms=None, needs_ms=None, is_near=False, is_known=True)


def outlook_of(partition: Partition, retentions: Mapping[str, int], now_ms: int) -> Outlook:
    """Return the outlook for a partition by its last observations. `retentions`: retention.ms by
    topic. Return NONE if the partition is not behind.
    """
    if not partition.is_wanted or not partition.is_behind:
        return NONE
    retention = retentions.get(partition.plan.source.topic)
    is_endless = retention == NO_LIMIT or (retention or 0) / 1000 >= ENDLESS_S
    retention_ms = None if is_endless else retention
    left = partition.keeping.left_s(now_ms=now_ms, retention_ms=retention_ms)
    if math.isinf(left):
        is_known = retention is not None and partition.keeping.is_known(retention_ms)
        return replace(NONE, is_known=is_known)
    needs = partition.keeping.needs_s()
    soon = NEAR_S if retention_ms is None else NEAR * retention_ms / 1000
    return Outlook(
        left_ms=int(left * 1000),
        needs_ms=None if math.isinf(needs) else int(needs * 1000),
        is_near=left < (soon if math.isinf(needs) else needs),
        is_known=True,
    )


def warnings(partitions: Sequence[PartitionSnapshot]) -> dict[str, str]:
    """Return a warning by topic if records will probably be deleted before they are copied."""
    topics: dict[str, list[PartitionSnapshot]] = {}
    for part in partitions:
        if part.is_near_deletion:
            topics.setdefault(part.topic, []).append(part)
    retentions = {}
    for topic, near in topics.items():
        first = min(near, key=lambda part: part.left_ms or 0)
        needs = (
            "the copy is not catching up"
            if first.needs_ms is None
            else f"the copy needs {duration(first.needs_ms / 1000)}"
        )
        retentions[topic] = (
            f"{topic}: in {duration((first.left_ms or 0) / 1000)} the source may delete records of "
            f"{plural(len(near), 'partition')} that are not copied yet ({topic}-{first.partition} "
            f"first), and {needs}: raise the topic's retention.ms or retention.bytes until the "
            f"copy has caught up [{RETENTION_NEAR}]"
        )
    return retentions
