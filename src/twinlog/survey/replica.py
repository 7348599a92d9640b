"""How far a partition is copied, and by which evidence. Only the start of a lane, and a failback in
a shared topic, need a stricter check (`mirror.start.our_end`).

`replica` is a pure function of what `survey.picture` has read. Callers decide which certainty they
need: a translation accepts AT_LEAST, a switchover requires EXACT.

| target topic | situation | witness | certainty |
| --- | --- | --- | --- |
| any | a lane of this process reports a later position (`by_lane`) | LANE | EXACT as reported |
| own | the leader remembers this flow's newest producer ID | PRODUCER | EXACT |
| | ID expired or not queried, and no other client may write | LOG_END | EXACT |
| | ID expired or not queried, promoted or released | MARK | AT_LEAST, EXACT if it is final |
| | as in the row above, but batch headers were read (`by_headers`) | HEADERS | EXACT |
| shared | other clients may write at any time | MARK | AT_LEAST, EXACT if it is final |
| keyed | records go to several partitions by key | MARK | AT_LEAST, and never translated |
| any | no row in the map, and no record was ever on the target | | EXACT: nothing is copied |
| any | no row in the map, but records on the target | | UNKNOWN: foreign, or a lost map |
| any | rows of an earlier source topic of that name | | UNKNOWN: SOURCE_RECREATED |
| any | the log ends before the copy, also after the map was read | | UNKNOWN: TARGET_TRUNCATED |
| any | the leader of the log, or of the map's rows, does not respond | | UNKNOWN: its error |

Nothing is locked while both clusters are read. The result is correct nevertheless:

- *Order.* Ends are read first, then producers, then the map and the state topic. Rows of the map
  are written before their data, so a map that is read after an end has a row for everything below
  it. A batch that arrives after the end was read has a sequence ahead of the end, and does not
  count as foreign.
- *Producer ID expired.* A leader removes an ID some time after its last record, so a missing ID
  does not show that other clients have written. The log end counts only if no other client may
  write.
- *Promotion between two reads.* New owners write after their promotion is in the state topic. If
  their records are below an end, the state topic, which is read after that end, has the promotion.
  A promotion that takes effect later makes the result more cautious than necessary.
- *An earlier ID is remembered, the newest is not.* A mark of the map after the remembered sequence
  shows this case, and the ID then counts as expired. Without such a mark the result is too low:
  groups read records again, and a switchover waits. A failback needs more, so it reads the next
  batch.
- *Truncated target.* The remaining records of an own topic are a prefix of the copy, so the end is
  exact: less is copied. The leader loses its newest sequences together with the records. In a
  shared topic the mark is beyond the end, and any client may have written below the mark since.
- *Truncated source.* The source ends before `Copied.upstream`, which is still correct for the
  target. Callers compare both.
- *Re-created topic.* The new topic has another ID. Rows of the map name the IDs of both topics.
  Logs are queried by name, so callers read the IDs first, and check them again before a write
  (`control.duties.rounds.with_same_topics`).
- *Compaction.* An own topic is counted in offsets, which compaction does not change. If compaction
  removed batches at the border to foreign batches, `by_headers` refuses, because the removed ones
  may have been the flow's.
- *The process dies after a read.* Nothing was written, so nothing is left behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from twinlog.cluster.logs.producers import Producers
from twinlog.errors import PartitionError, TwinlogError
from twinlog.mirror.copy.fan_out import next_upstream
from twinlog.mirror.map.foreign_records import BorderUnknown, copy_border
from twinlog.mirror.map.offset_map import (
    Mark,
    PartitionKey,
    PartitionMap,
    map_home,
    map_homes,
)
from twinlog.mirror.map.runs import DOWNSTREAM, following, k_at, run_at
from twinlog.mirror.map.translation import (
    Reach,
    Translation,
    downstream_within,
    reach_of,
    upstream_within,
)
from twinlog.mirror.plan import PartitionPair
from twinlog.model import NO_TOPIC_ID, SEQUENCE_MODULUS, TopicId, TopicPartition, sequence_of
from twinlog.survey.ends import LogState
from twinlog.wire.record_batch import BatchHeader


class Certainty(StrEnum):
    """How certainly the end of a copy is known. EXACT: the copy ends at the offset in `Copied`.
    AT_LEAST: it ends at this offset or later. UNKNOWN: the end is not known.
    """

    EXACT = "exact"
    AT_LEAST = "at_least"
    UNKNOWN = "unknown"


class Witness(StrEnum):
    """The evidence that shows how far a partition is copied."""

    LANE = "lane"
    """The last report of the lane that copies the partition."""
    PRODUCER = "producer"
    """The last sequence that the leader remembers for this flow's producer ID."""
    LOG_END = "log_end"
    """The end of a log to which only this flow writes."""
    HEADERS = "headers"
    """Producer IDs in batch headers."""
    MARK = "mark"
    """The newest `Mark` in the partition's offset map: a target offset that the copy reached."""


NO_EPOCHS: Final[Mapping[int, int]] = MappingProxyType({})


class Maps(dict[PartitionKey, PartitionMap]):
    """The maps of all partitions at one moment. When the map topic is read again, this object does
    not change.
    """

    def __init__(
        self,
        maps: Mapping[PartitionKey, PartitionMap],
        unread: Mapping[int, TwinlogError],
        partitions: int,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """`epochs`: the leader epoch under which each partition of the map topic was read."""
        super().__init__(maps)
        self._unread, self._epochs = unread, epochs
        self.partitions = partitions
        """Partition count of the map topic."""

    def has_rows_of(self, source: TopicPartition, epoch: int | None) -> bool:
        """Return True if all acknowledged rows of a partition are included.

        A new leader may lack the newest rows until the lane that wrote them writes them again.
        `epoch`: the leader epoch under which the lane reports that its rows exist, or None if no
        lane has the partition.
        """
        read = self._epochs.get(map_home(source, self.partitions), -1)
        return epoch is None or read <= epoch

    def problem(self, source: TopicPartition) -> PartitionError | None:
        """Return why the map of a source partition is unknown now, or None if it is known."""
        for home in map_homes(source, self.partitions) if self._unread else ():
            error = self._unread.get(home)
            if error is not None:
                return PartitionError(
                    f"{source}: its offset map cannot be read: {error.message}",
                    code="MAP_MISSING" if error.code == "MAP_MISSING" else "MAP_UNREADABLE",
                    fate=error.fate,
                )
        return None

    def keys_to(self, topic_id: TopicId, partition: int) -> Sequence[PartitionKey]:
        """Return the keys of all maps into one partition of the target."""
        return self._by_target.get((topic_id, partition), ())

    @cached_property
    def _by_target(self) -> Mapping[tuple[TopicId, int], Sequence[PartitionKey]]:
        out = defaultdict[tuple[TopicId, int], list[PartitionKey]](list)
        for key in self:
            out[key.target_topic_id, key.partition].append(key)
        return out

    def require_all(self) -> None:
        """Raise the error of the first partition of the map topic that could not be read."""
        for error in self._unread.values():
            raise error

    def newest_generation(self) -> int:
        """Return the newest generation in the map, or -1 if the flow has never copied anything."""
        return max((partition_map.term.generation for partition_map in self.values()), default=-1)


class Copied(Struct, frozen=True, gc=False):
    """How far a partition is copied. Offsets are None if unknown, or if nothing is copied."""

    certainty: Certainty
    witness: Witness | None = None
    ordinal: int | None = None
    """Number of records that the flow has written to the partition."""
    upstream: int | None = None
    """Every source record below this offset is on the target."""
    downstream: int | None = None
    """Target offset after the last copied record."""
    resumes_at: int | None = None
    """Source offset of the next record, as announced by the map. It is greater than `upstream` if
    the records from `upstream` on are skipped, or if the source has deleted them.
    """
    foreign: int = 0
    """Number of target offsets after the copy, written by other clients."""

    @property
    def reach(self) -> Reach | None:
        """Return `upstream` and `downstream`, or None if either is None."""
        if self.upstream is None or self.downstream is None:
            return None
        return Reach(self.upstream, self.downstream)


NOT_READ: Final = LogState()
NOTHING: Final = Copied(Certainty.EXACT)
UNKNOWN: Final = Copied(Certainty.UNKNOWN)
SOURCE_RECREATED: Final = (
    "the source topic was re-created since it was copied: the copy holds records of the earlier "
    "topic"
)
TARGET_TRUNCATED: Final = (
    "the target's log ends before the last record that was copied: the target lost records"
)


class Replica(Struct, frozen=True):
    """The state of one partition's copy. Only `replica` and `by_headers` create instances."""

    pair: PartitionPair
    source: LogState
    target: LogState
    copied: Copied
    key: PartitionKey | None = None
    """Key of the partition's rows in the map, or None if there are no rows, or none readable."""
    map: PartitionMap | None = None
    """The offset map of the partition; None if it has no rows, or if the topic is keyed."""
    problem: TwinlogError | None = None
    """The error because of which `copied` is unknown, or None."""

    @property
    def log(self) -> tuple[int, int]:
        """Return (start, end) of the target log, without other clients' records after the copy."""
        start = self.target.start or 0
        return start, max(start, (self.target.end or 0) - self.copied.foreign)

    def by_lane(self, upstream: int, downstream: int) -> Replica:
        """Return this state, with a lane's position (source and target offset) if it is later."""
        known = self.copied.reach
        if known is not None and (known.downstream, known.upstream) >= (downstream, upstream):
            return self
        lane = Copied(Certainty.EXACT, Witness.LANE, None, upstream, downstream)
        return replace(self, copied=lane)

    def to_target(self, upstream: int) -> Translation | None:
        """Translate a source offset, or return None if no target offset corresponds."""
        reach = self.copied.reach
        if reach is None:
            return None
        return downstream_within(self.map, reach, self.log, upstream)

    def to_source(self, downstream: int) -> Translation | None:
        """Translate a target offset, or return None if no source offset corresponds."""
        reach = self.copied.reach
        return None if reach is None else upstream_within(self.map, reach, downstream)


class Ownership(NamedTuple):
    """How this flow's records are distinguished from those of other clients."""

    is_shared: bool
    """True if other clients may write to the target topics at any time."""
    producers: Mapping[TopicPartition, Producers] = {}
    """The producer IDs that the leaders remember, and their last sequences."""
    has_new_owners: Callable[[str], bool] = lambda _: False
    """Returns True if other clients may write to the copy of a source topic, because it was
    promoted or released. Called only if a result depends on it, because it reads the state topic.
    """


def replica(
    pair: PartitionPair,
    maps: Maps,
    ownership: Ownership,
    *,
    target: LogState,
    source: LogState = NOT_READ,
    later: LogState = NOT_READ,
    targets: int | None = None,
) -> Replica:
    """Return how far a partition is copied, from what was read in the order of `survey.picture`.

    `later`: the target's log, read again after the map. `targets`: the number of partitions to
    which the flow distributes records by key, 0 if records keep their partitions, or None to use
    the map.
    """
    copied, key, partition_map = UNKNOWN, None, None
    problem = target.problem or later.problem or maps.problem(pair.source)
    if problem is None and target.end is not None:
        partition_map = _newest(pair, maps, targets)
        key = None if partition_map is None else partition_map.key
        if key is None or partition_map is None or not partition_map.runs:
            copied, key, partition_map = UNKNOWN if target.end else NOTHING, None, None
        elif not _is_same(key.source_topic_id, pair.source_topic_id):
            problem = PartitionError(SOURCE_RECREATED, code="SOURCE_RECREATED")
        elif key.branches:
            copied = by_branches(key, maps)
        else:
            copied = _copied(pair, partition_map, ownership, target.end)
            if later.end is not None and max(target.end, later.end) < (copied.downstream or 0):
                copied = UNKNOWN
                problem = PartitionError(TARGET_TRUNCATED, code="TARGET_TRUNCATED")
    is_plain = copied.downstream is not None
    return Replica(pair, source, target, copied, key, partition_map if is_plain else None, problem)


def pair_of_target(
    maps: Maps, target: TopicPartition, topic_id: TopicId, source_ids: Mapping[str, TopicId]
) -> PartitionPair | None:
    """Return the pair of a target partition and of the source partition that it is a copy of.
    Return None if the map has no row of this copy, or if the target topic has no ID and the map
    names several source topics.

    If the map names several source topics, those whose current ID is the ID in the map are
    preferred. Among these, the topic that was copied last is used. `source_ids`: current IDs by
    name, as far as they are known.
    """
    keys = [key for key in maps.keys_to(topic_id, target.partition) if not key.branches]
    pairs = [
        (
            _is_same(key.source_topic_id, source_ids.get(maps[key].topic, NO_TOPIC_ID)),
            maps[key].term,
            maps[key].topic,
        )
        for key in keys
    ]
    if not pairs or (topic_id == NO_TOPIC_ID and len({name for *_, name in pairs}) > 1):
        return None
    *_, topic = max(pairs)
    source = TopicPartition(topic, target.partition)
    return PartitionPair(source, target, source_ids.get(topic, NO_TOPIC_ID), topic_id)


def by_headers(known: Replica, batch_from: Callable[[int, int], BatchHeader | None]) -> Replica:
    """Return the state of the copy, with its exact end: the border between this flow's batches and
    later batches of other clients. Only this flow may have written the log below the border
    (`mirror.map.foreign_records`).

    Raises BorderUnknown, and any error that `batch_from` raises.
    """
    if known.map is None:
        return known
    shifts = {run.downstream - run.ordinal for run in (known.map.runs[0], known.map.runs[-1])}
    if len(shifts) > 1:
        raise BorderUnknown("accepted records of other clients are between the flow's records")
    end = known.target.end or 0
    border = copy_border(known.map, (known.target.start or 0, end), batch_from)
    return replace(known, copied=copied_below(known.map, border, Witness.HEADERS, end - border))


def copied_below(
    partition_map: PartitionMap, end: int, witness: Witness, foreign: int = 0
) -> Copied:
    """Return how far a partition is copied if all target records below `end` are this flow's."""
    runs = partition_map.runs
    at = following(runs, end, DOWNSTREAM)
    run = runs[max(0, at - 1)]
    ordinal = end - (run.downstream - run.ordinal)
    if at < len(runs) or ordinal <= run.ordinal:
        copied = _copied_to(partition_map, Certainty.EXACT, witness, ordinal, end)
        return replace(copied, foreign=foreign)
    upstream = run.upstream_of(ordinal)  # the usual case: no later record is announced
    return Copied(Certainty.EXACT, witness, ordinal, upstream, end, upstream, foreign)


def by_mark(partition_map: PartitionMap) -> Copied:
    """Return how far a partition is copied by the newest `Mark` in its map. The mark is a target
    offset that the copy has reached, so the copy may be some seconds ahead of it.
    """
    first, mark = partition_map.runs[0], partition_map.mark
    if mark is None:
        mark = Mark(first.ordinal, first.downstream)
    certainty = Certainty.EXACT if mark.is_final else Certainty.AT_LEAST
    return _copied_to(partition_map, certainty, Witness.MARK, mark.ordinal, mark.downstream)


def _copied_to(
    partition_map: PartitionMap,
    certainty: Certainty,
    witness: Witness,
    ordinal: int,
    downstream: int,
) -> Copied:
    reach = reach_of(partition_map, ordinal, downstream)
    resumes_at = (run_at(partition_map.runs, ordinal) or partition_map.runs[0]).upstream_of(ordinal)
    return Copied(certainty, witness, ordinal, reach.upstream, reach.downstream, resumes_at)


def foreign_after(partition_map: PartitionMap, end: int, producers: Producers) -> int | None:
    """Return how many records follow this flow's last record in a log that ends at `end`. Return
    None if the leader remembers none of the flow's producer IDs.

    Only this flow may have written the records before those. So a sequence number is the number of
    records that the flow wrote earlier, and the leader remembers the last one of each producer ID.
    """
    # the last ordinal (number of earlier records of the flow) if the flow has written the whole log
    last = end - 1 - k_at(partition_map.runs, end)
    sequences = [
        state.last_sequence for id_, state in producers.items() if id_ in partition_map.producers
    ]
    distances = [sequence_of(last - sequence) for sequence in sequences]
    # records that were copied after the end was queried have a later sequence, and count as 0
    return min((0 if n > SEQUENCE_MODULUS // 2 else n for n in distances), default=None)


def _copied(
    pair: PartitionPair, partition_map: PartitionMap, ownership: Ownership, end: int
) -> Copied:
    if ownership.is_shared:
        return by_mark(partition_map)
    producers = ownership.producers.get(pair.target)
    foreign = foreign_after(partition_map, end, producers) if producers else None
    marked = -1 if partition_map.mark is None else partition_map.mark.downstream
    if foreign is not None and not end - foreign < marked <= end:
        return copied_below(partition_map, end - foreign, Witness.PRODUCER, foreign)
    if not ownership.has_new_owners(pair.source.topic):
        return copied_below(partition_map, end, Witness.LOG_END)
    copied = by_mark(partition_map)
    return replace(copied, foreign=max(0, end - (copied.downstream or 0)))


def by_branches(key: PartitionKey, maps: Mapping[PartitionKey, PartitionMap]) -> Copied:
    """Return how far a source partition is copied whose records go to several target partitions by
    key. Each target partition has a `Mark` of its own. If one of them has no rows, nothing counts
    as copied.
    """
    records, upstreams = 0, []
    for number in range(key.branches):
        partition_map = maps.get(key._replace(branch=number))
        if partition_map is None or not partition_map.runs:
            return NOTHING
        begin = partition_map.runs[0]
        ordinal = begin.ordinal if partition_map.mark is None else partition_map.mark.ordinal
        upstream = next_upstream(partition_map.runs, ordinal)
        records += ordinal
        upstreams.append(begin.upstream if upstream is None else upstream)
    first = min(upstreams)
    return Copied(Certainty.AT_LEAST, Witness.MARK, records, first, resumes_at=first)


def _newest(pair: PartitionPair, maps: Maps, targets: int | None) -> PartitionMap | None:
    """Return the map of the pair. If there is none, return the newest map of another source topic
    into the pair's target partition, or None if there is none either.
    """
    if targets == 0 and (partition_map := maps.get(pair.map_key)) is not None:
        # the usual case, which must be fast, because a status needs it for each partition
        return partition_map
    keys = maps.keys_to(pair.target_topic_id, pair.source.partition)
    if pair.target_topic_id == NO_TOPIC_ID:  # `keys_to` returns the maps into all such topics
        keys = [key for key in keys if maps[key].topic == pair.source.topic]
    if targets is None:
        keys = [key for key in keys if key.branches] or keys
    else:
        keys = [key for key in keys if key.branches == targets]
    now = pair.source_topic_id
    candidates = [maps[key] for key in keys]
    return max(
        candidates,
        key=lambda candidate: (_is_same(candidate.key.source_topic_id, now), candidate.term),
        default=None,
    )


def _is_same(copied: TopicId, now: TopicId) -> bool:
    """Return True unless two known topic IDs differ, which shows a re-created topic."""
    return NO_TOPIC_ID in (copied, now) or copied == now
