"""Which copies have rows in the offset map: records of the state topic.

A partition without a row begins anew. That must not happen to one whose rows were lost (their topic
was not compacted for a while, lost its end, was deleted): all would be copied a second time. So the
flow notes how many partitions of a copy have rows, once it has seen them. A copy is a pair of topic
ids: a topic that is made anew on either side is another one.

- Dies before the record: the next round writes it. Dies behind it, or its answer is lost: it is
  written once more, and says the same.
- A zombie writes an older record: it says fewer partitions, never more than there were. So the
  greatest number counts, as long as compaction leaves its record.
- The state topic loses the record: less is known, as before it was written.

`map-lost` (`generations.losing_map`) says the same of all partitions of a topic, when the map topic
itself was found deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.state.generations import encode_row, read_row
from twinlog.model import NO_TOPIC_ID, TopicId

_KIND: Final = "mapped"
_LOST: Final = "map-lost"


@dataclass(slots=True)
class MappedCopies:
    """What the state topic says of one flow."""

    partitions: dict[tuple[TopicId, TopicId], int] = field(default_factory=dict)
    """How many partitions have rows, from the first one on, by source and target topic."""
    lost: set[TopicId] = field(default_factory=set)
    """Target topics whose rows were lost with the map topic."""

    def has_row(self, source: TopicId, target: TopicId, partition: int) -> bool:
        """Whether this partition of the copy between the two topics had a row."""
        return target in self.lost or partition < self.partitions.get((source, target), 0)


def noting_rows(
    flow: str, source: TopicId, target: TopicId, partitions: int
) -> tuple[bytes, bytes]:
    """The record that says: so many partitions of this copy, from the first on, have rows."""
    key = ["flow", flow, _KIND, source, target]
    return encode_row(key, {"partitions": partitions})


def is_mapped_row(key: bytes, flow: str) -> bool:
    """Whether a row of the state topic says something of this kind of the flow."""
    try:
        parts = json.loads(key)
        return bool(parts[1] == flow and parts[2] in (_KIND, _LOST))
    except (ValueError, LookupError, TypeError):
        return False


def mapped_copies(flow: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> MappedCopies:
    """What is noted of a flow, from (key, value) in any order."""
    out = MappedCopies()
    for key, value in records:
        if key is None or value is None:
            continue
        parts, fields = read_row(key, value)
        if parts[1] != flow:
            continue
        if parts[2] == _KIND:
            copy, count = (TopicId(parts[3]), TopicId(parts[4])), int(fields["partitions"])
            out.partitions[copy] = max(count, out.partitions.get(copy, 0))
        elif parts[2] == _LOST:
            out.lost |= set(map(TopicId, fields["targets"]))
    return out


def is_known(source: TopicId, target: TopicId) -> bool:
    """Whether ids tell this copy from another one: brokers without topic ids have none."""
    return NO_TOPIC_ID not in (source, target)
