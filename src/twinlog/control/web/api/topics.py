"""Topics of a flow as `/api/v1` answers them, with the totals of their partitions.

With up to 100,000 partitions, only the sort column is computed for every topic; the other columns
are computed for the rows of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twinlog.codes import PartitionState
from twinlog.control.duties.publication import is_unusual
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.control.web.api.inputs import TopicQuery
from twinlog.control.web.api.shown import most
from twinlog.quantities import known, largest, total

WORST_FIRST: Final = (
    *(PartitionState.FAILED, PartitionState.TAKEN_OVER, PartitionState.RETRYING),
    *(PartitionState.SOURCE_AWAY, PartitionState.SOURCE_DELETED, PartitionState.PAUSED),
    *(PartitionState.PROMOTED, PartitionState.RELEASED, PartitionState.NEW, PartitionState.BEHIND),
    *(PartitionState.PENDING, PartitionState.STARTING, PartitionState.DRAINING),
    *(PartitionState.COPYING, PartitionState.AT_END, PartitionState.DONE),
)
_BADNESS: Final = {state: rank for rank, state in enumerate(reversed(WORST_FIRST))}


Parts = Sequence[PartitionSnapshot]


def _badness(parts: Parts) -> int:
    return max(_BADNESS[state] for state in {part.state for part in parts})


def _unusual(parts: Parts) -> int:
    return sum(map(is_unusual, parts))


_COLUMNS: Final[dict[str, Callable[[Parts], int]]] = {
    "state": _badness,
    "lag": lambda parts: sum(most(part.lag) for part in parts),
    "lossRecords": lambda parts: sum(most(part.loss_records) for part in parts),
    "lossMs": lambda parts: max(most(part.loss_ms) for part in parts),
    "keptMs": lambda parts: min(most(part.left_ms) for part in parts),
    "records": lambda parts: sum(part.records for part in parts),
    "bytes": lambda parts: sum(part.bytes for part in parts),
    "partitions": len,
    "unusualPartitions": _unusual,
}


def page(parts: Iterable[PartitionSnapshot], query: TopicQuery) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of matching topics and the page's rows. Ties are sorted by name."""
    groups: dict[str, list[PartitionSnapshot]] = {}
    for part in parts:
        group = groups.get(part.topic)
        if group is None:
            groups[part.topic] = [part]
        else:
            group.append(part)
    found = [
        name for name, group in groups.items() if query.topic in name and _matches(group, query)
    ]
    column, is_down = query.sort.removeprefix("-"), query.sort.startswith("-")
    found.sort(reverse=is_down and column == "topic")
    if column != "topic":
        value = _COLUMNS[column]
        found.sort(key=lambda name: value(groups[name]), reverse=is_down)
    rows = found[query.offset : query.offset + query.limit]
    return len(found), [topic(groups[name]) for name in rows]


def _matches(parts: Parts, query: TopicQuery) -> bool:
    """Return True if one partition has both the state and the code."""
    if query.state is None and not query.code:
        return True
    return any(
        (query.state is None or part.state is query.state)
        and (not query.code or part.code == query.code)
        for part in parts
    )


def topic(parts: Parts) -> dict[str, Any]:
    """Combine the partitions of a topic to one row."""
    lags = known(part.lag for part in parts)
    losses = known(part.loss_records for part in parts)
    return {
        "topic": parts[0].topic,
        "target_topic": next((part.target_topic for part in parts if part.target_topic), ""),
        "partitions": len(parts),
        "state": WORST_FIRST[-1 - _badness(parts)],
        "unusual_partitions": _unusual(parts),
        "codes": sorted({part.code for part in parts if part.code}),
        "lag": total(lags),
        "lag_ms": largest(part.lag_ms for part in parts),
        "lag_unknown_partitions": len(parts) - len(lags),
        "loss_records": total(losses),
        "loss_ms": largest(part.loss_ms for part in parts),
        "loss_unknown_partitions": len(parts) - len(losses),
        "records": sum(part.records for part in parts),
        "bytes": sum(part.bytes for part in parts),
        "kept_ms": min(known(part.left_ms for part in parts), default=None),
        "kept_known": all(part.is_left_known for part in parts),
        "is_near_deletion": any(part.is_near_deletion for part in parts),
    }
