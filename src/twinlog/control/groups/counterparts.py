"""Maps offsets of source partitions to the target, by the offset map, the end of the copy, and the
target's log, which are queried once for many partitions.

Two kinds of source topics have a counterpart on the target: topics that the flow mirrors, and
topics that were mirrored from the target (`B.orders` on A is `orders` on B). The latter is the way
back after a failover, and uses the map of the flow in the other direction.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, OffsetResult, list_offsets
from twinlog.cluster.logs.producers import last_sequences
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import PolicyKind
from twinlog.control.duties.rounds import LedFlow, PartitionView, confirmed
from twinlog.control.groups.checkpoint_rows import CopyIds
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.map.offset_map import PartitionKey, PartitionMap, Run
from twinlog.mirror.map.translation import (
    KnownMap,
    Reach,
    Translation,
    copied_to,
    downstream_within,
    reach_of,
    upstream_within,
)
from twinlog.mirror.names.naming import map_topic_of
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.survey.cluster_state import source_aliases
from twinlog.survey.map_reader import MapReader, Maps
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

log = logging.getLogger(__name__)

Views: TypeAlias = Mapping[TopicPartition, PartitionView]
"""Partition views by source partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """The counterpart of one source partition, at one moment."""

    target: TopicPartition
    target_topic_id: TopicId
    ids: CopyIds
    log_start: int
    log_end: int
    known: KnownMap
    reach: Reach
    is_way_back: bool
    """The source partition is the copy, and the target's the original."""
    copy_start: int = 0
    """On the way back: the start of the copy's log."""

    @property
    def runs(self) -> Sequence[Run]:
        """Runs of the offset map; empty if nothing was copied yet."""
        return self.known.runs

    def translate(self, offset: int) -> Translation:
        """Translate a source offset to the target, within its log."""
        log = self.log_start, self.log_end
        if not self.is_way_back:
            return downstream_within(self.known, self.reach, log, offset)
        found = upstream_within(self.known, self.reach, offset)
        return Translation(offset=found.within(*log), is_exact=found.is_exact)

    def is_progress(self, offset: int) -> bool:
        """Return True if a group with this source offset has read, or passed, the records up to it.

        On the way back this is False at or before the copy's first record: it stands for all
        earlier records of the original, and the sync sets groups there that are far from it.
        """
        if not self.is_way_back:
            return True
        first = self.runs[0].downstream if self.runs else 0
        return offset > max(first, self.copy_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    starts: Mapping[TopicPartition, OffsetResult | TwinlogError]
    ends: Mapping[TopicPartition, OffsetResult | TwinlogError]

    @classmethod
    def of(cls, client: ClusterClient, tps: Sequence[TopicPartition]) -> _Ends:
        starts = list_offsets(client, tps, EARLIEST)
        return cls(starts=starts, ends=list_offsets(client, tps, LATEST))

    def bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        start, end = self.starts.get(tp), self.ends.get(tp)
        if isinstance(start, OffsetResult) and isinstance(end, OffsetResult):
            return start.offset, end.offset
        log.debug("no log bounds tp=%s start=%s end=%s", tp, start, end)
        return None


class TargetOffsets:
    """Finds counterparts for one flow; not thread-safe."""

    def __init__(self, flow: LedFlow, source: ClusterClient, target: ClusterClient) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._is_shared = flow.config.policy.kind is PolicyKind.IDENTITY
        self._way_back: MapReader | None = None
        self._aliases: frozenset[str] | None = None

    def forget(self) -> None:
        """Look up the target's aliases again: the opposite flow may have begun."""
        self._aliases = None

    @property
    def target_aliases(self) -> frozenset[str]:
        """The target's names in topics that were copied from it: its alias in this flow, and those
        that the opposite flow has written (its `source.cluster.alias`).
        """
        if self._aliases is None:
            config = self._flow.config
            written = source_aliases(self._source, config.flow.reverse)
            self._aliases = written | {config.target_alias}
        return self._aliases

    def original_on_target(self, topic: str) -> str | None:
        """Return the target's topic from which a source topic was mirrored, by its name, or None if
        neither name passes the topic filter.
        """
        if not self._came_from_target(topic):
            return None
        original = self._flow.policy.upstream_topic(topic)
        return original if self._passes(topic, original) else None

    def _came_from_target(self, topic: str) -> bool:
        source = None if self._is_shared else self._flow.policy.topic_source(topic)
        return source is not None and source in self.target_aliases

    def _passes(self, *found: str | None) -> bool:
        config = self._flow.config
        names = [name for name in found if name is not None]
        return any(
            config.topics.matches(name) and not config.topics_exclude.matches(name)
            for name in names
        )

    def views(self) -> Views:
        """Return the current progress of the flow's partitions, by source partition."""
        return {view.source: view for view in self._flow.partitions()}

    def find(
        self, tps: Iterable[TopicPartition], views: Views
    ) -> dict[TopicPartition, Counterpart]:
        """Return the counterparts of these source partitions, without those that have none.

        `views` must be read after the offsets that are to be translated, and before this call:
        first the end of the copy, then the map (see `mirror.map.translation`, rule A).
        """
        wanted = set(tps)
        asked = [views[tp] for tp in wanted if tp in views and not views[tp].is_broken]
        back = [tp for tp in wanted if tp not in views and self._came_from_target(tp.topic)]
        standing = confirmed(asked, self._source, self._target)
        found = dict(self._forth({view.source: view for view in standing}))
        if back:
            found.update(self._back(back))
        return found

    def _forth(self, views: Views) -> Iterator[tuple[TopicPartition, Counterpart]]:
        if not views:
            return
        ends = _Ends.of(self._target, [view.target for view in views.values()])
        maps = self._flow.read_map()
        for tp, view in views.items():
            bounds, known = ends.bounds(view.target), maps.get(view.map_key)
            if bounds is None or maps.problem(tp) is not None:
                continue
            if not maps.has_rows_of(tp, view.map_epoch):
                continue
            reach = self._reach(view, known, bounds[1])
            if reach is not None:
                topic_id = view.target_topic_id
                yield tp, _counterpart(view.target, topic_id, view.map_key, bounds, known, reach)

    def _reach(self, view: PartitionView, known: PartitionMap | None, end: int) -> Reach | None:
        """Return the further one of the lane's report, up to a second old, and the target's log.

        None before a lane of this process has found its position. If records of the flow are
        missing, or the map lost a row, its offsets are too high, and groups would skip records.
        """
        if view.is_unseen:
            return None
        by_log = reach_of(known, end, is_shared=self._is_shared)
        reached = [] if by_log is None else [by_log]
        if view.next_upstream >= 0 and view.next_downstream >= 0:
            reached.append(Reach(view.next_upstream, view.next_downstream))
        return max(reached, key=lambda one: (one.downstream, one.upstream), default=None)

    def _back(self, tps: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, Counterpart]]:
        """Find the originals of copies on the source. Topic names show that they are copies. The
        map of the flow that wrote them names the originals, since that flow may rename topics too.
        """
        map_topic = map_topic_of(self._flow.config.flow.reverse)
        copies = self._source.metadata([map_topic, *sorted({tp.topic for tp in tps})]).topics
        is_asked = any(self.original_on_target(tp.topic) for tp in tps)
        found = copies.get(map_topic)
        if found is not None and found.error == TOPIC_AUTHORIZATION_FAILED and is_asked:
            self._flow.log_once(_hidden_map(self._flow, map_topic))
        if found is None or found.error:
            return  # no flow of Twinlog copied them
        copied_to, writers = _Ends.of(self._source, tps), last_sequences(self._source, tps)
        if self._way_back is None:
            self._way_back = MapReader(self._source, map_topic, len(found.partitions))
        try:
            maps = self._way_back.read()
        except Unauthorized:
            if is_asked:
                self._flow.log_once(_hidden_map(self._flow, map_topic))
            return
        originals = dict(self._originals(tps, copies, _names(maps, copies)))
        there = self._target.metadata(sorted({tp.topic for tp in originals.values()})).topics
        ends = _Ends.of(self._target, list(originals.values()))
        for tp, original in originals.items():
            copy, first = copies.get(tp.topic), there.get(original.topic)
            bounds, end = ends.bounds(original), copied_to.bounds(tp)
            if copy is None or first is None or bounds is None or end is None:
                continue
            if maps.problem(original) is not None:
                continue
            key = PartitionKey(first.topic_id, copy.topic_id, tp.partition)
            known = maps.get(key)
            reach = _reach_back(known, end[1], writers.get(tp, {}))
            if reach is not None:
                counterpart = _counterpart(original, first.topic_id, key, bounds, known, reach)
                yield tp, replace(counterpart, is_way_back=True, copy_start=end[0])

    def _originals(
        self,
        tps: Iterable[TopicPartition],
        copies: Mapping[str, TopicMetadata],
        named: Mapping[TopicId, Collection[str]],
    ) -> Iterator[tuple[TopicPartition, TopicPartition]]:
        """Yield the originals that were renamed when they were copied, or have the name without the
        alias. The map is searched by the IDs of both topics, so a wrong name finds nothing.
        """
        for tp in tps:
            copy = copies.get(tp.topic)
            topic_id = NO_TOPIC_ID if copy is None else copy.topic_id
            names = named.get(topic_id, ())
            plain = self._flow.policy.upstream_topic(tp.topic)
            name = plain if not names or plain in names else sorted(names)[-1]
            if name is not None and self._passes(tp.topic, name):
                yield tp, TopicPartition(name, tp.partition)


def _names(maps: Maps, copies: Mapping[str, TopicMetadata]) -> Mapping[TopicId, Collection[str]]:
    """Return the copies' names at their origin, by topic ID; empty for brokers without IDs."""
    ids = {topic.topic_id for topic in copies.values()} - {NO_TOPIC_ID}
    out: defaultdict[TopicId, set[str]] = defaultdict(set)
    for key, known in maps.items():
        if key.target_topic_id in ids:
            out[key.target_topic_id].add(known.topic)
    return out


def _hidden_map(flow: LedFlow, topic: str) -> str:
    source, target = flow.config.flow.source, flow.config.flow.target
    return (
        f"{flow.name}: groups are not translated in topics of {source} that came from {target}: "
        f"if Twinlog copied them, grant READ on topic {topic} of {source} to its user "
        "[TOPIC_UNAUTHORIZED]"
    )


def _reach_back(known: PartitionMap | None, end: int, writers: Mapping[int, int]) -> Reach | None:
    """Return the end of another flow's copy, or None if nothing was copied.

    That flow may have stopped, and other clients may write to its topic now. So the end is read
    from the brokers' producer state, else from the last mark, which is some seconds old.
    """
    copied = copied_to(known, end, writers, is_shared=False, has_new_owners=lambda: True)
    return None if copied is None else copied.reach


def _counterpart(
    target: TopicPartition,
    target_topic_id: TopicId,
    key: PartitionKey,
    bounds: tuple[int, int],
    known: PartitionMap | None,
    reach: Reach,
) -> Counterpart:
    return Counterpart(
        target=target,
        target_topic_id=target_topic_id,
        ids=CopyIds(key.source_topic_id, key.target_topic_id),
        log_start=bounds[0],
        log_end=bounds[1],
        known=KnownMap.of(known),
        reach=reach,
        is_way_back=False,
    )
