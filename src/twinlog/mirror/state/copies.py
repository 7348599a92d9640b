"""Which topics of a cluster are copies, of what and by whom: records of the state topic beside the
claims.

A name says where a topic came from only under the default policy, and only to those who use the
same aliases and separators. A row says it by ids: this topic of this cluster holds records of that
topic of that cluster. It is written by the flow that copies, on its target, before the topic is
made, and once more, with the topic's id, before a lane hears of it. So whoever reads the topic
finds it there before its first record:

- the writer dies behind the row, or its answer is lost: the row says more than there is, the next
  start of the flow writes the same one, and a reader has held back what was to come anyway;
- a zombie writes it: it says the same, for the flow and its clusters are the same;
- rows of a flow and topic have one key: compaction keeps the newest;
- the topic is deleted and created again by somebody else: its id is another one, the row is void.

`lineage` are the clusters through which the records had come before they were at the source. The
flow finds it in its source's own rows, so that a ring closes for nobody: who would bring records
back to a cluster finds that cluster's id there, however the aliases and topics are named.

A row that has `ended` is void too: the flow writes that topic no more. That is how a topic may
change its direction (ADR 12).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from twinlog.mirror.state.generations import encode_row, read_row
from twinlog.model import NO_TOPIC_ID, TopicId

COPY: Final = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """One topic that one flow writes, or is about to."""

    flow: str
    topic: str
    """On the target; empty where only its id is known."""
    topic_id: TopicId = NO_TOPIC_ID
    """The zero id: not made yet, or the brokers have none."""
    target_cluster_id: str
    source_cluster_id: str
    source_topic: str
    source_topic_id: TopicId
    lineage: tuple[str, ...] = ()
    """Ids of clusters, sorted; without the source's own."""
    begun: bool = False
    """Lanes may have written to it; before that it is an intention, which may be taken back."""
    ended: bool = False
    source_alias: str = ""
    """The source's alias in names of remote topics; empty and not written if it is the source's
    name in the flow's name.
    """
    renamed: bool = False
    """`twinlog.rename` gave the topic another name; written only where it did, so that rows of
    other topics are what they were."""

    @property
    def is_live(self) -> bool:
        """True if lanes may have written to the topic, and the copy has not ended."""
        return self.begun and not self.ended

    def encode(self) -> tuple[bytes, bytes]:
        value: dict[str, object] = {
            "topic_id": self.topic_id,
            "target_cluster_id": self.target_cluster_id,
            "source_cluster_id": self.source_cluster_id,
            "source_topic": self.source_topic,
            "source_topic_id": self.source_topic_id,
            "lineage": list(self.lineage),
            "begun": self.begun,
            "ended": self.ended,
        }
        if self.source_alias:
            value["source_alias"] = self.source_alias
        if self.renamed:
            value["renamed"] = True
        return encode_row(["flow", self.flow, COPY, self.topic], value)

    def is_of(self, topic: str, topic_id: TopicId) -> bool:
        """Whether it speaks of this topic, and not of an earlier one of that name."""
        if self.topic and self.topic != topic:
            return False
        if NO_TOPIC_ID in (self.topic_id, topic_id):
            return bool(self.topic)
        return self.topic_id == topic_id

    def is_from(self, cluster_id: str, topic: str, topic_id: TopicId) -> bool:
        """Whether it is a copy of this topic."""
        if NO_TOPIC_ID in (self.source_topic_id, topic_id):
            return self.source_topic == topic and self.source_cluster_id == cluster_id != ""
        return self.source_topic_id == topic_id

    @property
    def origins(self) -> frozenset[str]:
        """All clusters where these records were before."""
        return frozenset(one for one in (self.source_cluster_id, *self.lineage) if one)


def copy_rows(
    records: Iterable[tuple[bytes | None, bytes | None]],
) -> dict[tuple[str, str], CopyRow]:
    """The newest row by flow and topic, from (key, value) in log order; ended ones too."""
    out: dict[tuple[str, str], CopyRow] = {}
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[2] == COPY:
            out[parts[1], parts[3]] = CopyRow(
                flow=parts[1],
                topic=parts[3],
                topic_id=TopicId(fields["topic_id"]),
                target_cluster_id=fields["target_cluster_id"],
                source_cluster_id=fields["source_cluster_id"],
                source_topic=fields["source_topic"],
                source_topic_id=TopicId(fields["source_topic_id"]),
                lineage=tuple(fields["lineage"]),
                begun=fields["begun"],
                ended=fields["ended"],
                source_alias=fields.get("source_alias", ""),
                renamed=fields.get("renamed", False),
            )
    return out
