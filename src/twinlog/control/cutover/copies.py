"""Finds where each partition's copy ends, by the target's logs and the offset map. If the source
responds, the records that are not copied yet are also found.

Rows on the target record which topics were copied. So a partition that was copied is always
returned. The source may not list it, may list it with another topic ID, or may no longer have the
records.

`survey.picture` reads the source's ends before those of the target, and the map last. So a complete
copy has every record below the source's ends at the time they were read. `survey.replica` finds
where each copy ends. A switchover needs the exact end. If only a lower bound is known because the
topic was promoted, the end counts as unknown, and no offset of the partition is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from twinlog.client.export import first_records
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.scope import CutoverScope
from twinlog.mirror.findings import Span
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.filters import policy_of
from twinlog.mirror.names.renaming import plain_upstream
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, Isolation, TopicId, TopicPartition
from twinlog.survey.discovery import hidden_topics, require_gone
from twinlog.survey.ends import Want, read_ends
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Certainty, Replica
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

# How the source's name of a remote topic is found, by the rows of copies on the target.
#
# A remote name cannot be mapped back by rule, because several source topics may be renamed to one,
# and the rules may have changed since. So each topic that was copied has a row with the source's
# name (`mirror.state.copies`), by topic ID. The row is stored on the target, so it is available
# even if the source is lost.
#
# The name of a remote topic without a row is mapped back by the policy. The result counts only if
# the flow would give that source topic this remote name today. So a topic `A.eu-orders` that
# another rule created is never mistaken for a copy of `eu-orders`.


@dataclass(frozen=True, slots=True)
class FlowUpstreams:
    """Maps remote topics of one flow to their source topics, by the rows that were read."""

    config: FlowConfig
    rows: dict[str, CopyRow]
    """Rows of copies by remote topic, also of ended copies, because their topics remain copies."""

    @classmethod
    def of(cls, config: FlowConfig, rows: Iterable[CopyRow]) -> FlowUpstreams:
        flow = str(config.flow)
        return cls(config, {row.topic: row for row in rows if row.flow == flow and row.topic})

    def name(self, remote: str, topic_id: TopicId) -> str | None:
        """Return the source's name of a remote topic, or None if the topic is not a copy from the
        source.
        """
        row = self._row(remote, topic_id)
        return plain_upstream(self.config, remote) if row is None else row.source_topic

    def copies(self, target_topics: Mapping[str, TopicMetadata]) -> dict[str, str]:
        """Return the source topic of each existing remote topic. Only one remote topic is returned
        for each source topic.

        A source topic may have had other remote names (another policy, a changed rule, a re-created
        source topic), and copies with those names remain. A copy that was begun is preferred; among
        such copies, the one with the current name. Otherwise groups would resume on a stale copy.
        """
        policy, alias = policy_of(self.config), self.config.source_alias
        best: dict[str, tuple[bool, bool, str]] = {}
        for remote, topic in target_topics.items():
            upstream = self.name(remote, topic.topic_id)
            if upstream is None:
                continue
            row = self._row(remote, topic.topic_id)
            is_begun = row is not None and row.begun
            is_now = remote == policy.format_remote_topic(alias, upstream)
            candidate = is_begun, is_now, remote
            best[upstream] = max(candidate, best.get(upstream, candidate))
        return {remote: upstream for upstream, (_, _, remote) in best.items()}

    def _row(self, remote: str, topic_id: TopicId) -> CopyRow | None:
        row = self.rows.get(remote)
        return row if row is not None and row.is_of(remote, topic_id) else None


NOTHING: Final = "nothing of it was copied"
FORGOTTEN: Final = (
    "the end of the copy is unknown, because the brokers have expired the flow's producer ID; "
    "other clients may have written to the remote topic since its promotion"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The copy of one partition. Unknown offsets and times (ms) are None."""

    FIELDS = (
        "topic=source.topic partition=source.partition target_topic=target.topic "
        "copied_to=upstream source_end missing=left behind_ms newest_ms foreign_records=foreign "
        "deleted problem=any_problem?"
    )

    source: TopicPartition
    target: TopicPartition
    target_topic_id: TopicId = NO_TOPIC_ID
    source_topic_id: TopicId = NO_TOPIC_ID
    """ID of the topic that was copied, by the offset map."""
    replica: Replica | None = None
    """The copy's logs and map, or None if the end of the copy is unknown or nothing was copied."""
    upstream: int | None = None
    """Source offset below which all records are on the target."""
    source_start: int | None = None
    source_end: int | None = None
    newest_ms: int | None = None
    """Timestamp of the newest record on the target."""
    source_newest_ms: int | None = None
    foreign: int = 0
    """Number of target offsets after the copy that other clients have written."""
    problem: str = ""
    """Why the state of the copy is unknown; empty if it is known."""
    unlisted: str = ""
    """Why a source that responds does not list the partition; empty if it lists it."""

    @property
    def is_copied(self) -> bool:
        """Return True if the copy has records on the target, and its end is known."""
        return self.upstream is not None

    @property
    def copied_to(self) -> int:
        """Return the source offset below which all records are copied, as far as is known."""
        return self.upstream or 0

    @property
    def is_translated(self) -> bool:
        """Return True if the partition's source offsets can be translated. Offsets of a topic whose
        records are partitioned by key cannot be translated.
        """
        return self.replica is not None and self.replica.copied.reach is not None

    @property
    def log(self) -> tuple[int, int]:
        """Return the start of the target's log and the end of the copy, both as target offsets."""
        return (0, 0) if self.replica is None else self.replica.log

    @property
    def first_on_target(self) -> int:
        """Return the first source offset whose record is on the target, or 0 if unknown. Earlier
        records were never copied, or the target's log has already deleted them.
        """
        first = None if self.replica is None else self.replica.to_source(self.log[0])
        return 0 if first is None else first.offset

    @property
    def left(self) -> int | None:
        """Return the number of source offsets that are not on the target, or None if unknown. If
        the source's log ends before the end of the copy, the number is unknown, because the source
        may have lost more records than the difference.
        """
        if self.source_end is None or self.source_end < self.copied_to:
            return None
        return self.source_end - self.copied_to

    @property
    def deleted(self) -> Span | None:
        """Return the offsets that the source deleted although the map does not show them as copied,
        or None. The offsets may have had only markers; the mirror's status row shows that
        (`NewestStatus.missing`).
        """
        lost = Span(self.copied_to, self.source_start or 0)
        return None if lost.is_empty else lost

    @property
    def behind_ms(self) -> int | None:
        """Return by how much the source's newest record is newer than the target's, or None if
        unknown.
        """
        if self.left == 0:
            return 0
        if self.newest_ms is None or self.source_newest_ms is None:
            return None
        return max(0, self.source_newest_ms - self.newest_ms)

    def translate(self, offset: int) -> Translation | None:
        """Return the target offset for a source offset, or None if it cannot be translated."""
        return None if self.replica is None else self.replica.to_target(offset)

    @property
    def any_problem(self) -> str:
        return self.problem or self.unlisted


def copies(scope: CutoverScope, covers: Callable[[str], bool] | None = None) -> list[Copy]:
    """Return a `Copy` for every partition of the scope's topics that the source lists or that was
    copied, sorted.

    `covers` selects source topics instead of the scope. Raises BrokerRefused (BROKERS_DIFFER) if
    brokers of one cluster list different topics.
    """
    covers = covers or scope.covers
    rows = (row for row in scope.rows().copies.values() if row.flow == scope.name)
    begun = [row for row in rows if row.is_live and covers(row.source_topic)]
    source_metadata = None if scope.source_problem is not None else scope.source.metadata(None)
    source_topics = {} if source_metadata is None else source_metadata.topics
    listed = {
        tp: topic.topic_id
        for name, topic in source_topics.items()
        if not topic.is_internal and covers(name)
        for tp in topic.tps
    }
    isolation = scope.config.isolation_level
    want = Want.STARTS | Want.TIMES
    ends = read_ends(scope.source, listed, want, isolation=isolation)
    target_metadata = scope.target.metadata(None)
    scope.require_same(source_metadata, target_metadata)
    pairs = dict(_pairs(scope, target_metadata, covers, listed))
    picture = read_flow(
        scope.target,
        [pair.target for pair in pairs.values()],
        want | Want.PRODUCERS,
        after=ends,
        is_shared=scope.setup.is_identity,
        new_owners=lambda: scope.intents().new_owners,
        maps=scope.config.flow,
        metadata=target_metadata,
    )
    replicas = {tp: picture.replica(pair) for tp, pair in pairs.items()}
    # read these target ends again: since the first read, the copy advanced or the log lost its end
    past_end = {
        tp: replica
        for tp, replica in replicas.items()
        if replica.log[1] < (replica.copied.downstream or 0)
    }
    if past_end:
        again = [replica.pair.target for replica in past_end.values()]
        picture = picture._replace(later=read_ends(scope.target, again))
        replicas |= {tp: picture.replica(replica.pair) for tp, replica in past_end.items()}
    for tp in listed.keys() - replicas:
        remote = TopicPartition(scope.remote(tp.topic), tp.partition)
        replicas[tp] = picture.replica(PartitionPair(tp, remote, listed[tp], NO_TOPIC_ID))
    by_partition = {
        tp: _copy(replica, is_shared=scope.setup.is_identity) for tp, replica in replicas.items()
    }
    # remote topics that this user is not permitted to see may still exist. Deleted ones are left
    # out, because clients cannot move to them
    by_topic = {row.topic: row for row in begun}
    for name in hidden_topics(scope.target, target_metadata, by_topic):
        row = by_topic[name]
        tp, target = TopicPartition(row.source_topic, 0), TopicPartition(row.topic, 0)
        if tp not in pairs:
            blank = by_partition.get(tp, Copy(source=tp, target=target))
            right = f"grant DESCRIBE on topic {row.topic}"
            problem = f"this user may not see {row.topic} on {scope.target.alias}: {right}"
            by_partition[tp] = replace(blank, target=target, problem=problem)
    if source_metadata is None:
        return [
            by_partition[tp]
            for tp in sorted(by_partition)
            if by_partition[tp].is_copied or by_partition[tp].problem
        ]
    # read these source ends again: since the first read, the copy advanced or the log lost its end
    short = [tp for tp in ends if by_partition[tp].is_copied and by_partition[tp].left is None]
    for tp, log in read_ends(scope.source, short, isolation=isolation).items():
        by_partition[tp] = replace(by_partition[tp], source_end=log.end)
    topics = {
        row.source_topic for row in begun if row.is_of(row.topic, _id(target_metadata, row.topic))
    }
    topics -= {tp.topic for tp in ends}
    unlisted = [tp for tp in by_partition if tp not in ends]
    unlisted = [tp for tp in unlisted if by_partition[tp].is_copied or tp.topic in topics]
    reasons = _why_unlisted(scope.source, source_metadata, {tp.topic for tp in unlisted})
    for tp in unlisted:
        by_partition[tp] = replace(by_partition[tp], unlisted=reasons[tp.topic])
    return [by_partition[tp] for tp in sorted({*ends, *unlisted})]


def incomplete(
    scope: CutoverScope, current: Iterable[Copy], ends: Mapping[TopicPartition, int] | None = None
) -> list[Copy]:
    """Return the copies that lack a source record below `ends`, by default below their
    `source_end`. Any other copy lacks at most markers, and records that were rolled back or
    compacted away.
    """
    listed = [copy for copy in current if not copy.unlisted]
    known = {copy.source: copy.source_end or 0 for copy in listed} | dict(ends or {})
    spans = {copy.source: Span(copy.copied_to, known[copy.source]) for copy in listed}
    lacking = first_uncopied(scope, spans)
    return [copy for copy in listed if copy.source in lacking]


def first_uncopied(
    scope: CutoverScope, spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """Return the offset of the first record in each range that the flow would copy, or might copy.
    Partitions without such a record are left out.
    """
    with_aborted = scope.config.isolation_level is Isolation.READ_UNCOMMITTED
    return first_records(scope.source, spans, with_aborted=with_aborted)


# -- the source


def _why_unlisted(
    source: ClusterClient, source_metadata: ClusterMetadata, topics: Collection[str]
) -> dict[str, str]:
    """Return, by topic, why the source does not list the topic, or lists only some of its
    partitions. Raises BrokerRefused (BROKERS_DIFFER) if another broker lists a missing topic.
    """
    require_gone(source, source_metadata, topics)
    source_topics = source.metadata(sorted(topics)).topics if topics else {}
    out = dict.fromkeys(topics, "the topic was copied, but it was deleted on the source")
    for name, topic in source_topics.items():
        if topic.error == TOPIC_AUTHORIZATION_FAILED:
            out[name] = (
                "the topic was copied, but the source does not list it. If it was not deleted, "
                f"grant DESCRIBE on topic {name} to this user"
            )
        elif topic.partitions:
            out[name] = f"the source lists {len(topic.partitions)} partitions, but more were copied"
    return out


# -- the target


def _pairs(
    scope: CutoverScope,
    target_metadata: ClusterMetadata,
    covers: Callable[[str], bool],
    listed: Mapping[TopicPartition, TopicId],
) -> Iterator[tuple[TopicPartition, PartitionPair]]:
    """Yield each source partition that has a partition of a remote topic, with the pair of both."""
    upstreams = FlowUpstreams.of(scope.config, scope.rows().copies.values())
    for name, upstream in upstreams.copies(target_metadata.topics).items():
        topic = target_metadata.topics[name]
        if not topic.is_internal and covers(upstream):
            for target in topic.tps:
                tp = TopicPartition(upstream, target.partition)
                source_id = listed.get(tp, NO_TOPIC_ID)
                yield tp, PartitionPair(tp, target, source_id, topic.topic_id)


def _id(metadata: ClusterMetadata, topic: str) -> TopicId:
    return metadata.topics[topic].topic_id if topic in metadata.topics else NO_TOPIC_ID


def _copy(replica: Replica, *, is_shared: bool) -> Copy:
    copied, problem = replica.copied, ""
    if replica.problem is not None:
        problem = str(replica.problem) if replica.key is None else replica.problem.message
    elif copied.upstream is None:
        problem = NOTHING
    elif copied.reach is not None and copied.certainty is Certainty.AT_LEAST and not is_shared:
        problem = FORGOTTEN
    return Copy(
        source=replica.pair.source,
        target=replica.pair.target,
        target_topic_id=replica.pair.target_topic_id,
        source_topic_id=NO_TOPIC_ID if replica.key is None else replica.key.source_topic_id,
        replica=None if problem else replica,
        upstream=None if problem else copied.upstream,
        source_start=replica.source.start,
        source_end=replica.source.end,
        newest_ms=replica.target.newest_ms,
        source_newest_ms=replica.source.newest_ms,
        foreign=0 if problem else copied.foreign,
        problem=problem,
    )
