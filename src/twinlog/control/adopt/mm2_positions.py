"""Reads the positions (offset storage topic) and the offset syncs that a MirrorMaker 2 wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import readable_ends
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.errors import AdoptionRefused, CorruptData, Unauthorized
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.model import TopicPartition
from twinlog.survey.committed_log import read_committed
from twinlog.survey.ends import log_bounds, log_starts
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED
from twinlog.wire.mm2_records import OffsetSync, PositionKey, decode_position
from twinlog.wire.records import Record


@dataclass(slots=True, kw_only=True)
class Positions:
    """The positions of one connector in an offset storage topic."""

    partitions: int
    """Partition count of the offset storage topic."""
    noted: dict[TopicPartition, int] = field(default_factory=dict)
    """Upstream offset of the last record that was committed as copied, by source partition."""
    others: set[str] = field(default_factory=set)
    """Names of other connectors that have positions of the same source cluster."""


def read_positions(target: ClusterClient, storage: OffsetStorage) -> Positions:
    """Read the offset storage topic to its end. Raises AdoptionRefused if it does not exist."""
    topic = target.metadata([storage.topic]).topics[storage.topic]
    if topic.error:
        hidden = topic.error == TOPIC_AUTHORIZATION_FAILED
        or_hidden = " (or this user may not see it: grant READ on it)" if hidden else ""
        raise AdoptionRefused(
            f"{target.alias}: there is no topic {storage.topic}{or_hidden}. A MirrorMaker 2 of "
            "this configuration stores its positions in this topic. Correct offset.storage.topic, "
            "or leave out --adopt-mm2",
            code="MM2_NOT_FOUND",
        )
    tps = [TopicPartition(storage.topic, number) for number in range(len(topic.partitions))]
    ends, starts = readable_ends(target, tps), log_starts(target, tps)
    positions = Positions(partitions=len(tps))
    for tp in tps:
        for _, records in read_committed(target, tp, starts[tp], ends[tp]):
            for record in records:
                _apply(positions, record, storage)
    return positions


def _apply(positions: Positions, record: Record, storage: OffsetStorage) -> None:
    key = PositionKey.decode(record.key)
    if key is None or key.cluster != storage.cluster:
        return
    if key.connector != storage.connector:
        positions.others.add(key.connector)
        return
    offset = decode_position(record.value)
    if offset is None:
        positions.noted.pop(key.source, None)
    else:
        positions.noted[key.source] = offset


Pairs = Mapping[TopicPartition, Sequence[Pair]]
"""Offset pairs by source partition, in the order in which they were written."""

NO_PAIRS: Final[Pairs] = {}


def read_pairs(client: ClusterClient, topic: str) -> tuple[Pairs, str]:
    """Return the topic's offset syncs, or none if the topic does not exist. The second value is the
    error if this user must not read the topic, else empty. Other records are ignored.
    """
    tp, out = TopicPartition(topic, 0), dict[TopicPartition, list[Pair]]()
    try:
        if client.metadata([topic]).topics[topic].error:
            return NO_PAIRS, ""
        for _, records in read_committed(client, tp, *log_bounds(client, tp)):
            for record in records:
                with suppress(CorruptData):
                    sync = OffsetSync.decode(record.key, record.value)
                    pair = Pair(sync.upstream_offset, sync.downstream_offset)
                    out.setdefault(sync.topic_partition, []).append(pair)
    except Unauthorized as error:
        return NO_PAIRS, str(error)
    return out, ""
