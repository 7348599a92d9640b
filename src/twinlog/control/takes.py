"""What a lane is told of a partition that it is to start."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from twinlog.control.partitions import Partition, PartitionPlan
from twinlog.lane.messages import Fan, FanBranch, TakePartition
from twinlog.mirror.offset_map import PartitionKey, PartitionMap, Run
from twinlog.model import NO_TOPIC_ID, StartAt, StartKind, TopicId, TopicPartition

RUNS_IN_TAKE: Final = 20_000
"""A log end lies within the newest runs; the first one is sent as well, since it knows K."""

Maps = Mapping[PartitionKey, PartitionMap]


def take_of(partition: Partition, maps: Maps, start: StartAt) -> TakePartition:
    """The message for one partition, with its map where the lane is to look itself."""
    plan = partition.plan
    known = maps.get(_key(plan))
    fan = None if not plan.targets else _fan(plan, maps)
    runs = () if known is None or partition.handed is not None else known.runs
    return TakePartition(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        term=partition.term,
        limit_bytes=plan.limit_bytes,
        stamps_own_time=plan.stamps_own_time,
        is_picky=plan.is_picky,
        start=start,
        began_at=_began_at(plan, maps) if known is None else plan.begin_at,
        had_other_source=known is None and _had_other_source(plan, maps),
        end=plan.end,
        runs=_head_and_tail(runs),
        mark=None if known is None else known.mark,
        fingerprints={} if known is None else dict(known.fingerprints),
        our_producers=() if known is None else tuple(sorted(known.producers)),
        acked_ordinal=partition.acked_ordinal,
        acked_epoch=partition.acked_epoch,
        handed=partition.handed if fan is None else None,
        fan=fan,
        unprotected_wait_ms=max(0, int((partition.wait_until - time.monotonic()) * 1000)),
    )


def put_off(partition: Partition, maps: Maps, start: StartAt) -> bool:
    """Whether it must wait since a lane that is given up may have found another start for it.

    A `latest` of now is not that of then. The lane's first row, and the records behind it, may
    still arrive; whoever began elsewhere under the same sequences would be answered for them. So
    nobody looks before all that has surely arrived, and the map is read again.
    """
    moves = start.kind in (StartKind.LATEST, StartKind.TIMESTAMP)
    if not moves or partition.plan.begin_at >= 0 or time.monotonic() >= partition.wait_until:
        return False
    if _key(partition.plan) in maps:
        return False
    partition.retry_at = partition.wait_until
    return True


def placed_as_before(partitions: Iterable[Partition], maps: Maps) -> list[Partition]:
    """Those whose topic is still placed as when its copy began; the others stop.

    Among another number of target partitions the same key goes elsewhere. Records of one key would
    stand in two partitions, and which of them were copied nobody could say.
    """
    began: dict[tuple[TopicId, TopicId, str], set[int]] = {}
    for key, known in maps.items():
        topic = (key.source_topic_id, key.target_topic_id, known.topic)
        began.setdefault(topic, set()).add(key.branches)
    out = []
    for partition in partitions:
        plan = partition.plan
        topic = (plan.source_topic_id, plan.target_topic_id, plan.source.topic)
        other = began.get(topic, set()) - {plan.targets}
        if not other:
            out.append(partition)
            continue
        partition.troubled("PARTITIONS_DIFFER", _moved(plan, max(other)), retriable=False)
    return out


def _moved(plan: PartitionPlan, began: int) -> str:
    before = f"placed by key among {began} target partitions" if began else "kept its partitions"
    return (
        f"{plan.source}: its copy began when the topic {before}; the number of partitions of "
        f"{plan.target.topic} or of its source has changed since, and a copy that has begun cannot "
        "be placed anew; delete the target topic to copy it anew, or give back the old number"
    )


def _fan(plan: PartitionPlan, maps: Maps) -> Fan:
    branches = []
    for number in range(plan.targets):
        known = maps.get(_key(plan)._replace(branch=number, branches=plan.targets))
        branches.append(
            FanBranch(
                target=TopicPartition(plan.target.topic, number),
                runs=() if known is None else _from_mark(known),
                mark=None if known is None else known.mark,
                our_producers=() if known is None else tuple(sorted(known.producers)),
            )
        )
    return Fan(producer_id=plan.producer_id, branches=tuple(branches))


def _from_mark(known: PartitionMap) -> tuple[Run, ...]:
    """The runs that a branch may end at: the copy surely got to its mark."""
    if known.mark is None:
        return tuple(known.runs)
    at = bisect_right(known.runs, known.mark.ordinal - 1, key=lambda run: run.ordinal)
    begin = max(0, at - 1)
    return (*known.runs[: min(1, begin)], *known.runs[begin:])


def _key(plan: PartitionPlan) -> PartitionKey:
    return PartitionKey(plan.source_topic_id, plan.target_topic_id, plan.source.partition)


def _began_at(plan: PartitionPlan, maps: Maps) -> int:
    """`latest` is said once for a source topic: a target that is made anew loses nothing."""
    before = [
        known
        for key, known in maps.items()
        if key.source_topic_id == plan.source_topic_id
        and key.source_topic_id != NO_TOPIC_ID
        and key.partition == plan.source.partition
        and known.runs
    ]
    if not before:
        return plan.begin_at
    newest = max(before, key=lambda known: known.term).key
    # branches began together, though the first run of one may be its first record already
    return min(
        known.runs[0].upstream
        for known in before
        if known.key[:3] == newest[:3] and known.key.branches == newest.branches
    )


def _had_other_source(plan: PartitionPlan, maps: Maps) -> bool:
    """The target holds the copy of a source topic of this name that was deleted since."""
    return any(
        key.target_topic_id == plan.target_topic_id
        and key.partition == plan.source.partition
        and maps[key].topic == plan.source.topic
        for key in maps
    )


def _head_and_tail(runs: Iterable[Run]) -> tuple[Run, ...]:
    every = tuple(runs)
    return every if len(every) <= RUNS_IN_TAKE else (every[0], *every[-RUNS_IN_TAKE:])
