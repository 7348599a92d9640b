"""Reads the offset syncs that a MirrorMaker 2 wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, offset_at
from twinlog.cluster.topics.internal_log import ends_of_logs
from twinlog.config.flow.schema import FlowConfig
from twinlog.errors import CorruptData, Unauthorized
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.mirror.names.filters import offset_syncs_topic
from twinlog.model import TopicPartition
from twinlog.survey.committed_log import read_committed
from twinlog.wire.mm2_records import OffsetSync

Pairs = Mapping[TopicPartition, Sequence[Pair]]
"""By source partition, in the order in which they were written."""

NO_PAIRS: Final[Pairs] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncsTopic:
    """The topic of the offset syncs, and its cluster."""

    name: str
    on_target: bool

    @classmethod
    def of(cls, flow: FlowConfig) -> SyncsTopic | None:
        """Return the topic, or None if emit.offset-syncs.enabled=false."""
        if flow.offset_syncs is None:
            return None
        syncs = flow.offset_syncs
        return cls(name=offset_syncs_topic(flow, syncs), on_target=syncs.on_target)


def read_pairs(client: ClusterClient, topic: str) -> tuple[Pairs, str]:
    """Return all offset syncs of the topic, and why they cannot be read, or an empty text. There
    are none if the topic does not exist. Records that are no offset syncs are ignored.
    """
    try:
        return _read(client, topic), ""
    except Unauthorized as error:
        return NO_PAIRS, str(error)


def _read(client: ClusterClient, topic: str) -> Pairs:
    if client.metadata([topic]).topics[topic].error:
        return NO_PAIRS
    tp = TopicPartition(topic, 0)
    start = offset_at(client, tp, EARLIEST)
    out: dict[TopicPartition, list[Pair]] = {}
    for _, records in read_committed(client, tp, start, ends_of_logs(client, [tp])[tp]):
        for record in records:
            try:
                sync = OffsetSync.decode(record.key, record.value)
            except CorruptData:
                continue
            pair = Pair(sync.upstream_offset, sync.downstream_offset)
            out.setdefault(sync.topic_partition, []).append(pair)
    return out
