"""Exact translation of offsets, by the offset map on the target. No other cluster is queried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, list_offsets
from twinlog.cluster.logs.producers import last_sequences
from twinlog.cluster.logs.raw_log import batch_from, fetch_partition
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.map.copy_border import BorderUnknown, copy_border
from twinlog.mirror.map.offset_map import PartitionMap, Term
from twinlog.mirror.map.translation import (
    CopyReach,
    KnownMap,
    Reach,
    Translation,
    copied_to,
    downstream_within,
    reach_at,
    upstream_within,
)
from twinlog.mirror.names.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    map_topic_of,
)
from twinlog.mirror.state.generations import CLAIMS, winning_claims
from twinlog.model import NO_TOPIC_ID, Flow, TopicId, TopicPartition
from twinlog.survey.map_reader import MapReader, why_no_rows
from twinlog.survey.state_reader import state_rows_if_any

NO_IDS: Final[Mapping[str, TopicId]] = MappingProxyType({})


class ExactMap:
    """The offset map of one flow, read to its current end by each call."""

    def __init__(self, client: ClusterClient, policy: DefaultReplicationPolicy, flow: Flow) -> None:
        self._client = client
        self._flow = flow
        self._is_shared = isinstance(policy, IdentityReplicationPolicy)
        self._topic = map_topic_of(flow)
        self._reader: MapReader | None = None
        self.recreated: tuple[TopicPartition, ...] = ()
        """Partitions of the last call that were copied only from an earlier topic of that name."""

    def downstream(
        self,
        upstream: Mapping[TopicPartition, int],
        source_ids: Mapping[str, TopicId] = NO_IDS,
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets of the source to offsets on this cluster.

        Both mappings have partitions of this cluster as keys. `source_ids`: topic IDs on the
        source, by name, if the caller queried them. Partitions that were copied only from an
        earlier topic of the same name are left out.
        """
        out: dict[TopicPartition, Translation] = {}
        for tp, known, reach, log in self._known(list(upstream), source_ids):
            out[tp] = downstream_within(KnownMap.of(known), reach, log, upstream[tp])
        return out

    def upstream(
        self,
        downstream: Mapping[TopicPartition, int],
        source_ids: Mapping[str, TopicId] = NO_IDS,
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets on this cluster to offsets of the source, as `downstream` does."""
        out: dict[TopicPartition, Translation] = {}
        for tp, known, reach, _ in self._known(list(downstream), source_ids):
            out[tp] = upstream_within(KnownMap.of(known), reach, downstream[tp])
        return out

    def names_at_source(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the source names of topics of this cluster, without topics that are no copies.

        Names come from map rows by the topic's ID, because a flow may rename topics.
        """
        found = self._client.metadata(sorted({self._topic, *topics})).topics
        names = self._names(found)
        return {t: names[found[t].topic_id] for t in topics if found[t].topic_id in names}

    def names_here(self, plain: Mapping[str, str]) -> dict[str, str]:
        """Return the names of source topics on this cluster, by source name.

        `plain` has the names by the policy alone; the map overrides it. If a topic with that name
        is the copy of another topic, and the map has no other name, the source topic is left out.
        """
        known = self.names_at_source(set(plain.values()))
        odd = {name for name, here in plain.items() if known.get(here) != name}
        out = {name: here for name, here in plain.items() if here not in known or name not in odd}
        if odd:
            found = self._client.metadata(None).topics
            names = self._names(found)
            for here, topic in found.items():
                name = names.get(topic.topic_id)
                if name is not None and name in odd:
                    out[name] = here
        return out

    def _names(self, found: Mapping[str, TopicMetadata]) -> dict[TopicId, str]:
        """Return source names by topic ID of this cluster; none if brokers have no topic IDs."""
        reader = self._map(found)
        newest: dict[TopicId, tuple[Term, str]] = {}
        for key, known in reader.read().items() if reader is not None else ():
            one = known.term, known.topic
            if key.target_topic_id != NO_TOPIC_ID and known.topic:
                newest[key.target_topic_id] = max(one, newest.get(key.target_topic_id, one))
        return {topic_id: name for topic_id, (_, name) in newest.items()}

    def _map(self, found: Mapping[str, TopicMetadata]) -> MapReader | None:
        """Return the map's reader, or None if the flow never copied anything to this cluster.
        Raises TwinlogError if the flow did, but the map topic is missing or hidden from this user.
        """
        topic = found.get(self._topic)
        if topic is None or topic.error:
            problem = why_no_rows(self._client, self._flow)
            if problem is not None:
                raise problem
            return None
        if self._reader is None:
            self._reader = MapReader(self._client, self._topic, len(topic.partitions))
        return self._reader

    def _known(
        self, tps: Sequence[TopicPartition], source_ids: Mapping[str, TopicId]
    ) -> Iterator[tuple[TopicPartition, PartitionMap, Reach, tuple[int, int]]]:
        """Yield each copied partition with its map, the end of the copy, and the bounds of its log.

        The bounds do not include records that new owners appended after the copy.
        """
        topics = self._client.metadata([self._topic, *sorted({tp.topic for tp in tps})]).topics
        reader = self._map(topics)
        if reader is None:
            return
        starts = list_offsets(self._client, tps, EARLIEST)
        # before the map: `mirror.map.translation`, rule A
        ends = list_offsets(self._client, tps, LATEST)
        last = {} if self._is_shared else last_sequences(self._client, tps)
        maps: dict[tuple[TopicId, int], PartitionMap] = {}
        earlier: set[tuple[TopicId, int]] = set()
        for key, known in reader.read().items():
            # a remote topic has one source topic; if it has had two, the newer one is used
            if key.branches:
                continue  # no offset of its source partition says where it is
            remote = (key.target_topic_id, key.partition)
            source_id = source_ids.get(known.topic, key.source_topic_id)
            if key.source_topic_id not in (NO_TOPIC_ID, source_id):
                earlier.add(remote)
            elif remote not in maps or maps[remote].term < known.term:
                maps[remote] = known
        ids = {tp: (topics[tp.topic].topic_id, tp.partition) for tp in tps}
        self.recreated = tuple(tp for tp in tps if ids[tp] in earlier and ids[tp] not in maps)
        new_owners = cache(self._new_owners)  # read after the ends, so it has their promotion
        for tp in tps:
            start, end = starts[tp], ends[tp]
            found = maps.get(ids[tp])
            if found is None or isinstance(start, TwinlogError) or isinstance(end, TwinlogError):
                continue
            log = start.offset, end.offset
            copied = self._copied(tp, found, log, last.get(tp, {}), new_owners)
            if copied is not None:
                yield tp, found, copied.reach, (start.offset, max(start.offset, copied.end))

    def _copied(
        self,
        tp: TopicPartition,
        known: PartitionMap,
        log: tuple[int, int],
        last_sequences: Mapping[int, int],
        new_owners: Callable[[], Callable[[str], bool]],
    ) -> CopyReach | None:
        copied = copied_to(
            known,
            log[1],
            last_sequences,
            is_shared=self._is_shared,
            has_new_owners=lambda: new_owners()(known.topic),
        )
        if copied is None or copied.is_exact or self._is_shared:
            return copied
        first, last = known.runs[0], known.runs[-1]
        k = first.downstream - first.ordinal
        if last.downstream - last.ordinal != k:  # accepted records of other clients are in between
            return copied
        read = partial(fetch_partition, self._client)
        try:
            border = copy_border(known, log, partial(batch_from, read, tp))
        except (BorderUnknown, TwinlogError):
            return copied
        return CopyReach(reach_at(known, border - k, border), border, is_exact=True)

    def _new_owners(self) -> Callable[[str], bool]:
        """Return a function that returns True if other clients may write to a source topic's copy.

        It uses the current rows of the state topic. If this user may not read them, the function
        always returns True.
        """
        try:
            rows = state_rows_if_any(self._client)
        except Unauthorized:
            return lambda _: True
        claims = winning_claims(rows.of_kinds(*CLAIMS))
        names = [name for name in claims if Flow.of(name).source == self._flow.source]
        intents = [rows.intents(name) for name in names]
        return lambda topic: any(one.has_new_owners(topic) for one in intents)
