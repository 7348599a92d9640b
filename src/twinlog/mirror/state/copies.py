"""The copies on a cluster: which topics are copies, and which copies have rows in the offset map.
Rows of the state topic.

**Copies**

A topic's name shows its origin only under the default policy, and only to clients that use the same
aliases and separators. A row shows it by ID: this topic of this cluster holds records of that topic
of that cluster. The flow that copies writes the row on its target before the topic is created, and
again, with the topic's ID, before a lane uses the topic. So a reader of the topic finds the row
before the topic's first record:

- *The writer dies after the row, or its response is lost*: the row announces a topic that may not
  exist yet. The next start of the flow writes the same row, and until then a reader only ignores a
  topic that would become a copy anyway.
- *A process that no longer leads writes the row*: it has the same content, because flow and
  clusters are the same.
- *Rows of a flow and topic have the same key*: compaction keeps the newest.
- *The topic is deleted and created again by another client*: it has a different ID, so the row is
  void.

`lineage` lists the clusters that the records passed before they were at the source. The flow takes
it from the rows of its source. So no ring of flows can arise: a flow that would bring records back
to a cluster finds that cluster's ID there, whatever the aliases and topics are called.

A row that has `ended` is void, too: the flow no longer writes to that topic. This allows a topic to
change its direction (ADR 12).

**Copies with a map** (`MappedCopies`)

A partition without a row in the map begins again. That must not happen to one whose rows were lost
because their topic was not compacted for a while, lost its end, or was deleted: everything would be
copied a second time. So the flow notes which partitions of a copy have rows, as soon as it has seen
them. A copy is a pair of topic IDs: a topic that is re-created on either side is a different copy.

- *The process dies before the row*: the next round writes it. It dies after the row, or its
  response is lost: the row is written again with the same content.
- *A process that no longer leads writes an older row*: it lists fewer partitions, never too many.
  So all rows that compaction leaves are combined.
- *The state topic loses the row, or is re-created*: less is known, as before it was written. The
  running flow writes it again.

A row has the number of consecutive partitions with rows in the map, from the first one on, and
lists the others, because a partition that waits for its leader must not hide later ones. `map-lost`
states the same for all partitions of a topic, if the map topic itself was found deleted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.state.state_row import StateRow, encode_row, read_rows, row
from twinlog.model import NO_TOPIC_ID, TopicId

COPY: Final = "copy"


@row(COPY, key=("topic",), sparse=("source_alias", "renamed"))
class CopyRow(StateRow, frozen=True, kw_only=True):
    """One topic to which a flow writes, or is about to write."""

    topic: str
    """Name on the target, or empty if only its ID is known."""
    topic_id: TopicId
    """ID on the target; the zero ID for a topic that is not created, or without an ID."""
    target_cluster_id: str
    source_cluster_id: str
    source_topic: str
    source_topic_id: TopicId
    lineage: tuple[str, ...]
    """Cluster IDs, sorted, without the source's own."""
    begun: bool
    """Whether lanes may have written to it. Before that the row may be withdrawn."""
    ended: bool
    """Whether the flow has stopped writing to it, which voids the row."""
    source_alias: str = ""
    """The source's alias in names of remote topics; empty and not written if it is the source's
    name in the flow's name.
    """
    renamed: bool = False
    """Whether `twinlog.rename` gave the topic another name. Only written if it did, so that rows of
    other topics do not change.
    """

    @property
    def is_live(self) -> bool:
        """Whether lanes may have written to the topic, and the copy has not ended."""
        return self.begun and not self.ended

    def is_of(self, topic: str, topic_id: TopicId) -> bool:
        """Return whether it is for this topic, and not for an earlier one of the same name."""
        if self.topic and self.topic != topic:
            return False
        if NO_TOPIC_ID in (self.topic_id, topic_id):
            return bool(self.topic)
        return self.topic_id == topic_id

    def is_from(self, cluster_id: str, topic: str, topic_id: TopicId) -> bool:
        if NO_TOPIC_ID in (self.source_topic_id, topic_id):
            return self.source_topic == topic and self.source_cluster_id == cluster_id != ""
        return self.source_topic_id == topic_id

    @property
    def origins(self) -> frozenset[str]:
        """All clusters that these records passed before."""
        return frozenset(
            cluster_id for cluster_id in (self.source_cluster_id, *self.lineage) if cluster_id
        )


def copy_rows(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> dict[tuple[str, str], CopyRow]:
    """Return the newest row by flow and topic, also ended ones, from (key, value)."""
    out: dict[tuple[str, str], CopyRow] = {}
    for parts, fields in read_rows(records):
        if parts[2] == COPY:
            copy = CopyRow.decode(parts, fields)
            out[copy.flow, copy.topic] = copy
    return out


_KIND: Final = "mapped"
_LOST: Final = "map-lost"

Copy = tuple[TopicId, TopicId]
"""IDs of the source and the target topic."""


@dataclass(slots=True)
class MappedCopies:
    """The copies of one flow that are known to have rows."""

    partitions: dict[Copy, frozenset[int]] = field(default_factory=dict)
    """Partitions that have rows."""
    lost: set[TopicId] = field(default_factory=set)
    """IDs of target topics whose rows were lost with the map topic."""

    def has_row(self, source: TopicId, target: TopicId, partition: int) -> bool:
        """Return whether this partition of the copy between the two topics had a row."""
        return target in self.lost or partition in self.partitions.get((source, target), ())

    def was_copied_to(self, target: TopicId, partition: int) -> bool:
        """Return whether any copy had a row for this partition of the target topic."""
        noted = (
            noted_partitions
            for (_, target_id), noted_partitions in self.partitions.items()
            if target_id == target
        )
        return target in self.lost or any(partition in partitions for partitions in noted)


def noting_rows(flow: str, copy: Copy, partitions: Collection[int]) -> tuple[bytes, bytes]:
    """Return the row stating that these partitions of the copy have rows in the map."""
    count = next(number for number in itertools.count() if number not in partitions)
    fields: dict[str, object] = {"partitions": count}
    if others := sorted(partition for partition in partitions if partition > count):
        fields["others"] = others
    return encode_row(["flow", flow, _KIND, *copy], fields)


def losing_map(flow: str, generation: int, targets: Iterable[TopicId]) -> tuple[bytes, bytes]:
    """Return the row stating that this generation found the offset map topic deleted and re-creates
    it.

    The topic had rows of these target topics.
    """
    return encode_row(["flow", flow, _LOST, generation], {"targets": sorted(targets)})


def is_mapped_row(key: bytes, flow: str) -> bool:
    """Return whether a row of the state topic is of this kind and flow."""
    try:
        parts = json.loads(key)
        return bool(parts[1] == flow and parts[2] in (_KIND, _LOST))
    except (ValueError, LookupError, TypeError):
        return False


def mapped_copies(flow: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> MappedCopies:
    """Return everything that is noted for a flow, from (key, value) in any order."""
    out = MappedCopies()
    for parts, fields in read_rows(records):
        if parts[1] != flow:
            continue
        if parts[2] == _KIND:
            copy = TopicId(parts[3]), TopicId(parts[4])
            partitions = {*range(fields["partitions"]), *fields.get("others", ())}
            out.partitions[copy] = out.partitions.get(copy, frozenset()) | partitions
        elif parts[2] == _LOST:
            out.lost |= set(map(TopicId, fields["targets"]))
    return out


def is_known(source: TopicId, target: TopicId) -> bool:
    """Return whether the IDs identify this copy: brokers without topic IDs have none."""
    return NO_TOPIC_ID not in (source, target)
