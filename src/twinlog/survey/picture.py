"""Reads from both clusters of a flow what a caller needs, once and in one fixed order.

| step | what | why in this order |
| --- | --- | --- |
| 1 | the source's ends (`read_ends`) | a copy up to them lacks no record of that moment |
| 2 | the target's ends | before producers and map, which must not be older |
| 3 | producer states | see below |
| 4 | the offset map | rule A of `mirror.map.translation`: its rows precede their data |
| 5 | the state topic, if a result depends on it | it has every promotion from before step 2 |
| 6 | the target's ends again (`later`), if asked | a copy beyond the second end shows a loss |

A batch that arrives after step 2 has a sequence ahead of the ends, by which step 3 recognizes it as
the flow's. If producer states were read before the ends, the flow's last records would count as
foreign.

Types enforce the order: `Ends` come from `read_ends` alone, `read_flow` requires those of the
source, and `read_maps` those of the target. Offsets of consumer groups are read before step 1,
because a commit that is read after the ends may be beyond the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.producers import known_producers
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import map_topic_of
from twinlog.mirror.plan import PartitionPair
from twinlog.model import Flow, TopicPartition
from twinlog.survey.ends import NO_ENDS, Ends, Want, read_ends
from twinlog.survey.map_reader import map_missing_error, map_reader
from twinlog.survey.replica import NOT_READ, Maps, Ownership, Replica
from twinlog.survey.replica import replica as replica_of
from twinlog.survey.rights import denied_error
from twinlog.survey.state_reader import state_rows_if_any
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

NewOwners = Callable[[str], bool]
"""Returns True if other clients may write to the copy of a source topic."""


class Picture(NamedTuple):
    """The logs of one flow's partitions and their offset maps, read within a few seconds."""

    source: Ends
    target: Ends
    maps: Maps
    ownership: Ownership
    later: Ends = NO_ENDS
    """The target's ends, read again after the map."""

    def replica(self, pair: PartitionPair, targets: int | None = None) -> Replica:
        """Return how far one partition is copied, with the evidence (`survey.replica.replica`)."""
        return replica_of(
            pair,
            self.maps,
            self.ownership,
            source=self.source.get(pair.source, NOT_READ),
            target=self.target.get(pair.target, NOT_READ),
            later=self.later.get(pair.target, NOT_READ),
            targets=targets,
        )


def read_flow(  # noqa: PLR0913 (keyword-only)
    client: ClusterClient,
    tps: Iterable[TopicPartition],
    want: Want = Want.ENDS,
    *,
    after: Ends,
    is_shared: bool,
    new_owners: Callable[[], NewOwners],
    maps: Flow | Callable[[], Maps],
    metadata: ClusterMetadata | None = None,
) -> Picture:
    """Read what `want` names from the target of a flow. `after` are the source's ends.

    `new_owners` reads the state topic. It is called once, when a result depends on it. `maps`: the
    flow, or a function that reads its map. `metadata`: metadata of the target. Raises TwinlogError
    if the target cannot be queried.
    """
    target = read_ends(client, tps, want)
    producers = known_producers(client, target) if Want.PRODUCERS in want else {}
    owners = cache(new_owners)

    def has_new_owners(topic: str) -> bool:
        return owners()(topic)

    ownership = Ownership(is_shared, producers, has_new_owners)
    maps_read = (
        read_maps(client, maps, metadata, after=target) if isinstance(maps, Flow) else maps()
    )
    return Picture(source=after, target=target, maps=maps_read, ownership=ownership)


def read_maps(
    client: ClusterClient, flow: Flow, metadata: ClusterMetadata | None = None, *, after: Ends
) -> Maps:
    """Return the maps of all partitions that a flow copied to this cluster, not older than `after`.

    The result is empty if the flow has copied nothing. If this user is not permitted to read the
    map topic, each partition has this problem. The same applies if the topic is missing although
    the flow has copied something. `metadata`: metadata of the cluster. Raises as `MapReader.read`
    does.
    """
    del after  # `after` is not used: a caller that can pass it has read the ends first
    name = map_topic_of(flow)
    topic = (client.metadata([name]) if metadata is None else metadata).topics.get(name)
    if topic is None or topic.error:
        problem = why_no_rows(client, flow)
        return Maps({}, {} if problem is None else {0: problem}, 1)
    return map_reader(client, topic).read(client)


def why_no_rows(client: ClusterClient, flow: Flow) -> TwinlogError | None:
    """Return why the map topic of a flow is not visible, or None if the flow never copied anything.
    Raises TwinlogError if the state topic cannot be read.
    """
    name = map_topic_of(flow)
    if client.metadata([name]).topics[name].error == TOPIC_AUTHORIZATION_FAILED:
        return denied_error(client.alias, Operation.READ.name, name)
    rows = state_rows_if_any(client).copies.values()
    has_copied = any(row.is_live and Flow.of(row.flow).source == flow.source for row in rows)
    return map_missing_error(name) if has_copied else None
