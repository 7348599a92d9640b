"""Reads and writes rows of the offset map of a rig's flow, and creates records that need a row
each.
"""

from __future__ import annotations

from tests.support.client import read_all
from tests.support.rig import MAP_PARTITIONS, Rig
from tests.support.topics import offset_map_topic
from twinlog.cluster.topics.internal_log import append, read_to_end
from twinlog.mirror.map.offset_map import ChunkRow, map_partition
from twinlog.mirror.map.translation import Translation, downstream_within
from twinlog.model import TopicPartition
from twinlog.survey.replica import Witness, copied_below
from twinlog.wire.records import Record

HOLDS_ITS_DATA = """
import os
from twinlog.lane.sides.target_side import TargetSide
pump = TargetSide.pump
def hold(*arguments):
    if not os.path.exists({flag!r}):
        pump(*arguments)
TargetSide.pump = hold
"""


def rows(rig: Rig) -> list[ChunkRow]:
    """Return all map rows of the rig's partition, in log order."""
    topic = offset_map_topic(rig.alias)
    partition = map_partition(rig.here, MAP_PARTITIONS)
    return [
        ChunkRow.decode(r.key, r.value)
        for r in read_to_end(rig.target_client, topic, partition)
        if r.key is not None and r.value is not None
    ]


def write_row(rig: Rig, row: ChunkRow) -> None:
    home = TopicPartition(offset_map_topic(rig.alias), map_partition(rig.here, MAP_PARTITIONS))
    append(rig.target_client, home, [Record(0, rig.began_ms, *row.encode())])


def transactions(rig: Rig, numbers: range) -> None:
    """Write each record in its own transaction. The marker that follows it makes the next record
    begin a run.
    """
    for number in numbers:
        rig.put_at_once([rig.record(number)])


def translated(rig: Rig, upstream: int) -> Translation:
    """Translate an upstream offset with the map and the log end as they are now."""
    known, end = rig.map(), rig.end()
    reach = copied_below(known, end, Witness.LOG_END).reach
    assert reach is not None
    return downstream_within(known, reach, (0, end), upstream)


def right_offset(rig: Rig, upstream: int) -> int:
    """Return the offset of the first target record whose source offset is at or after an upstream
    offset. Records are identified by content.
    """
    at = {r.value: r.offset for r in read_all(rig.source, rig.topic, isolation="read_committed")}
    target = read_all(rig.target, rig.remote)
    return next((r.offset for r in target if at[r.value] >= upstream), rig.end())
