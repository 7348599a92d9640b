"""Where the copy of each partition ended, exactly, long after new owners have written behind it.

Three witnesses, the surest first. None is taken for more than it says: where they leave a choice,
the end is not known, and the caller is told why.

1. What B's leader remembers of our producer id: its last sequence is the last ordinal. Leaders
   forget it, by the time of our last *record*: old records may be forgotten at once.
2. B's own log. In a topic that was ours alone our batches come first and those of others behind
   them, so the border is bisected by the producer ids of batches. Where the cleaner has left a hole
   at that border, records of ours may have lain in it: not known.
3. Under the identity policy others may lie between ours. The map's mark says how far the copy
   surely was, some seconds before its end; from there every batch is looked at.

It only reads; whatever moves in between makes the answer older, never wrong, since nothing of the
copy is appended any more (`control.cutover.promotion`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.cluster.logs.raw_log import fetch_records
from twinlog.cluster.topics import admin
from twinlog.control.cutover.scope import Scope
from twinlog.errors import FlowError, TwinlogError, Unsupported
from twinlog.lane.watches.compaction import may_lack_offsets
from twinlog.mirror.map.offset_map import Mark, PartitionKey, PartitionMap, run_at
from twinlog.mirror.map.translation import Reach
from twinlog.mirror.names.naming import offset_map_topic
from twinlog.model import TopicId, TopicPartition, sequence_of, sequences_ahead
from twinlog.survey.map_reader import Maps, read_maps
from twinlog.wire.record_batch import BatchHeader, read_headers

READ_BYTES = 1 << 20
ONE_BATCH = 1
"""A broker answers with the whole first batch, however long it is."""

Producers = Mapping[int, admin.ProducerState]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """Of one partition."""

    key: PartitionKey
    known: PartitionMap
    ordinal: int
    """How many records the copy wrote in all."""
    reach: Reach
    """Behind the last of them, on both sides."""
    behind: int = 0
    """Offsets of B's log behind that."""


class CopyEnds:
    """Asked for the partitions of one flow; for one thread."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._client = scope.target
        self._metadata = scope.target.metadata(None)
        self._has_map = True
        self._maps = self._read_maps()
        self._writers: dict[TopicPartition, Producers] = {}
        self._cleaned: set[str] = set()

    def prepare(self, targets: Collection[TopicPartition]) -> None:
        """Ask once for all what the leaders remember, and which topics are cleaned."""
        wanted = [tp for tp in targets if self.topic_id(tp) is not None]
        if not wanted:
            return
        try:
            found = admin.describe_producers(self._client, wanted)
        except Unsupported:
            found = {}
        self._writers = {tp: one for tp, one in found.items() if not isinstance(one, TwinlogError)}
        self._cleaned = may_lack_offsets(self._client, {tp.topic for tp in wanted})

    def topic_id(self, target: TopicPartition) -> TopicId | None:
        """Of the remote topic; None where it has no such partition."""
        topic = self._metadata.topics.get(target.topic)
        is_there = topic is not None and not topic.error and self._metadata.partition(target)
        return topic.topic_id if is_there and topic is not None else None

    def find(self, source: TopicPartition, target: TopicPartition) -> CopyEnd | None:
        """None: nothing of it was ever copied. Raises FlowError where the end is not known."""
        topic_id = self.topic_id(target)
        if topic_id is None:
            return None
        unread = self._maps.problem(source)
        if unread is not None:
            raise unread
        keys = [
            key
            for key in self._maps
            if (key.target_topic_id, key.partition) == (topic_id, target.partition)
        ]
        if any(key.branches for key in keys):
            raise self._unknown(target, "its records are placed by key, so no offset corresponds")
        newest = max(keys, key=lambda key: self._maps[key].term, default=None)
        known = None if newest is None else self._maps[newest]
        log = self.bounds(target)
        if newest is None or known is None or not known.runs:
            self._require_never_copied(target, topic_id, log)
            return None
        shifts = {one.downstream - one.ordinal for one in (known.runs[0], known.runs[-1])}
        if self._scope.setup.is_identity or len(shifts) > 1:  # accepted records are in between
            ordinal, downstream = self._in_shared(target, known, log)
        else:
            ordinal, downstream = self._in_ours(target, known, log)
        return CopyEnd(
            key=newest,
            known=known,
            ordinal=ordinal,
            reach=_reach(known, ordinal, downstream),
            behind=max(0, log[1] - downstream),
        )

    def _require_never_copied(
        self, target: TopicPartition, topic_id: TopicId, log: tuple[int, int]
    ) -> None:
        """Rows may be missing since their topic was deleted: then all of the source would be taken
        for what never arrived, and be appended once more.
        """
        if not log[1]:
            return
        history = self._scope.history()
        if history is None:
            return
        oldest = self._batch_from(target, *log)
        is_ours = oldest is not None and oldest.producer_id in self._scope.producers()
        if is_ours or not self._has_map or topic_id in self._scope.mapped().lost:
            raise self._unknown(
                target,
                "the offset map has no row of it, as if its topic had been deleted; where nobody "
                "else has written there yet, twinlog offsets rebuild rebuilds the rows",
            )

    # -- a topic that was ours alone

    def _in_ours(
        self, target: TopicPartition, known: PartitionMap, log: tuple[int, int]
    ) -> tuple[int, int]:
        first = known.runs[0]
        k = first.downstream - first.ordinal
        remembered = [
            log[1] - others
            for id_, one in self._writers.get(target, {}).items()
            if id_ in known.producers
            if (others := sequences_ahead(sequence_of(log[1] - 1 - k), one.last_sequence)) >= 0
        ]
        if remembered:
            end = max(remembered)
            following = self._batch_from(target, end, log[1])
            if following is None or following.producer_id not in known.producers:
                return end - k, end
            # of several ids of ours an earlier one is remembered, and the last one is not
        low, high = max(log[0], first.downstream), log[1]
        if log[0] > first.downstream:
            one = self._batch_from(target, low, high)
            if one is None or one.producer_id not in known.producers:
                raise self._unknown(
                    target, f"retention has deleted where it was: its log begins at {log[0]}"
                )
        foreign = high
        while low < foreign:
            middle = (low + foreign) // 2
            one = self._batch_from(target, middle, foreign)
            if one is None:
                foreign = middle  # cleaned up to what is known of others
            elif one.magic >= 2 and one.producer_id in known.producers:
                low = one.next_offset
            else:
                foreign = min(foreign, max(middle, low))
        behind = self._batch_from(target, low, log[1])
        if behind is not None and behind.base_offset > low:
            raise self._unknown(
                target, f"the cleaner has left a hole there, [{low}, {behind.base_offset})"
            )
        if behind is None and log[1] > low:
            raise self._unknown(target, f"the cleaner has left a hole there, [{low}, {log[1]})")
        return low - k, low

    # -- a topic that others may have written to before

    def _in_shared(
        self, target: TopicPartition, known: PartitionMap, log: tuple[int, int]
    ) -> tuple[int, int]:
        first = known.runs[0]
        mark = known.mark or Mark(first.ordinal, first.downstream)
        ordinal, downstream = mark.ordinal, mark.downstream
        ahead = [
            sequences_ahead(one.last_sequence + 1, sequence_of(mark.ordinal))
            for id_, one in self._writers.get(target, {}).items()
            if id_ in known.producers
        ]
        last = mark.ordinal + max(ahead) if ahead and max(ahead) >= 0 else None
        if last is None and target.topic in self._cleaned:
            raise self._unknown(
                target, "the topic is compacted, and its brokers have forgotten our producer id"
            )
        if log[1] < mark.downstream and last is None:
            raise self._unknown(
                target, f"its log ends at {log[1]}, and it was copied up to {mark.downstream}"
            )
        if log[0] > mark.downstream and last is None:
            raise self._unknown(
                target, f"retention has deleted where it was: its log begins at {log[0]}"
            )
        at = max(mark.downstream, log[0])
        while at < log[1] and (last is None or ordinal < last):
            headers = self._batches(target, at, READ_BYTES)
            if not headers:
                break
            for header in headers:
                at = max(at, header.next_offset)
                if header.magic < 2 or header.producer_id not in known.producers:
                    continue
                ours = sequences_ahead(header.base_sequence, sequence_of(ordinal))
                if ours >= 0:
                    ordinal += ours + header.last_offset_delta + 1
                    downstream = header.next_offset
        return (ordinal if last is None else max(last, ordinal)), downstream

    # -- reading

    def _batch_from(self, tp: TopicPartition, offset: int, end: int) -> BatchHeader | None:
        """The batch that holds an offset, or the next one that begins before `end`."""
        if offset >= end:
            return None
        found = next(iter(self._batches(tp, offset, ONE_BATCH)), None)
        return None if found is None or found.base_offset >= end else found

    def _batches(self, tp: TopicPartition, offset: int, size: int) -> list[BatchHeader]:
        answer = fetch_records(self._client, {tp: (offset, size)})[tp]
        if isinstance(answer, TwinlogError):
            raise answer
        return [one for one, _ in read_headers(answer.records) if one.next_offset > offset]

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """Where the log of a partition of B begins and ends."""
        found = [
            admin.list_offsets(self._client, [tp], which)[tp]
            for which in (admin.EARLIEST, admin.LATEST)
        ]
        for one in found:
            if isinstance(one, TwinlogError):
                raise one
        start, end = (one.offset for one in found if not isinstance(one, TwinlogError))
        return start, end

    def _read_maps(self) -> Maps:
        topic = offset_map_topic(self._scope.config.source_alias)
        found = self._metadata.topics.get(topic)
        self._has_map = found is not None and not found.error
        return read_maps(self._client, self._scope.config.source_alias, self._metadata)

    def _unknown(self, target: TopicPartition, why: str) -> FlowError:
        return FlowError(
            f"where the copy to {target} ended is not known: {why}; leave "
            f"its topic out with --topics, save both sides with twinlog export, and compare them",
            flow=self._scope.name,
            code="TAIL_UNKNOWN",
        )


def _reach(known: PartitionMap, ordinal: int, downstream: int) -> Reach:
    first = known.runs[0]
    last = run_at(known.runs, ordinal - 1) if ordinal > first.ordinal else None
    if last is None:
        return Reach(first.upstream, max(downstream, first.downstream))
    return Reach(last.upstream_of(ordinal - 1) + 1, downstream)
