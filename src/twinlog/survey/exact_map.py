"""Exact translation of offsets, by the offset map on the target. No other cluster is queried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.raw_log import batch_from, fetch_partition
from twinlog.cluster.net.metadata import TopicMetadata
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.mirror.map.foreign_records import BorderUnknown
from twinlog.mirror.map.offset_map import Term
from twinlog.mirror.map.translation import Translation
from twinlog.mirror.names.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    map_topic_of,
)
from twinlog.mirror.state.generations import CLAIMS, winning_claims
from twinlog.model import NO_TOPIC_ID, Flow, TopicId, TopicPartition
from twinlog.survey.ends import NO_ENDS, Want
from twinlog.survey.map_reader import MapReader
from twinlog.survey.picture import read_flow, why_no_rows
from twinlog.survey.replica import Certainty, Replica, by_headers, pair_of_target
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
        """Partitions of the last call that were copied only from an earlier topic. The source now
        has another topic with the same name.
        """

    def downstream(
        self,
        upstream: Mapping[TopicPartition, int],
        source_ids: Mapping[str, TopicId] = NO_IDS,
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets of the source to offsets on this cluster.

        `upstream` and the result have partitions of this cluster as keys. `source_ids`: topic IDs
        on the source, by name, if the caller queried them. Partitions that were copied only from an
        earlier topic of the same name are left out.
        """
        replicas = self._replicas(list(upstream), source_ids)
        translated = {tp: replica.to_target(upstream[tp]) for tp, replica in replicas}
        return {
            tp: translation for tp, translation in translated.items() if translation is not None
        }

    def upstream(
        self,
        downstream: Mapping[TopicPartition, int],
        source_ids: Mapping[str, TopicId] = NO_IDS,
    ) -> dict[TopicPartition, Translation]:
        """Translate offsets on this cluster to offsets of the source, as `downstream` does."""
        replicas = self._replicas(list(downstream), source_ids)
        translated = {tp: replica.to_source(downstream[tp]) for tp, replica in replicas}
        return {
            tp: translation for tp, translation in translated.items() if translation is not None
        }

    def names_at_source(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the source names of topics of this cluster, without topics that are no copies.

        Names come from map rows by the topic's ID, because a flow may rename topics.
        """
        metadata = self._client.metadata(sorted({self._topic, *topics})).topics
        names = self._names(metadata)
        return {t: names[metadata[t].topic_id] for t in topics if metadata[t].topic_id in names}

    def local_names(self, plain: Mapping[str, str]) -> dict[str, str]:
        """Return the names of source topics on this cluster, by source name.

        `plain` has the names that the policy alone would give. Names in the map take precedence. If
        a name in `plain` is the copy of another topic, and the map has no other name, the source
        topic is left out.
        """
        known = self.names_at_source(set(plain.values()))
        odd = {name for name, local in plain.items() if known.get(local) != name}
        out = {
            name: local for name, local in plain.items() if local not in known or name not in odd
        }
        if odd:
            metadata = self._client.metadata(None).topics
            names = self._names(metadata)
            for local, topic in metadata.items():
                name = names.get(topic.topic_id)
                if name is not None and name in odd:
                    out[name] = local
        return out

    def _names(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicId, str]:
        """Return the source topic's name for each topic ID of this cluster (the target), from the
        newest term in the offset map. Empty if there is no map, or if the brokers have no topic
        IDs.
        """
        reader = self._map(topics)
        newest: dict[TopicId, tuple[Term, str]] = {}
        for key, partition_map in reader.read().items() if reader is not None else ():
            newest_name = partition_map.term, partition_map.topic
            if key.target_topic_id != NO_TOPIC_ID and partition_map.topic:
                newest[key.target_topic_id] = max(
                    newest_name, newest.get(key.target_topic_id, newest_name)
                )
        return {topic_id: name for topic_id, (_, name) in newest.items()}

    def _map(self, topics: Mapping[str, TopicMetadata]) -> MapReader | None:
        """Return the map's reader, or None if the flow never copied anything to this cluster.
        Raises TwinlogError if the flow did, but the map topic is missing or hidden from this user.
        """
        topic = topics.get(self._topic)
        if topic is None or topic.error:
            problem = why_no_rows(self._client, self._flow)
            if problem is not None:
                raise problem
            return None
        if self._reader is None:
            self._reader = MapReader(self._client, self._topic, len(topic.partitions))
        return self._reader

    def _replicas(
        self, tps: Sequence[TopicPartition], source_ids: Mapping[str, TopicId]
    ) -> Iterator[tuple[TopicPartition, Replica]]:
        """Yield (partition on this cluster, state of the copy) for each copied partition."""
        topics = self._client.metadata([self._topic, *sorted({tp.topic for tp in tps})]).topics
        reader = self._map(topics)
        self.recreated = ()
        if reader is None:
            return
        picture = read_flow(
            self._client,
            tps,
            Want.STARTS if self._is_shared else Want.STARTS | Want.PRODUCERS,
            after=NO_ENDS,
            is_shared=self._is_shared,
            new_owners=self._new_owners,
            maps=reader.read,
        )
        for tp in tps:
            pair = pair_of_target(picture.maps, tp, topics[tp.topic].topic_id, source_ids)
            if pair is None:
                continue
            replica = picture.replica(pair)
            if replica.problem is not None and replica.problem.code == "SOURCE_RECREATED":
                self.recreated += (tp,)
            yield tp, self._with_border(replica)

    def _with_border(self, replica: Replica) -> Replica:
        """Return the state of the copy, with its exact end if batch headers show this end."""
        if replica.copied.certainty is not Certainty.AT_LEAST or self._is_shared:
            return replica
        read = partial(fetch_partition, self._client)
        try:
            return by_headers(replica, partial(batch_from, read, replica.pair.target))
        except (BorderUnknown, TwinlogError):
            return replica

    def _new_owners(self) -> Callable[[str], bool]:
        """Return a function that returns True if other clients may write to a source topic's copy.

        The function uses the current rows of the state topic. If this user is not permitted to read
        these rows, the function always returns True.
        """
        try:
            rows = state_rows_if_any(self._client)
        except Unauthorized:
            return lambda _: True
        claims = winning_claims(rows.of_kinds(*CLAIMS))
        names = [name for name in claims if Flow.of(name).source == self._flow.source]
        owners = [rows.intents(name).new_owners for name in names]
        return lambda topic: any(has_new_owners(topic) for has_new_owners in owners)
