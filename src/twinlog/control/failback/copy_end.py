"""Finds the exact end of each partition's copy, even if other clients have long written after it.

A is the old source, B the target. There are three kinds of evidence, the most certain first. If the
evidence does not determine a single end, the end is unknown, and the error has the reason.

1. The state of this flow's producer ID at B's leader: its last sequence is the ordinal of the last
   record, that is, the number of the flow's records before it (modulo 2^31). Leaders expire the
   state by the timestamp of the ID's last *record*. If that is old, they expire the state
   immediately.
2. B's log. If only this flow wrote to the topic, its batches come first, and batches of other
   producers follow. So the border is found by bisection on the batches' producer IDs. If compaction
   has removed batches at the border, the end is unknown, because they may have been the flow's.
3. Under the identity policy, records of other clients may be between the flow's records. The end is
   searched as at a start of the flow (`mirror.start.our_end`). The search begins at the map's mark,
   a point that the copy has certainly reached. If this search fails, the end is unknown.

The search only reads. If a log changes during the search, the result is outdated but not wrong,
because the copy appends nothing any more (`control.cutover.promotion`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import FetchedRecords, FetchFrom, batch_from, fetch_records
from twinlog.cluster.topics.configs import may_lack_offsets
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import Fate, FlowError, PartitionError, TwinlogError
from twinlog.lane.sides.log_view import ClusterLogView
from twinlog.mirror.map.foreign_records import BorderUnknown
from twinlog.mirror.map.offset_map import Mark, PartitionKey, PartitionMap
from twinlog.mirror.map.translation import Reach, reach_of
from twinlog.mirror.names.naming import map_topic_of
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.ports import ProducerTail, answer_of
from twinlog.mirror.start.our_end import find_end
from twinlog.mirror.start.request import StartRequest, runs_for_start
from twinlog.mirror.state.copies import mapped_copies
from twinlog.mirror.state.intents import IntentKind
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition, sequence_of, sequences_ahead
from twinlog.survey.ends import NO_ENDS, Want
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Replica, Witness, by_headers
from twinlog.wire.record_batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """Where the copy of one partition ended."""

    key: PartitionKey
    partition_map: PartitionMap
    ordinal: int
    """Number of records that the copy wrote in total."""
    reach: Reach
    """The source offset and the target offset after the last copied record."""
    foreign_offsets: int = 0
    """Number of offsets in B's log after the end of the copy."""


class SearchView(ClusterLogView):
    """A view of the target's logs that reads them through the `LogReads` of one search."""

    def __init__(self, logs: LogReads) -> None:
        super().__init__(logs.client)
        self._reads = logs

    def _fetch(
        self, positions: Mapping[TopicPartition, FetchFrom]
    ) -> Mapping[TopicPartition, FetchedRecords | TwinlogError]:
        return {tp: self._reads.read(tp, *fetch) for tp, fetch in positions.items()}


class CopyEnds:
    """Finds where the copies of one flow end. Not thread-safe.

    The constructor queries all partitions together: log ends, producer states, map, state topic,
    and which topics may lack offsets because they are compacted. `find` reads the few batches that
    one partition needs.
    """

    def __init__(self, scope: CutoverScope, targets: Collection[TopicPartition]) -> None:
        self._scope = scope
        self._client = scope.target
        self.metadata = scope.target.metadata(None)
        self._rows = rows = scope.rows()
        self._was_led = rows.history(scope.name) is not None
        self._mapped = mapped_copies(scope.name, rows.of(scope.name))
        self._replayed = rows.intents(scope.name).topics(IntentKind.REPLAY)
        self.copies = [row for row in rows.copies.values() if row.flow == scope.name]
        tps = [tp for tp in targets if self.topic_id(tp) is not None]
        self._picture = read_flow(
            self._client,
            tps,
            Want.STARTS | Want.PRODUCERS,
            after=NO_ENDS,
            is_shared=scope.setup.is_identity,
            new_owners=lambda: lambda _: True,
            maps=scope.config.flow,
            metadata=self.metadata,
        )
        self._cleaned = may_lack_offsets(self._client, {tp.topic for tp in tps})
        self._view = ClusterLogView(scope.target)
        self._logs = self._view.ends({*tps}) if scope.setup.is_identity else {}
        self._reads = LogReads(scope.target)
        """Reader of the target's logs for the current search."""

    def topic_id(self, target: TopicPartition) -> TopicId | None:
        """Return the remote topic's ID, or None if it has no such partition."""
        topic = self.metadata.topics.get(target.topic)
        is_there = topic is not None and not topic.error and self.metadata.partition(target)
        return topic.topic_id if is_there and topic is not None else None

    def find(
        self, source: TopicPartition, target: TopicPartition, sides: SearchReads
    ) -> CopyEnd | None:
        """Return the copy's end, or None if nothing was copied. Raises FlowError if unknown."""
        self._reads = sides.target
        topic_id = self.topic_id(target)
        if topic_id is None:
            return None
        # without the source topic's ID, because the source may be lost
        pair = PartitionPair(source, target, NO_TOPIC_ID, topic_id)
        replica = self._picture.replica(pair)
        if replica.problem is not None and replica.problem.code == "MAP_MISSING":
            raise self._unknown_end_error(target, replica.problem.message)
        if replica.problem is not None:
            raise replica.problem
        if replica.key is None:
            self._require_never_copied(source, target, topic_id, self.bounds(target))
            return None
        partition_map = self._picture.maps[replica.key]
        if replica.key.branches:
            raise self._unknown_end_error(
                target, "its records are partitioned by key, so offsets cannot be translated"
            )
        shifts = {
            run.downstream - run.ordinal for run in (partition_map.runs[0], partition_map.runs[-1])
        }
        # if the target offset minus the ordinal (number of earlier copied records) is not constant,
        # accepted records of other clients are among the flow's records
        if self._scope.setup.is_identity or len(shifts) > 1:
            ordinal, downstream = self._in_shared(replica.key, target)
        else:
            ordinal, downstream = self._in_unshared_topic(replica)
        return CopyEnd(
            key=replica.key,
            partition_map=partition_map,
            ordinal=ordinal,
            reach=reach_of(partition_map, ordinal, downstream),
            foreign_offsets=max(0, self.bounds(target)[1] - downstream),
        )

    def _require_never_copied(
        self,
        source: TopicPartition,
        target: TopicPartition,
        topic_id: TopicId,
        log: tuple[int, int],
    ) -> None:
        """Raise FlowError if the partition may have been copied although the map has no row of it.

        Without this check, records would be appended wrongly in two cases. If the map's topic was
        deleted, all records of the source would seem not copied, and would be appended twice. If
        the flow rejected the remote topic because it belongs to another client, the records would
        be appended to that client's records.
        """
        if not (log[1] and self._was_led):
            return
        oldest, ours = self._batch_from(target, *log), self._rows.producers
        is_ours = oldest is not None and oldest.producer_id in ours
        is_ours |= not ours.isdisjoint(self._picture.ownership.producers.get(target, {}))
        had_row = self._mapped.was_copied_to(topic_id, target.partition)
        has_map = self.metadata.topics.get(map_topic_of(self._scope.config.flow))
        if is_ours or had_row or has_map is None or has_map.error:
            raise self._unknown_end_error(
                target,
                "the offset map has no row of this partition, as if the map's topic had been "
                f"deleted. If no other client has written to {target} yet, rebuild the rows with "
                "twinlog offsets rebuild",
            )
        # True if the flow wrote to the topic: it copied there or, after a promotion, replayed the
        # tail. A flow of an earlier release has no rows of copies, so it counts as well.
        begun = [row for row in self.copies if row.begun and row.is_of(target.topic, topic_id)]
        is_led_into = source.topic in self._replayed or begun or not self.copies
        if not (self._scope.setup.is_identity or is_led_into):
            raise self._unknown_end_error(
                target,
                "the partition has records, but this flow never began to copy to it, so it belongs "
                "to another client",
            )

    # -- topics that only this flow wrote to

    def _in_unshared_topic(self, replica: Replica) -> tuple[int, int]:
        """Return (ordinal, downstream): how many records the copy wrote, and the target offset at
        which it ended. Only this flow wrote to the topic before the promotion.
        """
        target, known, log_end = replica.pair.target, replica.map, replica.target.end or 0
        end = log_end - replica.copied.foreign
        if replica.copied.witness is Witness.PRODUCER and known is not None:
            following = self._batch_from(target, end, log_end)
            if following is None or following.producer_id not in known.producers:
                return replica.copied.ordinal or 0, end
            # search B's log: the leader remembers an earlier ID of this flow, but not its last one
        try:
            copied = by_headers(replica, partial(self._batch_from, target)).copied
        except BorderUnknown as unknown:
            raise self._unknown_end_error(target, str(unknown)) from unknown
        return copied.ordinal or 0, log_end - copied.foreign

    # -- topics that other clients may have written to before

    def _in_shared(self, key: PartitionKey, target: TopicPartition) -> tuple[int, int]:
        partition_map = self._picture.maps[key]
        mark = partition_map.mark or Mark(
            partition_map.runs[0].ordinal, max(0, partition_map.runs[0].downstream)
        )
        tail = self._producer_tail(target, partition_map, mark)
        is_cleaned = target.topic in self._cleaned
        if tail is None and is_cleaned and not mark.is_final:
            raise self._unknown_end_error(
                target,
                "the topic is compacted, and its brokers have expired the flow's producer ID",
            )
        runs, runs_from = runs_for_start(partition_map, 1)
        request = StartRequest(
            source=TopicPartition(partition_map.topic, key.partition),
            target=target,
            source_topic_id=key.source_topic_id,
            target_topic_id=key.target_topic_id,
            runs=runs,
            runs_from=runs_from,
            mark=mark,
            our_producers=frozenset(partition_map.producers),
            may_lose_batches=is_cleaned,
        )
        logs = self._logs or self._view.ends({target})
        log_end = answer_of(logs, target, self._view)
        view, ours = SearchView(self._reads), self._rows.producers
        try:
            # the source may be lost, so no records are compared
            end = find_end(request, log_end, tail, view, ours, lambda *_: False)
        except PartitionError as error:
            if error.fate is Fate.RETRIABLE:
                raise
            raise self._unknown_end_error(target, error.message) from error
        if end.downstream >= 0:
            return end.ordinal, end.downstream
        return end.ordinal, max(mark.downstream, log_end.log_start)

    def _producer_tail(
        self, target: TopicPartition, partition_map: PartitionMap, mark: Mark
    ) -> ProducerTail | None:
        """Return the leader's state of the flow's producer ID that wrote last, or None if the
        leader has expired that state.
        """
        tails = [
            (
                ahead,
                ProducerTail(
                    last_sequence=state.last_sequence, last_timestamp=state.last_timestamp
                ),
            )
            for id_, state in self._picture.ownership.producers.get(target, {}).items()
            if id_ in partition_map.producers
            if (ahead := sequences_ahead(state.last_sequence + 1, sequence_of(mark.ordinal))) >= 0
        ]
        return max(tails, key=lambda pair: pair[0], default=(0, None))[1]

    # -- reading

    def _batch_from(self, tp: TopicPartition, offset: int, end: int) -> BatchHeader | None:
        return batch_from(self._reads.read, tp, offset, end)

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the start and the end of a log of B. They were read by the constructor."""
        log_state = self._picture.target[tp]
        if log_state.problem is not None:
            raise log_state.problem
        return log_state.start or 0, log_state.end or 0

    def _unknown_end_error(self, target: TopicPartition, why: str) -> FlowError:
        return self._scope.error(
            f"the end of the copy to {target} is unknown: {why}. To fail back without this topic, "
            "exclude it with --topics, save both sides with twinlog export, and compare them",
            code="TAIL_UNKNOWN",
        )


def copy_ends(
    scope: CutoverScope, targets: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, CopyEnd | TwinlogError | None]:
    """Return, for each source partition, where its copy in the target partition ends now. The value
    is None if nothing was copied, or an error if the end is unknown.
    """
    ends = CopyEnds(scope, targets.values())
    searches = {source: partial(ends.find, source, target) for source, target in targets.items()}
    return search_in_parallel(searches, scope.source, scope.target)


K = TypeVar("K")
T = TypeVar("T")

MOST_BYTES: Final = 32 << 20
"""Maximum bytes requested in one round of reads. Other searches wait for the next round."""


class LogReads:
    """Reads batches of one cluster, with one request for each read."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client

    def read(
        self, tp: TopicPartition, offset: int, most_bytes: int
    ) -> FetchedRecords | TwinlogError:
        """Return batches of about `most_bytes` from `offset` on, or the error of the read."""
        return fetch_records(self.client, {tp: (offset, most_bytes)})[tp]


class UnreadBatch(Exception):
    """Raised if a search needs a batch that has not been read yet."""

    def __init__(self, round_reads: RoundReads, tp: TopicPartition, position: FetchFrom) -> None:
        super().__init__(tp, position)
        self.reads, self.tp, self.wanted = round_reads, tp, position


class RoundReads(LogReads):
    """Reads from the batches of one cluster that were fetched in earlier rounds for one search. A
    read of any other batch raises UnreadBatch.
    """

    def __init__(self, client: ClusterClient) -> None:
        super().__init__(client)
        self.found: dict[tuple[TopicPartition, FetchFrom], FetchedRecords | TwinlogError] = {}

    def read(
        self, tp: TopicPartition, offset: int, most_bytes: int
    ) -> FetchedRecords | TwinlogError:
        wanted = offset, most_bytes
        if (tp, wanted) not in self.found:
            raise UnreadBatch(self, tp, wanted)
        return self.found[tp, wanted]


class SearchReads(NamedTuple):
    """Access to the logs of both clusters for one search."""

    source: LogReads
    target: LogReads


def search_in_parallel(
    searches: Mapping[K, Callable[[SearchReads], T]], source: ClusterClient, target: ClusterClient
) -> dict[K, T | TwinlogError]:
    """Search the logs of many partitions in parallel, with one request per broker and round for all
    of them. Return the result of each search, or the TwinlogError that it raised.

    A search reads a batch of its partition, and the next offset that it reads depends on that
    batch. Searching the partitions one after another would take a round trip per batch. So all
    searches run in rounds:

        run each search with the batches that were read for it so far
        -> it ends, or it needs a batch that was not read yet (`UnreadBatch`)
        -> one Fetch per broker for all of these batches
        -> the next round runs the searches that did not end again, from their beginning

    So a search must have no side effects, and must depend only on its reads. Two searches must not
    read the same partition.
    """
    sides = {key: SearchReads(RoundReads(source), RoundReads(target)) for key in searches}
    out: dict[K, T | TwinlogError] = {}
    while len(out) < len(searches):
        missing: list[UnreadBatch] = []
        for key, search in searches.items():
            if key in out:
                continue
            if sum(unread.wanted[1] for unread in missing) >= MOST_BYTES:
                break
            try:
                out[key] = search(sides[key])
            except UnreadBatch as unread:
                missing.append(unread)
                continue
            except TwinlogError as error:
                out[key] = error
            del sides[key]  # free the batches of this search
        _read(missing)
    return out


def _read(missing: list[UnreadBatch]) -> None:
    for client in {id(unread.reads.client): unread.reads.client for unread in missing}.values():
        of_client = [unread for unread in missing if unread.reads.client is client]
        answers = fetch_records(client, {unread.tp: unread.wanted for unread in of_client})
        for unread in of_client:
            unread.reads.found[unread.tp, unread.wanted] = answers[unread.tp]
