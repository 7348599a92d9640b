"""The Take: what a lane gets to start a partition, and which partitions may not start now.

A Take without `handed` has the end of the partition's map, so that the lane can search the
position. Before that, partitions are left out for three reasons:

| checked by                                       | if not                                       |
| ------------------------------------------------ | -------------------------------------------- |
| `put_off`: no request of a lost lane may start   | it waits until none can arrive, and the map  |
| the partition, or add rows of transforms         | is read again                                |
| `transformed_as_before`, `partitioned_as_before` | it fails: the file has changed               |
| `may_begin`: the plan permits a first start      | it fails with the plan's reason              |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from twinlog.config.keys.key_table import TRANSFORMS_REMOVED
from twinlog.config.regex.patterns import NamePattern
from twinlog.control.lanes.partitions import Partition
from twinlog.lane.messages import Fan, FanBranch, Take, TakePartition
from twinlog.mirror.findings import LogFinding, partitions_differ
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Run
from twinlog.mirror.map.runs import ORDINAL, following
from twinlog.mirror.plan import PartitionPlan
from twinlog.mirror.start.request import runs_for_start
from twinlog.model import NO_TOPIC_ID, StartAt, TopicId, TopicPartition

MOST_RUNS: Final = 20_000
LEAST_RUNS: Final = 128
"""Minimum number of runs per partition: a start reads the last 100 records, and tolerates up to
three wrong runs.
"""

RUNS_AT_ONCE: Final = 200_000
"""Runs of all partitions that are given together: a flow of many partitions with a gap after every
transaction must not take longer to start than a lane waits for a sign of life.
"""

Maps = Mapping[PartitionKey, PartitionMap]


RUNS_IN_MESSAGE: Final = 20_000
"""Runs of all partitions in one Take: about half a megabyte, which a lane reads in 0.1 s."""


def in_messages(takes: Iterable[TakePartition]) -> Iterator[Take]:
    """Yield the partitions in messages that neither side handles for long."""
    together: list[TakePartition] = []
    runs = 0
    for take in takes:
        together.append(take)
        runs += len(take.runs)
        if runs >= RUNS_IN_MESSAGE:
            yield Take(partitions=tuple(together))
            together, runs = [], 0
    if together:
        yield Take(partitions=tuple(together))


def runs_for_each(partitions: int) -> int:
    """Return how many runs of each map are sent if this many partitions start together."""
    return max(LEAST_RUNS, min(MOST_RUNS, RUNS_AT_ONCE // max(1, partitions)))


def take_of(
    partition: Partition, maps: Maps, start: StartAt, most_runs: int = MOST_RUNS
) -> TakePartition:
    """Return the message for one partition, with its map if the lane is to search its position."""
    plan = partition.plan
    partition_map = maps.get(plan.map_key)
    fan = None if not plan.targets else _fan(plan, maps)
    searches = partition_map is not None and partition.handed is None
    runs, runs_from = (
        runs_for_start(partition_map, most_runs)
        if partition_map is not None and searches
        else ((), -1)
    )
    return TakePartition(
        source=plan.source,
        target=plan.target,
        source_topic_id=plan.source_topic_id,
        target_topic_id=plan.target_topic_id,
        term=partition.term,
        limit_bytes=plan.limit_bytes,
        stamps_own_time=plan.stamps_own_time,
        is_picky=plan.is_picky,
        compresses=plan.compresses,
        start=start,
        group_at=_group_start(plan, maps),
        began_at=-1 if partition_map is not None else _latest_start(plan, maps),
        former=() if partition_map is not None else former_targets(plan, maps),
        is_another=partition_map is None and _is_another(plan, maps),
        # of a keyed partition it only says that one of the branches has written
        had_row=plan.had_row or (partition.has_written and not plan.targets),
        end=plan.end,
        runs=runs,
        runs_from=runs_from,
        open_from=partition_map.open_from if partition_map is not None and searches else -1,
        mark=None if partition_map is None else partition_map.mark,
        fingerprints={}
        if partition_map is None or not searches
        else _fingerprints(partition_map, runs_from),
        our_producers=() if partition_map is None else tuple(sorted(partition_map.producers)),
        acked_ordinal=partition.acked_ordinal,
        acked_epoch=partition.acked_epoch,
        lost=partition.lost,
        handed=partition.handed if fan is None else None,
        fan=fan,
        skips=tuple(skip.skipped for skip in partition.skips),
        accepted=tuple(acceptance.accepted for acceptance in partition.accepted),
        transform=plan.transform,
        written_by="" if partition_map is None else partition_map.transform,
        transformed=() if partition_map is None else partition_map.transformed,
        late_requests_ms=int(partition.waits_s() * 1000),
    )


def put_off(partition: Partition, maps: Maps, read_at: float | None = None) -> bool:
    """Return True if the partition must wait, because a lane that was given up may still start it.

    Its first offset is not recorded yet: `latest` may have moved since, and so may `earliest`, by
    retention. The lost lane's first row, and records after it, may still arrive. A lane that starts
    at another offset with the same sequences would get the responses for those. So it starts only
    after all of them have certainly arrived, and the map is read again.

    A transformed partition always waits. The position of its last record follows from the map alone
    (`mirror.start.announced`), so the rows of all records that may still arrive must be read.

    `read_at`: monotonic time at which the map's read began. Rows may have arrived after it.
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
    """Return the partitions that have a row, or whose plan permits a start without one. The others
    fail with the reason.

    A row is this flow's from its first moment on, even if an older plan says otherwise.
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
    """Return the partitions that may start; others fail (TRANSFORMS_DIFFER).

    A topic that was transformed is not copied unchanged unless the file says that this is meant
    (`removed`): a line may be lost, or this process may have another file than the one before it.
    Then new topics do not start either, because that file may have transforms for them.

    `all_partitions`: all partitions of the flow. Topics are compared by name, because a transform
    is meant for a re-created topic as well.
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
            what = "its records were transformed, and the configuration has no transform for it now"
        elif not plan.transform and plan.map_key[:3] not in rows:
            what = (
                f"it is new, and this may be the wrong configuration: {min(lost)} was transformed, "
                "and has no transform now"
            )
        if what:
            todo = f"if this is intended, list {min(lost)} in {TRANSFORMS_REMOVED}"
            message = f"{plan.source}: {what}; {todo}"
            partition.note_failure("TRANSFORMS_DIFFER", message, retriable=False)
        else:
            out.append(partition)
    return out


def partitioned_as_before(
    partitions: Iterable[Partition], maps: Maps, flow: str
) -> list[Partition]:
    """Return the partitions whose topic is still partitioned as when its copy began; others fail.

    With another number of target partitions the same key goes to another one. Records of one key
    would be in two partitions, and which of them were copied would be unknown.
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
        moved = _partitions_differ(plan, max(other))
        message = moved.worded(flow, is_shared=partition.is_shared)
        partition.note_failure(moved.code, message, retriable=False)
    return out


def _partitions_differ(plan: PartitionPlan, began: int) -> LogFinding:
    before = (
        f"was partitioned by key into {began} target partitions" if began else "kept its partitions"
    )
    return partitions_differ(plan.source, plan.target, before)


def _fan(plan: PartitionPlan, maps: Maps) -> Fan:
    branches = []
    for number in range(plan.targets):
        known = maps.get(plan.map_key._replace(branch=number, branches=plan.targets))
        branches.append(
            FanBranch(
                target=TopicPartition(plan.target.topic, number),
                runs=() if known is None else _from_mark(known),
                mark=None if known is None else known.mark,
                our_producers=() if known is None else tuple(sorted(known.producers)),
            )
        )
    return Fan(producer_id=plan.producer_id, branches=tuple(branches))


def _from_mark(partition_map: PartitionMap) -> tuple[Run, ...]:
    """Return the runs in which the end of the branch's copy can be: those from its mark on, because
    the copy has reached the mark. The first run is always included.
    """
    if partition_map.mark is None:
        return tuple(partition_map.runs)
    begin = max(0, following(partition_map.runs, partition_map.mark.ordinal - 1, ORDINAL) - 1)
    return (*partition_map.runs[: min(1, begin)], *partition_map.runs[begin:])


def _latest_start(plan: PartitionPlan, maps: Maps) -> int:
    """Return the offset that `latest` stands for, or -1 if there is none. It is fixed once per
    source topic, so that a re-created target loses nothing.
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
    # branches began together, although the first run of one may be its first record
    return min(
        partition_map.runs[0].upstream
        for partition_map in before
        if partition_map.key[:3] == newest[:3] and partition_map.key.branches == newest.branches
    )


def _group_start(plan: PartitionPlan, maps: Maps) -> int:
    """Return the offset of the flow's group, or -1 if it has none, or may be of another topic.
    Kafka keeps offsets by name. So if an earlier topic of this name was copied, the offset may be
    this flow's own position in it, committed a moment too late.
    """
    is_known = any(
        known.topic == plan.source.topic and key.source_topic_id != plan.source_topic_id
        for key, known in maps.items()
    )
    return -1 if plan.begin_at < 0 or is_known else plan.begin_at


def former_targets(plan: PartitionPlan, maps: Maps) -> tuple[int, ...]:
    """Return the target partitions with the copy of a deleted source topic of the same name.

    Once the new topic's copy has begun there, the old one was removed from all partitions. For a
    partition that starts later, only its own target can still have it. By key all target partitions
    are its own, and partitions that began earlier write to them.
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


def _is_another(plan: PartitionPlan, maps: Maps) -> bool:
    """Return True if a deleted source topic's partition was copied to this target topic."""
    return any(
        key.target_topic_id == plan.target_topic_id
        and key.source_topic_id != plan.source_topic_id
        and (known.topic, key.partition) == (plan.source.topic, plan.source.partition)
        for key, known in maps.items()
    )


def _fingerprints(partition_map: PartitionMap, runs_from: int) -> dict[int, int]:
    return {at: crc for at, crc in partition_map.fingerprints.items() if at >= runs_from}
