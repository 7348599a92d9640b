"""MirrorMaker 2's own positions of a flow, from its offset storage topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import EARLIEST, list_offsets
from twinlog.cluster.topics.internal_log import ends_of_logs
from twinlog.config.flow.offset_storage import OffsetStorage
from twinlog.errors import AdoptionRefused, or_raise
from twinlog.model import TopicPartition
from twinlog.survey.committed_log import read_committed
from twinlog.wire.connect_positions import PositionKey, decode_position
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED
from twinlog.wire.records import Record


@dataclass(slots=True, kw_only=True)
class Positions:
    """The positions of one connector in an offset storage topic."""

    partitions: int
    """Partition count of the topic."""
    noted: dict[TopicPartition, int] = field(default_factory=dict)
    """Upstream offset of the last copied record, by source partition."""
    others: set[str] = field(default_factory=set)
    """Names of other connectors of the same kind, for the same source."""


def read_positions(target: ClusterClient, storage: OffsetStorage) -> Positions:
    """Read the topic to its end. Raises AdoptionRefused if it does not exist."""
    topic = target.metadata([storage.topic]).topics[storage.topic]
    if topic.error:
        hidden = topic.error == TOPIC_AUTHORIZATION_FAILED
        or_hidden = " (or this user may not see it: grant READ on it)" if hidden else ""
        raise AdoptionRefused(
            f"{target.alias}: there is no topic {storage.topic}{or_hidden}, in which a "
            "MirrorMaker 2 of this configuration keeps its positions: correct "
            "offset.storage.topic, or leave out --adopt-mm2",
            code="MM2_NOT_FOUND",
        )
    tps = [TopicPartition(storage.topic, number) for number in range(len(topic.partitions))]
    ends, starts = ends_of_logs(target, tps), list_offsets(target, tps, EARLIEST)
    found = Positions(partitions=len(tps))
    for tp in tps:
        start = or_raise(starts[tp])
        for _, records in read_committed(target, tp, start.offset, ends[tp]):
            for record in records:
                _apply(found, record, storage)
    return found


def _apply(found: Positions, record: Record, storage: OffsetStorage) -> None:
    key = PositionKey.decode(record.key)
    if key is None or key.cluster != storage.cluster:
        return
    if key.connector != storage.connector:
        found.others.add(key.connector)
        return
    offset = decode_position(record.value)
    if offset is None:
        found.noted.pop(key.source, None)
    else:
        found.noted[key.source] = offset
