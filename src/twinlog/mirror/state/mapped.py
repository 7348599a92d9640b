"""The copies that have rows in the offset map: rows of the state topic.

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

from twinlog.mirror.state.state_row import encode_row, read_rows
from twinlog.model import NO_TOPIC_ID, TopicId

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
