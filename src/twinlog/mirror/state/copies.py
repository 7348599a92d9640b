"""Rows of the state topic about the copies on a cluster: which topics are copies, and which copies
have rows in the offset map.

**Copies**

A topic's name shows its origin only under the default policy, and only to clients that use the same
aliases and separators. A row of the state topic shows the origin by IDs: of the copy, of its
cluster, of the source topic, and of the source cluster. The flow that copies writes the row on its
target before the topic is created, and again, with the topic's ID, before a lane uses the topic. So
a reader of the topic finds the row before the topic's first record:

- *The writer dies after the row, or its response is lost*: the row announces a topic that may not
  exist yet. The next start of the flow writes the same row. Until then, the only effect is that a
  reader ignores a topic of this name, which would become a copy anyway.
- *A process that no longer leads writes the row*: it has the same content, because flow and
  clusters are the same.
- *Rows of a flow and topic have the same key*: compaction keeps the newest.
- *The topic is deleted and created again by another client*: it has a different ID, so the row is
  void.

`lineage` lists the clusters that the records passed before they were at the source. The flow reads
it from the rows on its source. So no ring of flows can arise, because a flow that would bring
records back to a cluster finds that cluster's ID in the lineage, whatever the names of aliases and
topics are.

A row with `ended` is void, too, because the flow no longer writes to the topic. So the direction in
which a topic is mirrored can change (ADR 12).

**Copies with a map** (`MappedCopies`)

A partition without a row in the map is started like a new one. That must not happen to a partition
whose rows were lost, or all its records would be copied a second time. Rows can be lost if the map
topic was not compacted for a while, lost its end, or was deleted. So the flow writes to the state
topic which partitions of a copy have rows in the map, as soon as it has read these rows. A copy is
identified by both topic IDs, so if either topic is re-created, its copy is a different one.

- *The process dies before the row*: the next round writes it. If the process dies after the row, or
  the response is lost, the row is written again with the same content.
- *A process that no longer leads writes an older row*: the row lists fewer partitions, never too
  many. So readers combine all rows that compaction has left.
- *The state topic loses the row, or is re-created*: fewer partitions are known to have rows until
  the running flow writes the row again.

A row states how many consecutive partitions, from partition 0 on, have rows in the map. It also
lists the partitions after these that have rows, because a partition that waits for its leader must
not hide later ones. If the map topic itself was found deleted, a `map-lost` row lists the target
topics whose partitions had rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.state.state_row import Rows, StateRow, encode_row, read_rows, row
from twinlog.model import NO_TOPIC_ID, TopicId

COPY: Final = "copy"


@row(COPY, key=("topic",), sparse=("source_alias", "renamed"))
class CopyRow(StateRow, frozen=True, kw_only=True):
    """One topic to which a flow writes, or is about to write."""

    topic: str
    """Name on the target, or empty if only the topic's ID is known."""
    topic_id: TopicId
    """ID on the target, or the zero ID if the topic is not created yet or has no ID."""
    target_cluster_id: str
    source_cluster_id: str
    source_topic: str
    source_topic_id: TopicId
    lineage: tuple[str, ...]
    """Sorted IDs of the clusters that the records passed before they were at the source."""
    begun: bool
    """Whether lanes may have written to the topic. If False, the row may still be removed."""
    ended: bool
    """Whether the flow has stopped writing to the topic, which voids the row."""
    source_alias: str = ""
    """The source's alias in names of remote topics. Empty, and not written, if the alias is the
    same as in the flow's name.
    """
    renamed: bool = False
    """Whether `twinlog.rename` gave the topic another name. Only written if True, so that rows of
    other topics do not change.
    """

    @property
    def is_live(self) -> bool:
        """Whether lanes may have written to the topic, and the copy has not ended."""
        return self.begun and not self.ended

    def is_of(self, topic: str, topic_id: TopicId) -> bool:
        """Return True if the row is for the topic with this name and ID, not for an earlier topic
        of the same name.
        """
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
        """IDs of all known clusters that the topic's records have passed, including the source."""
        return frozenset(
            cluster_id for cluster_id in (self.source_cluster_id, *self.lineage) if cluster_id
        )


def copy_rows(records: Rows) -> dict[tuple[str, str], CopyRow]:
    """Return the newest row of each flow and topic, including those of copies that have ended."""
    out: dict[tuple[str, str], CopyRow] = {}
    for parts, fields in read_rows(records):
        if parts[2] == COPY:
            copy = CopyRow.decode(parts, fields)
            out[copy.flow, copy.topic] = copy
    return out


_KIND: Final = "mapped"
_LOST: Final = "map-lost"
MAPPED: Final = (_KIND, _LOST)
"""Kinds of rows about copies that have, or had, rows in the map."""

Copy = tuple[TopicId, TopicId]
"""(ID of the source topic, ID of the target topic)"""


@dataclass(slots=True)
class MappedCopies:
    """The copies of one flow that are known to have rows in the offset map, or to have had them."""

    partitions: dict[Copy, frozenset[int]] = field(default_factory=dict)
    """Partitions that are known to have had rows in the map, by copy."""
    lost: set[TopicId] = field(default_factory=set)
    """IDs of target topics whose rows were lost with the map topic."""

    def has_row(self, source: TopicId, target: TopicId, partition: int) -> bool:
        """Return True if this partition of the copy from topic `source` to topic `target` is known
        to have had a row in the map.
        """
        return target in self.lost or partition in self.partitions.get((source, target), ())

    def was_copied_to(self, target: TopicId, partition: int) -> bool:
        """Return True if any copy to this partition of the target topic is known to have had a row
        in the map.
        """
        noted = (
            noted_partitions
            for (_, target_id), noted_partitions in self.partitions.items()
            if target_id == target
        )
        return target in self.lost or any(partition in partitions for partitions in noted)


def noting_rows(flow: str, copy: Copy, partitions: Collection[int]) -> tuple[bytes, bytes]:
    """Return (key, value) of the state topic row which states that these partitions of the copy
    have rows in the map.
    """
    count = next(number for number in itertools.count() if number not in partitions)
    fields: dict[str, object] = {"partitions": count}
    if others := sorted(partition for partition in partitions if partition > count):
        fields["others"] = others
    return encode_row(["flow", flow, _KIND, *copy], fields)


def losing_map(flow: str, generation: int, targets: Iterable[TopicId]) -> tuple[bytes, bytes]:
    """Return (key, value) of the state topic row which states that the leader of this generation
    found the offset map topic deleted, and re-creates that topic.

    `targets`: IDs of the target topics about which the deleted topic had rows.
    """
    return encode_row(["flow", flow, _LOST, generation], {"targets": sorted(targets)})


def mapped_copies(flow: str, records: Rows) -> MappedCopies:
    """Return what all rows of the flow state about rows of its copies in the map. `records`: (key,
    value) of the state topic, in any order.
    """
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
    """Return True if both IDs are known, so that they identify a copy. Old brokers have no IDs."""
    return NO_TOPIC_ID not in (source, target)
