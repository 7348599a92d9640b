"""The Take is the message that starts a partition in a lane. This module also decides which
partitions must not start now.

A Take without `handed` contains the end of the partition's map, in which the lane searches the
position. Before a Take is sent, three checks are made:

| check                                            | if it fails                                  |
| ------------------------------------------------ | -------------------------------------------- |
| `put_off`: no request of a lost lane can start   | the partition waits until none can arrive,   |
| the partition, or add rows of transforms         | and the map is read again                    |
| `transformed_as_before`, `partitioned_as_before` | the partition fails: the file has changed    |
| `may_begin`: the plan permits a first start      | the partition fails with the plan's reason   |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from twinlog.config.keys.key_table import TRANSFORMS_REMOVED
from twinlog.config.regex.patterns import NamePattern
from twinlog.control.lanes.partitions import Partition
from twinlog.lane.messages import Fan, FanBranch, Take, TakePartition
from twinlog.mirror.findings import partitions_differ
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Run
from twinlog.mirror.map.runs import ORDINAL, following
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.start.request import runs_for_start
from twinlog.model import NO_TOPIC_ID, StartAt, TopicId, TopicPartition

MOST_RUNS: Final = 20_000
LEAST_RUNS: Final = 128
"""Minimum number of runs per partition. A start reads the last 100 records, and tolerates up to
three wrong runs.
"""

RUNS_AT_ONCE: Final = 200_000
"""Maximum runs of all partitions that start together. With more, a flow of many partitions with a
gap after every transaction might take longer to start than its lanes wait for the driver.
"""

Maps = Mapping[PartitionKey, PartitionMap]


RUNS_IN_MESSAGE: Final = 20_000
"""Number of runs in a full Take: about half a megabyte, which a lane reads in 0.1 s."""

RUNS_OF_FIELDS: Final = 20
"""Number of runs that need about as many bytes in a message as a partition's other fields."""


def in_messages(takes: Iterable[TakePartition]) -> Iterator[Take]:
    """Yield the partitions in messages that are small enough to be handled quickly."""
    together: list[TakePartition] = []
    runs = 0
    for take in takes:
        together.append(take)
        runs += _size_in_runs(take)
        if runs >= RUNS_IN_MESSAGE:
            yield Take(partitions=tuple(together))
            together, runs = [], 0
    if together:
        yield Take(partitions=tuple(together))


def _size_in_runs(take: TakePartition) -> int:
    """Return the approximate size of a partition in a message, as a number of runs."""
    handed = () if take.handed is None else take.handed.runs
    branches = () if take.fan is None else take.fan.branches
    of_branches = sum(RUNS_OF_FIELDS + len(branch.runs) for branch in branches)
    return RUNS_OF_FIELDS + len(take.runs) + len(handed) + of_branches


def runs_for_each(partitions: int) -> int:
    """Return how many runs before its mark are sent of each partition's map if this many partitions
    start together.
    """
    return max(LEAST_RUNS, min(MOST_RUNS, RUNS_AT_ONCE // max(1, partitions)))


def take_of(
    partition: Partition, maps: Maps, start: StartAt, most_runs: int = MOST_RUNS
) -> TakePartition:
    """Return the message for one partition, with its map's end if the lane must search there.
    `maps` must contain all maps of the partition's topic.
    """
    plan, searches = partition.plan, partition.handed is None
    has_map, partition_map = plan.map_key in maps, _map_of(plan.map_key, maps)
    fan = None if not plan.targets else _fan(plan, maps)
    runs, runs_from = runs_for_start(partition_map, most_runs) if searches else ((), -1)
    fingerprints = partition_map.fingerprints if searches else {}
    return TakePartition(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        term=partition.term,
        limit_bytes=plan.limit_bytes,
        has_log_append_time=plan.has_log_append_time,
        may_reject_records=plan.may_reject_records,
        compresses=plan.compresses,
        start=start,
        group_at=_group_start(plan, maps),
        began_at=-1 if has_map else _latest_start(plan, maps),
        former_partitions=() if has_map else former_copy_targets(plan, maps),
        had_former_copy=not has_map and _had_former_copy(plan, maps),
        # `has_written` of a keyed partition only shows that one of its branches has written
        had_row=plan.had_row or (partition.has_written and not plan.targets),
        end=plan.end,
        runs=runs,
        runs_from=runs_from,
        open_from=partition_map.open_from if searches else -1,
        mark=partition_map.mark,
        fingerprints={at: crc for at, crc in fingerprints.items() if at >= runs_from},
        our_producers=tuple(sorted(partition_map.producers)),
        acked_ordinal=partition.acked_ordinal,
        acked_epoch=partition.acked_epoch,
        lost=partition.lost,
        handed=partition.handed if fan is None else None,
        fan=fan,
        skips=tuple(skip.skipped for skip in partition.skips),
        accepted=tuple(acceptance.accepted for acceptance in partition.accepted),
        transform=plan.transform,
        written_by=partition_map.transform,
        transformed=partition_map.transformed,
        late_requests_ms=int(partition.waits_s() * 1000),
    )


def put_off(partition: Partition, maps: Maps, read_at: float | None = None) -> bool:
    """Return True if the partition must wait, because a lane that was given up may still start it.

    A partition without a row in the offset map has no recorded first offset. The lost lane's first
    row and records may still arrive. A new lane may begin at another offset, because `latest` and
    (by retention) `earliest` move. With the same sequences, it would get the responses to the lost
    lane's records. So it must wait until all requests have certainly arrived, and the map is read
    again.

    A transformed partition always waits, because the position of its last record follows from the
    map alone (`mirror.start.announced`). So all rows that may still arrive must be read first.

    `read_at`: monotonic time at which the read of the map began. The map lacks rows that arrived
    later.
    """
    plan = partition.plan
    known = maps.get(plan.map_key)
    is_raw = not plan.transform and (known is None or not known.transform)
    keys = [plan.map_key._replace(branch=n, branches=plan.targets) for n in range(plan.targets)]
    has_row = any(key in maps for key in keys or [plan.map_key])
    read_at = partition.clock.monotonic() if read_at is None else read_at
    if partition.wait_until <= read_at or (has_row and is_raw):
        return False
    partition.put_off()
    return True


def may_begin(partitions: Iterable[Partition], maps: Maps, flow: str) -> list[Partition]:
    """Return the partitions that have a row in the offset map, or whose plan permits a start
    without a row. Other partitions fail with the plan's reason.

    A row proves that the copy is this flow's, even if the plan was made before the row and does not
    permit a start.
    """
    rows = {key[:3] for key, known in maps.items() if known.runs}
    out = []
    for partition in partitioned_as_before(partitions, maps, flow):
        refusal = partition.plan.refusal
        if refusal is None or partition.plan.map_key[:3] in rows:
            out.append(partition)
        else:
            is_retriable = refusal.is_retriable
            partition.note_failure(refusal.code, refusal.message, retriable=is_retriable)
    return out


def transformed_as_before(
    cold: Iterable[Partition],
    all_partitions: Iterable[Partition],
    maps: Maps,
    removed: NamePattern,
) -> list[Partition]:
    """Return the partitions that may start. Other partitions fail (TRANSFORMS_DIFFER).

    A topic whose records were transformed is copied without a transform only if `removed` lists it.
    If it is not listed, its transform may be missing by mistake, or this process may have the wrong
    configuration file. So new topics without a transform do not start either, because the right
    file may have one for them.

    `all_partitions`: all partitions of the flow. Topics are compared by name, because a transform
    also applies to a re-created topic.
    """
    by_term = sorted(maps.values(), key=attrgetter("term"))
    newest = {(known.topic, known.key.partition): known for known in by_term}
    before = {known.topic for known in newest.values() if known.transform}
    unchanged = {
        partition.plan.source.topic for partition in all_partitions if not partition.plan.transform
    }
    lost = {topic for topic in before & unchanged if not removed.matches(topic)}
    if not lost:
        return [*cold]
    rows = {key[:3] for key in maps}
    out = []
    for partition in cold:
        plan, what = partition.plan, ""
        if plan.source.topic in lost:
            what = "its records were transformed, but the configuration no longer transforms it"
        elif not plan.transform and plan.map_key[:3] not in rows:
            what = (
                f"a new partition is not copied, because {min(lost)} was transformed and has no "
                "transform now, so this may be the wrong configuration"
            )
        if what:
            todo = f"If this is intended, list {min(lost)} in {TRANSFORMS_REMOVED}"
            message = f"{plan.source}: {what}. {todo}"
            partition.note_failure("TRANSFORMS_DIFFER", message, retriable=False)
        else:
            out.append(partition)
    return out


def partitioned_as_before(
    partitions: Iterable[Partition], maps: Maps, flow: str
) -> list[Partition]:
    """Return the partitions whose topic is still partitioned as it was when its copy began. Other
    partitions fail.

    If the number of target partitions changed, most keys would go to another partition. Records of
    one key would be in two partitions, and it would be unknown which of them were copied.
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
        began_with = max(other)
        before = (
            f"was partitioned by key into {began_with} target partitions"
            if began_with
            else "kept its partitions"
        )
        moved = partitions_differ(plan.source, plan.target, before)
        message = moved.worded(flow, is_shared=partition.is_shared)
        partition.note_failure(moved.code, message, retriable=False)
    return out


def _map_of(key: PartitionKey, maps: Maps) -> PartitionMap:
    """Return the partition's map, or an empty one if it has no row."""
    known = maps.get(key)
    return PartitionMap(key=key, topic="") if known is None else known


def _fan(plan: PartitionPlan, maps: Maps) -> Fan:
    branches = []
    for number in range(plan.targets):
        known = _map_of(plan.map_key._replace(branch=number, branches=plan.targets), maps)
        branches.append(
            FanBranch(
                target=TopicPartition(plan.target.topic, number),
                runs=_from_mark(known),
                mark=known.mark,
                our_producers=tuple(sorted(known.producers)),
            )
        )
    return Fan(producer_id=plan.producer_id, branches=tuple(branches))


def _from_mark(partition_map: PartitionMap) -> tuple[Run, ...]:
    """Return the runs in which the end of the branch's copy can be. These are the runs from the
    map's `Mark` on, because a mark is a point that the copy has reached. The first run is always
    included.
    """
    if partition_map.mark is None:
        return tuple(partition_map.runs)
    begin = max(0, following(partition_map.runs, partition_map.mark.ordinal - 1, ORDINAL) - 1)
    return (*partition_map.runs[: min(1, begin)], *partition_map.runs[begin:])


def _latest_start(plan: PartitionPlan, maps: Maps) -> int:
    """Return the source offset at which an earlier copy of this topic to another target topic
    began, or -1 if there is none. The new copy begins there, too, even if the start is `latest`, so
    that a re-created target lacks no record of the earlier one.
    """
    before = [
        partition_map
        for key, partition_map in maps.items()
        if key.source_topic_id == plan.source_topic_id
        and key.target_topic_id != plan.target_topic_id
        and key.source_topic_id != NO_TOPIC_ID
        and key.partition == plan.source.partition
        and partition_map.runs
    ]
    if not before:
        return -1
    newest = max(before, key=lambda partition_map: partition_map.term).key
    # all branches began at the same source offset; a branch's first run may be later, if it begins
    # at the branch's first record
    return min(
        partition_map.runs[0].upstream
        for partition_map in before
        if partition_map.key[:3] == newest[:3] and partition_map.key.branches == newest.branches
    )


def _group_start(plan: PartitionPlan, maps: Maps) -> int:
    """Return the offset that the flow's group has committed. Return -1 if there is none, or if an
    earlier topic of this name was copied.

    Kafka stores offsets by topic name. So the offset may be this flow's position in the earlier
    topic, which was committed just after the topic was re-created.
    """
    if plan.begin_at < 0:
        return -1
    is_known = any(
        known.topic == plan.source.topic and key.source_topic_id != plan.source_topic_id
        for key, known in maps.items()
    )
    return -1 if is_known else plan.begin_at


def former_copy_targets(plan: PartitionPlan, maps: Maps) -> tuple[int, ...]:
    """Return the target partitions that may have records of a deleted source topic of the same
    name.

    When the new topic's copy began, the old copy had been removed from all partitions. So a
    partition that starts later only checks its own target. If it is partitioned by key, all targets
    are its own, but none is checked, because partitions that began earlier write to them.
    """
    former: set[int] = set()
    is_begun = False
    for key, known in maps.items():
        if key.target_topic_id != plan.target_topic_id or known.topic != plan.source.topic:
            continue
        if key.source_topic_id == plan.source_topic_id:
            is_begun = True
        else:
            former.add(key.branch if key.branches else key.partition)
    if is_begun:
        former &= set() if plan.targets else {plan.target.partition}
    return tuple(sorted(former))


def _had_former_copy(plan: PartitionPlan, maps: Maps) -> bool:
    """Return True if this partition of a deleted topic of this name was copied to the target."""
    return any(
        key.target_topic_id == plan.target_topic_id
        and key.source_topic_id != plan.source_topic_id
        and (known.topic, key.partition) == (plan.source.topic, plan.source.partition)
        for key, known in maps.items()
    )
