"""Exact places of offsets, by the offset map that Twinlog keeps on the target; no other cluster is
asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics import admin
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.translation import (
    Known,
    Translation,
    downstream_within,
    reach_of,
    upstream_within,
)
from twinlog.mirror.names.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    offset_map_topic,
)
from twinlog.model import TopicPartition
from twinlog.survey.map_reader import MapReader


class ExactMap:
    """The offset map of one flow, read anew up to the moment of each question."""

    def __init__(
        self, client: ClusterClient, policy: DefaultReplicationPolicy, source_alias: str
    ) -> None:
        self._client = client
        self._is_shared = isinstance(policy, IdentityReplicationPolicy)
        self._topic = offset_map_topic(source_alias)
        self._reader: MapReader | None = None

    def downstream(
        self, upstream: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Translation]:
        """Where offsets of the source lie here; by partitions of this cluster, both times."""
        out: dict[TopicPartition, Translation] = {}
        for tp, known, log in self._known(list(upstream)):
            reach = reach_of(known, log[1], is_shared=self._is_shared)
            if reach is not None:
                out[tp] = downstream_within(Known.of(known), reach, log, upstream[tp])
        return out

    def upstream(
        self, downstream: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Translation]:
        """The other way round."""
        out: dict[TopicPartition, Translation] = {}
        for tp, known, log in self._known(list(downstream)):
            reach = reach_of(known, log[1], is_shared=self._is_shared)
            if reach is not None:
                out[tp] = upstream_within(Known.of(known), reach, downstream[tp])
        return out

    def _known(
        self, tps: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, PartitionMap, tuple[int, int]]]:
        """Partitions that were copied, with their map and the bounds of their log."""
        topics = self._client.metadata([self._topic, *sorted({tp.topic for tp in tps})]).topics
        if topics[self._topic].error:
            return  # this is no target of Twinlog's
        if self._reader is None:
            partitions = len(topics[self._topic].partitions)
            self._reader = MapReader(self._client, self._topic, partitions)
        starts = admin.list_offsets(self._client, tps, admin.EARLIEST)
        # before the map: `mirror.map.translation`, rule A
        ends = admin.list_offsets(self._client, tps, admin.LATEST)
        maps: dict[tuple[str, int], PartitionMap] = {}
        for key, known in self._reader.read().items():
            # one remote topic has one source topic; were it ever two, the newer one counts
            if key.branches:
                continue  # no offset of its source partition says where it is
            place = (key.target_topic_id, key.partition)
            if place not in maps or maps[place].term < known.term:
                maps[place] = known
        for tp in tps:
            start, end = starts[tp], ends[tp]
            found = maps.get((topics[tp.topic].topic_id, tp.partition))
            if found is None or isinstance(start, TwinlogError) or isinstance(end, TwinlogError):
                continue
            yield tp, found, (start.offset, end.offset)
