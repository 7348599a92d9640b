"""Which topics of a cluster are copies, and of which topics: rows of the state topic.

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
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twinlog.mirror.state.state_row import StateRow, read_rows, row
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
