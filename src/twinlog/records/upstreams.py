"""Reads the offset maps of the ranges that a query reads, for the column `_upstream`.

The maps are on the cluster that is read, which is a mirror's target; no other cluster is queried.
The planning process reads the maps after the ends of the ranges are known (`mirror.map.origins`,
rule A). It passes each task the part of the maps for its ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.errors import Unsupported, or_raise
from twinlog.mirror.map.offset_map import PartitionMap
from twinlog.mirror.map.origins import Origin, origin_of
from twinlog.mirror.names.naming import STATE_TOPIC, map_topic_of
from twinlog.model import NO_TOPIC_ID, Flow, TopicPartition
from twinlog.records.bounds import option_error
from twinlog.records.gaps import OffsetRange
from twinlog.survey.cluster_state import find_upstream
from twinlog.survey.map_reader import MapReader
from twinlog.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION

OPTION = "upstream"

Maps = Mapping[TopicPartition, Sequence[tuple[str, PartitionMap]]]


class UpstreamMaps:
    """The offset maps of flows from several sources.

    A source is given by its alias in the names of remote topics, or by its name in the mirror's
    configuration. Later calls of `of` read only the rows that were added since the previous call.
    """

    def __init__(self, client: ClusterClient, aliases: Sequence[str]) -> None:
        self._client = client
        self._readers = {alias: self._reader(alias) for alias in aliases}

    def _reader(self, alias: str) -> MapReader:
        upstream = find_upstream(self._client, alias)
        name = map_topic_of(Flow(alias, "") if upstream is None else upstream.flow)
        topic = self._client.metadata([name]).topics[name]
        if topic.error == UNKNOWN_TOPIC_OR_PARTITION:
            raise option_error(
                OPTION,
                f"cluster {self._client.alias} has no topic {name}, or the user may not see it",
                f"if {alias} is not the source's alias in remote topics, write that alias; else "
                f"grant READ on topics {name} and {STATE_TOPIC}",
            )
        return MapReader(self._client, name, len(topic.partitions))

    def of(self, ranges: Sequence[OffsetRange]) -> list[tuple[Origin, ...]]:
        """For each range, return the parts of the offset maps from which a task computes
        `_upstream`. Must be called after the ends of the ranges were queried. Raises TwinlogError.
        """
        tps = sorted({span.tp for span in ranges})
        log_ends = list_offsets(self._client, tps, LATEST)
        ends = {tp: or_raise(end).offset for tp, end in log_ends.items()}
        maps = self._maps(tps)
        return [
            tuple(
                origin
                for alias, partition_map in maps[span.tp]
                if (origin := origin_of(partition_map, alias, span.first, span.end, ends[span.tp]))
                is not None
            )
            for span in ranges
        ]

    def _maps(self, tps: Sequence[TopicPartition]) -> Maps:
        topics = self._client.metadata(sorted({tp.topic for tp in tps})).topics.values()
        names = {topic.topic_id: topic.name for topic in topics}
        if NO_TOPIC_ID in names:
            raise Unsupported(
                f"cluster {self._client.alias}: the brokers have no topic IDs, which the offset "
                f"map needs to find {names[NO_TOPIC_ID]}: the option upstream needs Kafka 2.8 or "
                "newer"
            )
        wanted, out = set(tps), defaultdict[TopicPartition, list[tuple[str, PartitionMap]]](list)
        for alias, reader in self._readers.items():
            maps = reader.read()
            maps.require_all()
            for key, partition_map in maps.items():
                topic = names.get(key.target_topic_id)
                if topic is None:
                    continue
                if key.branches:
                    raise option_error(
                        OPTION,
                        f"the mirror places records of {partition_map.topic} in {topic} by their "
                        "keys, and the offset map does not have their positions",
                        "remove the option, or join by key and value",
                    )
                if (tp := TopicPartition(topic, key.partition)) in wanted:
                    out[tp].append((alias, partition_map))
        return out
