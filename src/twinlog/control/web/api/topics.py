"""Topics of a flow as `/api/v1` answers them, with the totals of their partitions.

With up to 100,000 partitions, only the sort column is computed for every topic; the other columns
are computed for the rows of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from pydantic import Field

from twinlog.codes import PartitionState
from twinlog.control.duties.publication import is_unusual
from twinlog.control.watch.snapshot import PartitionSnapshot, known
from twinlog.control.web.api.answers import MOST_ROWS, Page, Value
from twinlog.control.web.api.shown import most

WORST_FIRST: Final = (
    *(PartitionState.FAILED, PartitionState.TAKEN_OVER, PartitionState.RETRYING),
    *(PartitionState.SOURCE_AWAY, PartitionState.SOURCE_DELETED, PartitionState.PAUSED),
    *(PartitionState.PROMOTED, PartitionState.RELEASED, PartitionState.NEW, PartitionState.BEHIND),
    *(PartitionState.PENDING, PartitionState.STARTING, PartitionState.DRAINING),
    *(PartitionState.COPYING, PartitionState.AT_END, PartitionState.DONE),
)
_BADNESS: Final = {state: rank for rank, state in enumerate(reversed(WORST_FIRST))}


class Topic(Value):
    """One topic of a flow. Totals leave out partitions whose value is unknown."""

    topic: str
    target_topic: str
    partitions: int
    state: PartitionState
    """The worst state of its partitions."""
    unusual_partitions: int
    """Number of partitions with a code or an unusual state."""
    codes: list[str]
    """The codes of its partitions."""
    lag: int | None
    lag_ms: int | None
    """The largest of its partitions."""
    lag_unknown_partitions: int
    loss_records: int | None
    loss_ms: int | None
    """The largest of its partitions."""
    loss_unknown_partitions: int
    records: int
    bytes: int
    kept_ms: int | None
    """The least time for which the source keeps the next record, over its partitions. null: no
    deletion is expected, as far as `kept_known` says."""
    kept_known: bool
    """Whether the time is known for every partition."""
    is_near_deletion: bool


class TopicPage(Page):
    """A page of a flow's topics."""

    topics: list[Topic]


class TopicQuery(Value):
    """Filter and order of topics."""

    topic: str = Field(default="", description="Only topics whose name contains this text.")
    state: PartitionState | None = Field(
        default=None, description="Only topics with a partition in this state."
    )
    code: str = Field(default="", description="Only topics with a partition with this code.")
    sort: Literal[
        "topic", "-topic", "state", "-state", "lag", "-lag", "lossRecords", "-lossRecords",
        "lossMs", "-lossMs", "keptMs", "-keptMs", "records", "-records", "bytes", "-bytes",
        "partitions", "-partitions", "unusualPartitions", "-unusualPartitions",
    ] = Field(
        default="topic",
        description="The sort column; a minus sign reverses the order. The worst state is last.",
    )  # fmt: skip
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)


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


def page(parts: Iterable[PartitionSnapshot], query: TopicQuery) -> tuple[int, list[Topic]]:
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


def topic(parts: Parts) -> Topic:
    """Combine the partitions of a topic to one row."""
    lags = [part.lag for part in parts if part.lag >= 0]
    losses = [part.loss_records for part in parts if part.loss_records >= 0]
    kept = [part.left_ms for part in parts if part.left_ms >= 0]
    return Topic(
        topic=parts[0].topic,
        target_topic=next((part.target_topic for part in parts if part.target_topic), ""),
        partitions=len(parts),
        state=WORST_FIRST[-1 - _badness(parts)],
        unusual_partitions=_unusual(parts),
        codes=sorted({part.code for part in parts if part.code}),
        lag=sum(lags) if lags else None,
        lag_ms=known(max(part.lag_ms for part in parts)),
        lag_unknown_partitions=len(parts) - len(lags),
        loss_records=sum(losses) if losses else None,
        loss_ms=known(max(part.loss_ms for part in parts)),
        loss_unknown_partitions=len(parts) - len(losses),
        records=sum(part.records for part in parts),
        bytes=sum(part.bytes for part in parts),
        kept_ms=min(kept, default=None),
        kept_known=all(part.is_left_known for part in parts),
        is_near_deletion=any(part.is_near_deletion for part in parts),
    )
