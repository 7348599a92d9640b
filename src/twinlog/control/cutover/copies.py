"""Finds the end of each partition's copy, by the target's logs and the offset map, and the records
that are not copied yet, if the source responds.

The target's rows decide which partitions there are. So a partition that was copied is returned,
even if the source does not list it, lists it with another topic ID, or no longer has the records.

The target's ends are read before the map (`mirror.map.translation`, rule A), and the source's ends
before both. So a copy that is found complete reached the source's end of that moment.

If only this flow writes to a topic, its copy ends where the log ends. After a promotion it may not,
because the new owners write to the topic. The leader's state of the flow's producer IDs still shows
the end of the copy, since sequences are ordinals. If the leader has dropped that state, the end of
the copy is unknown, and nothing is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from twinlog.client import export
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetResult, list_offsets
from twinlog.cluster.logs.producers import last_sequences
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.cutover.upstreams import FlowUpstreams
from twinlog.errors import TwinlogError, or_raise
from twinlog.mirror.findings import Span
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap
from twinlog.mirror.map.translation import (
    KnownMap,
    Reach,
    Translation,
    copied_to,
    downstream_within,
    upstream_within,
)
from twinlog.mirror.state.copies import CopyRow
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.ends import NO_ENDS
from twinlog.survey.map_reader import Maps, read_maps
from twinlog.survey.replica import by_branches
from twinlog.survey.stale_metadata import require_gone
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

UNKNOWN: Final = -1
NOTHING: Final = "nothing of it was copied"
RECREATED: Final = (
    "the source topic was re-created since it was copied: the copy holds records of the earlier one"
)
TARGET_LOST: Final = (
    "the target's log ends before the last record that was copied: the target lost records"
)
FORGOTTEN: Final = (
    "others may have written to it since it was promoted, and the brokers have forgotten where the "
    "copy ended"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The copy of one partition; unknown offsets and times (ms) are -1."""

    source: TopicPartition
    target: TopicPartition
    target_topic_id: TopicId = NO_TOPIC_ID
    source_topic_id: TopicId = NO_TOPIC_ID
    """ID of the topic that was copied, by the offset map."""
    known: KnownMap | None = None
    """The offset map, or None if nothing was copied, or if records are partitioned by key."""
    log: tuple[int, int] = (0, 0)
    """The target's log: its start and its end."""
    reach: Reach | None = None
    upstream: int = UNKNOWN
    """All records of the source below it are on the target."""
    source_start: int = UNKNOWN
    source_end: int = UNKNOWN
    newest_ms: int = UNKNOWN
    """Timestamp of the newest record on the target."""
    source_newest_ms: int = UNKNOWN
    foreign: int = 0
    """Number of offsets after the copy, which other clients wrote."""
    problem: str = ""
    """Why the state of the copy is unknown; empty if it is known."""
    unlisted: str = ""
    """Why a source that responds does not list the partition; empty if it does."""

    @property
    def is_copied(self) -> bool:
        """Return True if records of it are on the target, and the end of the copy is known."""
        return self.upstream != UNKNOWN

    @property
    def held_from(self) -> int:
        """The first source offset whose record is on the target, or 0 if unknown. Earlier records
        were never copied, or the target's log has already deleted them.
        """
        if self.known is None or self.reach is None:
            return 0
        return upstream_within(self.known, self.reach, self.log[0]).offset

    @property
    def left(self) -> int:
        """Number of source offsets that are not on the target, or -1 if unknown. It is also unknown
        if the source's log ends before the copy, because the source may have lost more than that.
        """
        if self.source_end == UNKNOWN or self.source_end < self.upstream:
            return UNKNOWN
        return self.source_end - max(self.upstream, 0)

    @property
    def deleted(self) -> Span | None:
        """Offsets that the source deleted and the map does not show as copied, or None. They may
        have held only markers; the mirror's status row shows that (`NewestStatus.missing`).
        """
        lost = Span(max(self.upstream, 0), self.source_start)
        return None if lost.is_empty else lost

    @property
    def behind_ms(self) -> int:
        """How much newer the source's newest record is than the target's, or -1 if unknown."""
        if self.left == 0:
            return 0
        if UNKNOWN in (self.newest_ms, self.source_newest_ms):
            return UNKNOWN
        return max(0, self.source_newest_ms - self.newest_ms)

    def translate(self, offset: int) -> Translation | None:
        """Translate a source offset to a target offset, or return None if it has none."""
        if self.known is None or self.reach is None:
            return None
        return downstream_within(self.known, self.reach, self.log, offset)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "target_topic": self.target.topic,
            "copied_to": self.upstream,
            "source_end": self.source_end,
            "missing": self.left,
            "behind_ms": self.behind_ms,
            "newest_ms": self.newest_ms,
            "foreign_records": self.foreign,
            "deleted": None if self.deleted is None else [*self.deleted],
            "problem": self.problem or self.unlisted or None,
        }


def copies(scope: CutoverScope, covers: Callable[[str], bool] | None = None) -> list[Copy]:
    """Return a `Copy` for every partition of the scope's topics that either side knows, sorted.

    `covers` selects other topics of the source than those of the scope. Raises BrokerRefused
    (BROKERS_DIFFER) if brokers of one cluster list different topics.
    """
    covers = covers or scope.covers
    rows = (row for row in scope.rows().copies.values() if row.flow == scope.name)
    begun = [row for row in rows if row.is_live and covers(row.source_topic)]
    here = None if scope.source_problem is not None else scope.source.metadata(None)
    ends = _source_ends(scope, here, covers)
    there = scope.target.metadata(None)
    scope.require_same(here, there)
    remote = dict(_remote_partitions(scope, there, covers))
    logs = _Logs.of(scope, [*remote])
    maps = read_maps(scope.target, scope.config.flow, there, after=NO_ENDS)
    found = {
        TopicPartition(upstream, tp.partition): _copy(scope, tp, upstream, there, logs, maps)
        for tp, upstream in remote.items()
    }
    found |= _cut_short(scope.target, found.values())
    for row in _hidden_on_target(scope, there, begun):
        tp, target = TopicPartition(row.source_topic, 0), TopicPartition(row.topic, 0)
        found.setdefault(tp, Copy(source=tp, target=target, problem=_invisible(scope.target, row)))
    if here is None:
        return [found[tp] for tp in sorted(found) if found[tp].is_copied or found[tp].problem]
    for tp, end in ends.items():
        one = found.get(tp)
        if one is None:
            target = TopicPartition(scope.remote(tp.topic), tp.partition)
            one = Copy(source=tp, target=target, problem=NOTHING)
        found[tp] = _with_source(one, here.topics[tp.topic].topic_id, end)
    # the copy has advanced since the ends were read, or the source lost the end of its log
    short = [tp for tp in ends if found[tp].source_end < found[tp].upstream]
    later = list_offsets(scope.source, short, LATEST, isolation=scope.config.isolation_level)
    for tp, answer in later.items():
        found[tp] = replace(found[tp], source_end=_offset(answer))
    topics = {row.source_topic for row in begun if row.is_of(row.topic, _id(there, row.topic))}
    topics -= {tp.topic for tp in ends}
    unlisted = [tp for tp in found if tp not in ends]
    unlisted = [tp for tp in unlisted if found[tp].is_copied or tp.topic in topics]
    reasons = _why_unlisted(scope.source, here, {tp.topic for tp in unlisted})
    for tp in unlisted:
        found[tp] = replace(found[tp], unlisted=reasons[tp.topic])
    return [found[tp] for tp in sorted({*ends, *unlisted})]


def incomplete(
    scope: CutoverScope, found: Iterable[Copy], ends: Mapping[TopicPartition, int]
) -> list[Copy]:
    """Return the copies that lack a record of the source below these ends. Any other copy lacks at
    most markers, and records that were rolled back or compacted away.
    """
    listed = [one for one in found if not one.unlisted]
    spans = {one.source: Span(max(one.upstream, 0), ends[one.source]) for one in listed}
    lacking = records_in(scope, spans)
    return [one for one in listed if one.source in lacking]


def records_in(
    scope: CutoverScope, spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, int]:
    """Return the offset of the first record, by partition, if the source has one in the range that
    the flow would copy, or may have one.
    """
    committed = scope.reads_committed
    return export.first_records(scope.source, spans, with_aborted=not committed)


# -- the source


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceEnd:
    start: int
    offset: int
    newest_ms: int


def _source_ends(
    scope: CutoverScope, here: ClusterMetadata | None, covers: Callable[[str], bool]
) -> dict[TopicPartition, _SourceEnd]:
    if here is None:
        return {}
    tps = [
        tp
        for name, topic in here.topics.items()
        if not topic.is_internal and covers(name)
        for tp in topic.tps
    ]
    ends = list_offsets(scope.source, tps, LATEST, isolation=scope.config.isolation_level)
    newest = list_offsets(scope.source, tps, MAX_TIMESTAMP)
    starts = list_offsets(scope.source, tps, EARLIEST)
    return {
        tp: _SourceEnd(
            start=_offset(starts[tp]), offset=_offset(ends[tp]), newest_ms=_timestamp(newest[tp])
        )
        for tp in tps
    }


def _with_source(copy: Copy, topic_id: TopicId, end: _SourceEnd) -> Copy:
    """Return the copy with the log of its source topic. If the topic was re-created, the position
    of the copy is unknown.
    """
    copy = replace(
        copy, source_start=end.start, source_end=end.offset, source_newest_ms=end.newest_ms
    )
    if NO_TOPIC_ID in (copy.source_topic_id, topic_id) or copy.source_topic_id == topic_id:
        return copy
    return replace(copy, known=None, reach=None, upstream=UNKNOWN, problem=RECREATED)


def _why_unlisted(
    source: ClusterClient, here: ClusterMetadata, topics: Collection[str]
) -> dict[str, str]:
    """Return the reason why the source does not list each of these topics, or not with all of its
    partitions. Raises BrokerRefused (BROKERS_DIFFER) if another broker lists a missing one.
    """
    require_gone(source, here, topics)
    found = source.metadata(sorted(topics)).topics if topics else {}
    out = dict.fromkeys(topics, "it was copied, and the source does not list it: it was deleted")
    for name, topic in found.items():
        if topic.error == TOPIC_AUTHORIZATION_FAILED:
            out[name] = (
                "it was copied, and the source does not list it: it was deleted, or this user may "
                f"not see it: grant DESCRIBE on topic {name}"
            )
        elif topic.partitions:
            out[name] = f"it was copied, and the source lists {len(topic.partitions)} partitions"
    return out


# -- the target


def _remote_partitions(
    scope: CutoverScope, there: ClusterMetadata, covers: Callable[[str], bool]
) -> Iterator[tuple[TopicPartition, str]]:
    upstreams = FlowUpstreams.of(scope.config, scope.rows().copies.values())
    for name, upstream in upstreams.copies(there.topics).items():
        topic = there.topics[name]
        if not topic.is_internal and covers(upstream):
            yield from ((tp, upstream) for tp in topic.tps)


def _hidden_on_target(
    scope: CutoverScope, there: ClusterMetadata, begun: Iterable[CopyRow]
) -> list[CopyRow]:
    """Return the rows of remote topics that this user may not see, so that they may still exist.
    Deleted remote topics are left out, because clients cannot move to them.
    """
    lacking = {row.topic: row for row in begun if row.topic not in there.topics}
    require_gone(scope.target, there, lacking)
    found = scope.target.metadata(sorted(lacking)).topics if lacking else {}
    return [
        lacking[name] for name, topic in found.items() if topic.error == TOPIC_AUTHORIZATION_FAILED
    ]


def _cut_short(target: ClusterClient, found: Iterable[Copy]) -> dict[TopicPartition, Copy]:
    """Return the copies with TARGET_LOST as their problem: the log ends before the last record that
    the map has as copied.

    How many of the flow's records such a log has is unknown, because other clients may have written
    to a topic that the flow does not own. The ends are queried again, because the copy may have
    advanced after the first query and before the map was read.
    """
    short = [one for one in found if one.reach is not None and one.log[1] < one.reach.downstream]
    ends = list_offsets(target, [one.target for one in short], LATEST)
    return {
        one.source: replace(one, upstream=UNKNOWN, problem=TARGET_LOST)
        for one in short
        if one.reach is not None and _offset(ends[one.target]) < one.reach.downstream
    }


def _invisible(target: ClusterClient, row: CopyRow) -> str:
    right = f"grant DESCRIBE on topic {row.topic}"
    return f"this user may not see {row.topic} on {target.alias}: {right}"


def _id(found: ClusterMetadata, topic: str) -> TopicId:
    return found.topics[topic].topic_id if topic in found.topics else NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """Responses of the target to queries about its logs."""

    starts: Mapping[TopicPartition, OffsetResult | TwinlogError]
    ends: Mapping[TopicPartition, OffsetResult | TwinlogError]
    newest: Mapping[TopicPartition, OffsetResult | TwinlogError]
    last_sequences: Mapping[TopicPartition, Mapping[int, int]]
    has_new_owners: Callable[[str], bool]
    """Whether a topic of the source has new owners on the target."""

    @classmethod
    def of(cls, scope: CutoverScope, tps: list[TopicPartition]) -> _Logs:
        client = scope.target
        return cls(
            starts=list_offsets(client, tps, EARLIEST),
            ends=list_offsets(client, tps, LATEST),
            newest=list_offsets(client, tps, MAX_TIMESTAMP),
            last_sequences=last_sequences(client, tps),
            # read after the ends: a promotion precedes the records of new owners
            has_new_owners=scope.intents().has_new_owners,
        )


def _copy(
    scope: CutoverScope,
    target: TopicPartition,
    upstream: str,
    there: ClusterMetadata,
    logs: _Logs,
    maps: Maps,
) -> Copy:
    topic_id = there.topics[target.topic].topic_id
    copy = Copy(
        source=TopicPartition(upstream, target.partition),
        target=target,
        target_topic_id=topic_id,
        newest_ms=_timestamp(logs.newest[target]),
    )
    start, end = logs.starts[target], logs.ends[target]
    unread = maps.problem(copy.source)
    for one in (start, end, unread):
        if isinstance(one, TwinlogError):
            return replace(copy, problem=str(one))
    log = or_raise(start).offset, or_raise(end).offset
    keys = maps.keys_to(topic_id, target.partition)
    newest = max(keys, key=lambda key: maps[key].term, default=None)
    known: PartitionMap | None = None if newest is None else maps[newest]
    if newest is None or known is None:
        return replace(copy, log=log, problem=NOTHING)
    copy = replace(copy, log=log, source_topic_id=newest.source_topic_id)
    if any(key.branches for key in keys):
        return replace(copy, upstream=_fanned(keys, maps))
    copied = copied_to(
        known,
        log[1],
        logs.last_sequences.get(target, {}),
        is_shared=scope.setup.is_identity,
        has_new_owners=lambda: logs.has_new_owners(upstream),
    )
    if copied is None:
        return replace(copy, problem=NOTHING)
    if not copied.is_exact and not scope.setup.is_identity:
        return replace(copy, problem=FORGOTTEN)
    return replace(
        copy,
        log=(log[0], max(log[0], copied.end)),
        known=KnownMap.of(known),
        reach=copied.reach,
        upstream=copied.reach.upstream,
        foreign=log[1] - copied.end,
    )


def _fanned(keys: Sequence[PartitionKey], maps: Maps) -> int:
    """Return the source offset up to which a partition written by key is copied, or UNKNOWN."""
    newest = max(keys, key=lambda key: maps[key].term)
    found = by_branches(newest, maps).upstream
    return UNKNOWN if found is None else found


def _offset(answer: OffsetResult | TwinlogError) -> int:
    return UNKNOWN if isinstance(answer, TwinlogError) else answer.offset


def _timestamp(answer: OffsetResult | TwinlogError) -> int:
    return UNKNOWN if isinstance(answer, TwinlogError) else answer.timestamp
