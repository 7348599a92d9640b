"""Which copies have rows in the offset map: records of the state topic.

A partition without a row begins again. That must not happen to one whose rows were lost (their
topic was not compacted for a while, lost its end, was deleted): all would be copied a second time.
So the flow notes which partitions of a copy have rows, once it has seen them. A copy is a pair of
topic ids: a topic that is created again on either side is another one.

- Dies before the record: the next round writes it. Dies behind it, or its answer is lost: it is
  written once more, and says the same.
- A zombie writes an older record: it says fewer partitions, never more than there were. So all
  records count together, as long as compaction leaves them.
- The state topic loses the record, or is created again: less is known, as before it was written.
  The flow that runs writes it again.

A record counts the partitions that have rows from the first one on, and lists the others: one that
waits for its leader takes no others along. `map-lost` says the same of all partitions of a topic,
when the map topic itself was found deleted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from twinlog.mirror.state.generations import encode_row, read_row
from twinlog.model import NO_TOPIC_ID, TopicId

_KIND: Final = "mapped"
_LOST: Final = "map-lost"

Copy = tuple[TopicId, TopicId]
"""Source and target topic."""


@dataclass(slots=True)
class MappedCopies:
    """What the state topic says of one flow."""

    partitions: dict[Copy, frozenset[int]] = field(default_factory=dict)
    """Which partitions have rows."""
    lost: set[TopicId] = field(default_factory=set)
    """Target topics whose rows were lost with the map topic."""

    def has_row(self, source: TopicId, target: TopicId, partition: int) -> bool:
        """Whether this partition of the copy between the two topics had a row."""
        return target in self.lost or partition in self.partitions.get((source, target), ())

    def was_copied_to(self, target: TopicId, partition: int) -> bool:
        """Whether a copy of any source topic had a row for this partition of it."""
        noted = (some for (_, there), some in self.partitions.items() if there == target)
        return target in self.lost or any(partition in some for some in noted)


def noting_rows(flow: str, copy: Copy, partitions: Collection[int]) -> tuple[bytes, bytes]:
    """The record that says: these partitions of the copy have rows."""
    count = next(number for number in itertools.count() if number not in partitions)
    fields: dict[str, object] = {"partitions": count}
    if others := sorted(one for one in partitions if one > count):
        fields["others"] = others
    return encode_row(["flow", flow, _KIND, *copy], fields)


def losing_map(flow: str, generation: int, targets: Iterable[TopicId]) -> tuple[bytes, bytes]:
    """The record that says: this generation found the offset map topic deleted, and makes it again.
    It had rows of these target topics.
    """
    return encode_row(["flow", flow, _LOST, generation], {"targets": sorted(targets)})


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
            copy = TopicId(parts[3]), TopicId(parts[4])
            found = {*range(fields["partitions"]), *fields.get("others", ())}
            out.partitions[copy] = out.partitions.get(copy, frozenset()) | found
        elif parts[2] == _LOST:
            out.lost |= set(map(TopicId, fields["targets"]))
    return out


def is_known(source: TopicId, target: TopicId) -> bool:
    """Whether ids tell this copy from another one: brokers without topic ids have none."""
    return NO_TOPIC_ID not in (source, target)
