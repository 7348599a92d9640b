"""Maps offsets of source partitions to the target, by the offset map, the end of the copy, and the
target's log. Each of them is read once for many partitions.

Two kinds of source topics have a counterpart on the target. The first are topics that the flow
mirrors. The second are topics that were mirrored from the target (`B.orders` on A is `orders` on
B). They are needed on the way back after a failover, and use the map of the opposite flow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.config.flow.schema import PolicyKind
from twinlog.control.duties.rounds import LedFlow, PartitionView, with_same_topics
from twinlog.control.groups.checkpoint_rows import CopyIds
from twinlog.errors import Unauthorized
from twinlog.mirror.map.offset_map import Run
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.naming import map_topic_of
from twinlog.mirror.plan import PartitionPair
from twinlog.mirror.state.intents import FlowIntents, IntentKind, topic_promoted
from twinlog.model import NO_TOPIC_ID, TopicId, TopicPartition
from twinlog.quantities import first_few
from twinlog.survey.cluster_state import source_aliases
from twinlog.survey.ends import NO_ENDS, LogState, Want, read_ends
from twinlog.survey.map_reader import MapReader
from twinlog.survey.picture import read_flow
from twinlog.survey.replica import Maps, Replica
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

Views: TypeAlias = Mapping[TopicPartition, PartitionView]
"""Partition views by source partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """The counterpart of one source partition on the target, as of one moment."""

    replica: Replica
    original: LogState | None = None
    """Log of the original on the target, if the source partition is its copy (the way back)."""

    @property
    def is_reverse(self) -> bool:
        return self.original is not None

    @property
    def target(self) -> TopicPartition:
        return self.replica.pair.source if self.is_reverse else self.replica.pair.target

    @property
    def target_topic_id(self) -> TopicId:
        pair = self.replica.pair
        return pair.source_topic_id if self.is_reverse else pair.target_topic_id

    @property
    def ids(self) -> CopyIds:
        return CopyIds(self.replica.pair.source_topic_id, self.replica.pair.target_topic_id)

    @property
    def runs(self) -> Sequence[Run]:
        """Return the runs of the offset map. They are empty if nothing was copied yet."""
        return () if self.replica.map is None else self.replica.map.runs

    @property
    def copied_to(self) -> int:
        """Return the source offset up to which records are copied."""
        copied = self.replica.copied
        return (copied.downstream if self.is_reverse else copied.upstream) or 0

    def translate(self, offset: int) -> Translation:
        """Return the target offset for a source offset, limited to the target's log."""
        if self.original is None:
            translation = self.replica.to_target(offset)
        else:
            translation = self.replica.to_source(offset)
            log = self.original.start or 0, self.original.end or 0
            translation = translation and translation._replace(offset=translation.within(*log))
        if translation is None:
            raise ValueError(f"{self.target}: it has no position")
        return translation

    def is_progress(self, offset: int) -> bool:
        """Return True if a group with this source offset has read, or passed, the records before
        it.

        On the way back, return False for offsets at or before the copy's first record. The opposite
        sync also sets that offset for groups which are far before that record in the original.
        """
        if not self.is_reverse:
            return True
        first = self.runs[0].downstream if self.runs else 0
        return offset > max(first, self.replica.target.start or 0)


class CounterpartFinder:
    """Finds counterparts of one flow's source partitions; not thread-safe."""

    def __init__(self, flow: LedFlow, source: ClusterClient, target: ClusterClient) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._is_shared = flow.config.policy.kind is PolicyKind.IDENTITY
        self._reverse_maps: MapReader | None = None
        self._aliases: frozenset[str] | None = None

    def forget(self) -> None:
        """Look up the target's aliases again at the next use: the opposite flow may have begun."""
        self._aliases = None

    @property
    def target_aliases(self) -> frozenset[str]:
        """The aliases that name the target in topics that were copied from it: its alias in this
        flow, and each `source.cluster.alias` with which the opposite flow has copied.
        """
        if self._aliases is None:
            config = self._flow.config
            written = source_aliases(self._source, config.flow.reverse)
            self._aliases = written | {config.target_alias}
        return self._aliases

    def _came_from_target(self, topic: str) -> bool:
        source = None if self._is_shared else self._flow.policy.topic_source(topic)
        return source is not None and source in self.target_aliases

    def _is_selected(self, *originals: str | None) -> bool:
        config = self._flow.config
        names = [name for name in originals if name is not None]
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
        """Return the counterparts of these source partitions. Partitions without a counterpart are
        left out.

        Read `views` after the offsets that are to be translated, and before this call: the end of
        the copy must be known before the map is read (see `mirror.map.translation`, rule A).
        """
        wanted = set(tps)
        found = [views[tp] for tp in wanted if tp in views]
        copied = [view for view in found if not view.is_broken and not view.is_keyed]
        from_target = [tp for tp in wanted if tp not in views and self._came_from_target(tp.topic)]
        current = with_same_topics(copied, self._source, self._target)
        counterparts = dict(self._find_copies({view.source: view for view in current}))
        if from_target:
            counterparts.update(self._find_originals(from_target))
        return counterparts

    def _find_copies(self, views: Views) -> Iterator[tuple[TopicPartition, Counterpart]]:
        if not views:
            return
        picture = read_flow(
            self._target,
            [view.target for view in views.values()],
            Want.STARTS,
            after=NO_ENDS,
            is_shared=self._is_shared,
            new_owners=lambda: self._flow.intents().new_owners,
            maps=self._flow.read_map,
        )
        for tp, view in views.items():
            replica = picture.replica(view, 0)
            is_known = replica.problem is None and picture.maps.has_rows_of(tp, view.map_epoch)
            # Leave out partitions whose position no lane of this process has found. Records may be
            # missing on the target, or the map may have lost a row, so groups would skip records.
            if not is_known or view.is_position_unknown:
                continue
            if view.reach is not None:
                replica = replica.by_lane(*view.reach)
            if replica.copied.reach is not None:
                yield tp, Counterpart(replica=replica)

    def _find_originals(
        self, tps: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, Counterpart]]:
        """Yield (copy, counterpart) for the partitions on the source that are copies of the
        target's, recognized by their topic names. Originals are found in the map of the flow that
        wrote the copy, because that flow may have renamed topics.
        """
        map_topic = map_topic_of(self._flow.config.flow.reverse)
        copies = self._source.metadata([map_topic, *sorted({tp.topic for tp in tps})]).topics
        upstream = self._flow.policy.upstream_topic
        is_asked = any(self._is_selected(tp.topic, upstream(tp.topic)) for tp in tps)
        topic = copies.get(map_topic)
        if topic is not None and topic.error == TOPIC_AUTHORIZATION_FAILED and is_asked:
            self._flow.log_once(_hidden_map(self._flow, map_topic))
        if topic is None or topic.error:
            return  # there is no readable map of an opposite flow
        if self._reverse_maps is None:
            self._reverse_maps = MapReader(self._source, map_topic, len(topic.partitions))
        try:
            picture = read_flow(
                self._source,
                tps,
                Want.STARTS | Want.PRODUCERS,
                after=NO_ENDS,
                is_shared=False,
                # other clients may write to the copies now, because that flow may have stopped
                new_owners=lambda: lambda _: True,
                maps=self._reverse_maps.read,
            )
        except Unauthorized:
            if is_asked:
                self._flow.log_once(_hidden_map(self._flow, map_topic))
            return
        originals = dict(self._originals(tps, copies, _names(picture.maps, copies)))
        target_topics = self._target.metadata(
            sorted({tp.topic for tp in originals.values()})
        ).topics
        ends = read_ends(self._target, originals.values(), Want.STARTS)
        for tp, original in originals.items():
            copy, first = copies.get(tp.topic), target_topics.get(original.topic)
            if copy is None or first is None or ends[original].problem is not None:
                continue
            replica = picture.replica(PartitionPair(original, tp, first.topic_id, copy.topic_id), 0)
            if replica.copied.reach is not None:
                yield tp, Counterpart(replica=replica, original=ends[original])

    def _originals(
        self,
        tps: Iterable[TopicPartition],
        copies: Mapping[str, TopicMetadata],
        named: Mapping[TopicId, Collection[str]],
    ) -> Iterator[tuple[TopicPartition, TopicPartition]]:
        """Yield each copy with its original. The original has the copy's name without the alias,
        unless the map has only other names. The map is searched by the IDs of both topics, so a
        wrong name finds nothing.
        """
        for tp in tps:
            copy = copies.get(tp.topic)
            topic_id = NO_TOPIC_ID if copy is None else copy.topic_id
            names = named.get(topic_id, ())
            plain = self._flow.policy.upstream_topic(tp.topic)
            name = plain if not names or plain in names else sorted(names)[-1]
            if name is not None and self._is_selected(tp.topic, name):
                yield tp, TopicPartition(name, tp.partition)


def _names(maps: Maps, copies: Mapping[str, TopicMetadata]) -> Mapping[TopicId, Collection[str]]:
    """Return the names of each copy's original topics, by the copy's topic ID. Empty if the brokers
    have no topic IDs.
    """
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
        f"if Twinlog copied them, grant READ on topic {topic} of {source} to Twinlog's user "
        "[TOPIC_UNAUTHORIZED]"
    )


# Why groups of the source have no counterpart on the target, as text for `twinlog status`.
#
# Operators must see before a failover which applications will have no offset to resume from, and
# why.

NOTHING_COMMITTED = "no offsets are committed"


def reasons(
    committed: Mapping[str, Iterable[TopicPartition]],
    views: Iterable[PartitionView],
    intents: FlowIntents,
) -> dict[str, str]:
    """Return the reason by group. `committed`: groups without any counterpart, with the partitions
    in which they have offsets.

    Partitions of topics partitioned by key are left out, because another duty reports them.
    """
    mirrored = {view.source: view for view in views}
    return {
        group: reason
        for group, tps in sorted(committed.items())
        if (reason := _reason(sorted(tps), mirrored, intents))
    }


def _reason(
    tps: Sequence[TopicPartition],
    mirrored: Mapping[TopicPartition, PartitionView],
    intents: FlowIntents,
) -> str:
    by_reason: dict[str, dict[str, None]] = {}
    if not tps:
        return NOTHING_COMMITTED
    for tp in tps:
        view = mirrored.get(tp)
        if view is not None and view.is_keyed:
            continue
        by_reason.setdefault(why_no_counterpart(tp, view, intents), {})[tp.topic] = None
    return "; ".join(f"{first_few([*topics])}: {why}" for why, topics in by_reason.items())


def why_no_counterpart(tp: TopicPartition, view: PartitionView | None, intents: FlowIntents) -> str:
    """Return why a partition has no counterpart. The partition must not be partitioned by key.
    `view`: None if the flow does not mirror the partition.
    """
    promotion = intents.get(IntentKind.PROMOTE, tp.topic)
    if promotion is not None:
        return topic_promoted(promotion)
    if view is None:
        return "not mirrored by this flow"
    if view.is_broken:
        return "has stopped, with a code"
    return "no lane has checked it yet" if view.is_position_unknown else "nothing is copied yet"
