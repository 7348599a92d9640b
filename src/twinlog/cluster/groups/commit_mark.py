"""The mark of a query or write of `format("twinlog")`: which micro-batch was committed last.

A query that restarts must know if its last micro-batch was committed. Spark's checkpoint does not
show this, because Spark writes it only after the commit. So the mark is stored on the cluster as
offsets of a group, because a transaction commits such offsets together with the rows:

    group       __twinlog-ID.QUERY, for the transactional id twinlog-ID or ID
    partition   0 of each topic that the micro-batch wrote to
    offset      the number of the micro-batch
    metadata    {"batch": 7, "rows": 5, "cluster": "4L6g3nShT-eMCtK--X86sw"}

The metadata repeats the number and contains the cluster's ID. A mark is invalid if its number
differs from the offset, or its cluster ID from the cluster. This happens if a mirror has translated
the offset or copied it to another cluster, or if another client has committed an offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from twinlog.cluster.groups.group_offsets import Committed, GroupOffsets
from twinlog.model import OWN_GROUPS, TopicPartition

ID_PREFIX: Final = OWN_GROUPS.lstrip("_")


def mark_group(transactional_id: str, query: str) -> str:
    """Return the name of the group that stores a query's mark. It has the prefix OWN_GROUPS."""
    return f"{OWN_GROUPS}{transactional_id.removeprefix(ID_PREFIX)}.{query}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMark:
    """The last micro-batch that a query has committed on the cluster, and its row count."""

    batch: int
    rows: int
    topics: frozenset[str]

    def offsets(self, cluster_id: str | None) -> GroupOffsets:
        """Return the offsets to commit in order to store the mark on the cluster with this ID."""
        fields = {"batch": self.batch, "rows": self.rows, "cluster": cluster_id or ""}
        text = json.dumps(fields)
        return {TopicPartition(topic, 0): Committed(self.batch, text) for topic in self.topics}


def read_mark(
    offsets: GroupOffsets, cluster_id: str | None
) -> tuple[CommitMark | None, list[TopicPartition]]:
    """Return (mark, invalid). `mark`: the valid mark of the last micro-batch among a group's
    offsets, or None if there is none. `invalid`: the partitions whose offset is no valid mark.
    """
    marks = {tp: _rows(offset, cluster_id or "") for tp, offset in offsets.items()}
    rows = {tp: count for tp, count in marks.items() if count is not None}
    invalid = sorted(marks.keys() - rows.keys())
    if not rows:
        return None, invalid
    last = max(rows, key=lambda tp: offsets[tp].offset)
    batch = offsets[last].offset
    topics = frozenset(tp.topic for tp in rows if offsets[tp].offset == batch)
    return CommitMark(batch=batch, rows=rows[last], topics=topics), invalid


def _rows(committed: Committed, cluster_id: str) -> int | None:
    try:
        fields = json.loads(committed.metadata)
        batch, rows, where = fields["batch"], fields["rows"], fields.get("cluster", "")
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # marks that earlier releases wrote have no cluster ID
    is_valid = type(rows) is int and batch == committed.offset and where in ("", cluster_id)
    return rows if is_valid else None
