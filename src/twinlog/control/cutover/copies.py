"""How far the copy of each partition is, by the target's logs and the offset map; and what is left,
where the source answers.

The target's ends are read before the map (`mirror.map.translation`, rule A), the source's before
both: so a partition that is found complete was complete at its source's end of that moment.

In a topic that is ours alone the log's end says how far the copy is. Behind a promotion it is not:
new owners write to it. What the leader remembers of our producer ids still says it, since sequences
are ordinals; where it has forgotten them, the end of the copy is not known, and nothing is
translated by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from twinlog.client import export
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetResult, list_offsets
from twinlog.cluster.logs.producers import last_sequences
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.risk.positions import fan_position
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap
from twinlog.mirror.map.translation import (
    KnownMap,
    Reach,
    Translation,
    copied_to,
    downstream_within,
    upstream_within,
)
from twinlog.mirror.state.intents import IntentKind
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.map_reader import Maps, read_maps

UNKNOWN: Final = -1
FORGOTTEN: Final = (
    "others may have written to it since it was promoted, and the brokers have forgotten where the "
    "copy ended"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One partition; offsets and times (ms) are -1 where they are not known."""

    source: TopicPartition
    target: TopicPartition
    target_topic_id: TopicId = NO_TOPIC_ID
    known: KnownMap | None = None
    """The offset map; None where nothing was copied, or records are placed by key."""
    log: tuple[int, int] = (0, 0)
    """The target's log: its start and its end."""
    reach: Reach | None = None
    upstream: int = UNKNOWN
    """All records of the source below it are on the target."""
    source_start: int = UNKNOWN
    source_end: int = UNKNOWN
    newest_ms: int = UNKNOWN
    """Of the newest record on the target."""
    source_newest_ms: int = UNKNOWN
    foreign: int = 0
    """Records behind the copy that are not ours."""
    problem: str = ""
    """Why nothing is known of it."""

    @property
    def is_copied(self) -> bool:
        """Something of it is on the target, and it is known how far that goes."""
        return self.upstream != UNKNOWN

    @property
    def held_from(self) -> int:
        """The first offset of the source whose record is on the target; 0 where that is not known.

        The copy began behind those before it, or the target's log does by now.
        """
        if self.known is None or self.reach is None:
            return 0
        return upstream_within(self.known, self.reach, self.log[0]).offset

    @property
    def left(self) -> int:
        """Offsets of the source that are not on the target; -1 where that is not known."""
        if self.source_end == UNKNOWN:
            return UNKNOWN
        return max(0, self.source_end - max(self.upstream, 0))

    @property
    def behind_ms(self) -> int:
        """By how much the source's newest record is newer than the target's."""
        if self.left == 0:
            return 0
        if UNKNOWN in (self.newest_ms, self.source_newest_ms):
            return UNKNOWN
        return max(0, self.source_newest_ms - self.newest_ms)

    def translate(self, offset: int) -> Translation | None:
        """An offset of the source as one of the target; None where it has none."""
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
            "problem": self.problem or None,
        }


def copies(scope: CutoverScope, covers: Callable[[str], bool] | None = None) -> list[Copy]:
    """Every partition of the scope's topics that either side knows, sorted. `covers`: of these
    topics of the source, and not of those that go over.
    """
    covers = covers or scope.covers
    here = None if scope.source_problem is not None else scope.source.metadata(None)
    ends = _source_ends(scope, here, covers)
    there = scope.target.metadata(None)
    remote = dict(_remote_partitions(scope, there, covers))
    logs = _Logs.of(scope, [*remote])
    maps = read_maps(scope.target, scope.config.flow, there)
    found = {
        TopicPartition(upstream, tp.partition): _copy(scope, tp, upstream, there, logs, maps)
        for tp, upstream in remote.items()
    }
    for tp, end in ends.items():
        one = found.get(tp)
        if one is None:
            target = TopicPartition(scope.remote(tp.topic), tp.partition)
            one = Copy(source=tp, target=target, problem="nothing of it was copied")
        found[tp] = _with_source(one, end)
    if here is not None:  # what the source does not have (any more) is no part of it
        return [found[tp] for tp in sorted(ends)]
    return [found[tp] for tp in sorted(found) if found[tp].is_copied or found[tp].problem]


def is_complete(scope: CutoverScope, copy: Copy, end: int) -> bool:
    """Whether the copy has every record below this offset of the source: what it lacks, if
    anything, are markers, and records that were rolled back or cleaned away.
    """
    return not has_records(scope, copy.source, max(copy.upstream, 0), end)


def has_records(scope: CutoverScope, tp: TopicPartition, first: int, end: int) -> bool:
    """Whether the source has records for a reader in [first, end), or may have."""
    committed = scope.reads_committed
    return export.has_records(scope.source, tp, first, end, with_aborted=not committed)


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


def _with_source(copy: Copy, end: _SourceEnd) -> Copy:
    """With what the source says of it."""
    return replace(
        copy, source_start=end.start, source_end=end.offset, source_newest_ms=end.newest_ms
    )


# -- the target


def _remote_partitions(
    scope: CutoverScope, there: ClusterMetadata, covers: Callable[[str], bool]
) -> Iterator[tuple[TopicPartition, str]]:
    for name, upstream in scope.upstreams().copies(there.topics).items():
        topic = there.topics[name]
        if not topic.is_internal and covers(upstream):
            yield from ((tp, upstream) for tp in topic.tps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """What was asked of the target's logs."""

    starts: Mapping[TopicPartition, OffsetResult | TwinlogError]
    ends: Mapping[TopicPartition, OffsetResult | TwinlogError]
    newest: Mapping[TopicPartition, OffsetResult | TwinlogError]
    last_sequences: Mapping[TopicPartition, Mapping[int, int]]
    is_promoted: Callable[[str], bool]
    """Whether a topic of the source has new owners on the target."""

    @classmethod
    def of(cls, scope: CutoverScope, tps: list[TopicPartition]) -> _Logs:
        client, intents = scope.target, scope.intents()
        named = {*intents.topics(IntentKind.PROMOTE)}
        return cls(
            starts=list_offsets(client, tps, EARLIEST),
            ends=list_offsets(client, tps, LATEST),
            newest=list_offsets(client, tps, MAX_TIMESTAMP),
            last_sequences=last_sequences(client, tps),
            is_promoted=lambda topic: intents.promotion is not None or topic in named,
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
    problem = next((str(one) for one in (start, end) if isinstance(one, TwinlogError)), "")
    unread = maps.problem(copy.source)
    if problem or isinstance(start, TwinlogError) or isinstance(end, TwinlogError):
        return replace(copy, problem=problem)
    if unread is not None:
        return replace(copy, problem=str(unread))
    log = start.offset, end.offset
    keys = [key for key in maps if (key.target_topic_id, key.partition) == (topic_id, target[1])]
    if any(key.branches for key in keys):
        return replace(copy, log=log, upstream=_fanned(keys, maps))
    newest = max(keys, key=lambda key: maps[key].term, default=None)
    known: PartitionMap | None = None if newest is None else maps[newest]
    copied = copied_to(
        known,
        log[1],
        logs.last_sequences.get(target, {}),
        is_shared=scope.setup.is_identity,
        has_new_owners=lambda: logs.is_promoted(upstream),
    )
    if copied is None:
        return replace(copy, log=log, problem="nothing of it was copied")
    if not copied.is_exact and not scope.setup.is_identity:
        return replace(copy, log=log, problem=FORGOTTEN)
    return replace(
        copy,
        log=(log[0], max(log[0], copied.end)),
        known=KnownMap.of(known),
        reach=copied.reach,
        upstream=copied.reach.upstream,
        foreign=log[1] - copied.end,
    )


def _fanned(keys: list[PartitionKey], maps: Maps) -> int:
    """Of a partition whose records are placed by key."""
    newest = max(keys, key=lambda key: maps[key].term)
    found = fan_position(newest._replace(branch=-1, branches=0), newest.branches, maps)
    return UNKNOWN if found is None else found[1]


def _offset(answer: OffsetResult | TwinlogError) -> int:
    return UNKNOWN if isinstance(answer, TwinlogError) else answer.offset


def _timestamp(answer: OffsetResult | TwinlogError) -> int:
    return UNKNOWN if isinstance(answer, TwinlogError) else answer.timestamp
