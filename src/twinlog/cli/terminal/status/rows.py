"""Rows of `status`: one for each topic, and more only if its partitions differ.

Partitions that wait for a record and partitions that have just copied one do not differ in this
sense, because separate rows would come and go with every refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from twinlog.codes import FlowState, PartitionState
from twinlog.quantities import ranges

AS_USUAL: Final = (
    PartitionState.NEW,
    PartitionState.BEHIND,
    PartitionState.PENDING,
    PartitionState.STARTING,
    PartitionState.DRAINING,
    PartitionState.COPYING,
    PartitionState.DONE,
    PartitionState.AT_END,
)
"""States of a healthy copy. Partitions in these states share a row, which shows the first of these
states.
"""

ONLY: Final = "all 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Partitions of one topic in the same state; unknown numbers are -1."""

    topic: str
    target_topic: str
    partitions: str
    """`all 4`, or the partitions' numbers if the topic has several rows."""
    number: int
    state: str
    lag: int
    lag_ms: int
    loss_ms: int
    copied: int
    """Records copied by the flow, in all processes."""
    records_per_s: float
    """Of the topic, in its first row; -1 in its other rows."""
    since_ms: int
    newest_ms: int
    """Timestamp of the newest record on the target, if the source is unavailable."""
    code: str
    message: str

    @property
    def where(self) -> str:
        return f"{self.topic}-0" if self.partitions == ONLY else f"{self.topic}, {self.partitions}"

    @property
    def trouble(self) -> str:
        return f"{self.message} [{self.code}]" if self.code else self.message

    @property
    def is_behind(self) -> bool:
        """True if records wait, the lag is unknown, or the row has a message."""
        return self.lag != 0 or bool(self.message)


def rows(flow: Mapping[str, Any]) -> list[Row]:
    """Return a row for each topic, or several if its partitions have different problems or unusual
    states.
    """
    topics: dict[str, dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for part in flow["partitions"]:
        code = "" if _is_the_flows(flow, part["code"], part["message"]) else part["code"]
        state = "" if not code and part["state"] in AS_USUAL else part["state"]
        topics.setdefault(part["topic"], {}).setdefault((state, code), []).append(part)
    rates = flow.get("rates") or {}
    return [
        _row(parts, is_alone=len(groups) == 1, rate=-1 if number else rates.get(topic, -1))
        for topic, groups in topics.items()
        for number, parts in enumerate(groups.values())
    ]


def _row(parts: list[Mapping[str, Any]], *, is_alone: bool, rate: float) -> Row:
    first = parts[0]
    numbers = [part["partition"] for part in parts]
    states = {part["state"] for part in parts}
    return Row(
        topic=first["topic"],
        target_topic=first["target_topic"],
        partitions=_which(numbers, is_alone=is_alone),
        number=len(numbers),
        state=next((one for one in AS_USUAL if one in states), first["state"]),
        lag=known_sum(part["lag"] for part in parts),
        lag_ms=max(part["lag_ms"] for part in parts),
        loss_ms=max(part["loss_ms"] for part in parts),
        copied=known_sum(part.get("copied", -1) for part in parts),
        records_per_s=rate,
        since_ms=min((part["since_ms"] for part in parts if part["since_ms"]), default=0),
        newest_ms=max(part.get("newest_ms", -1) for part in parts),
        code=first["code"],
        message=first["message"],
    )


def _which(numbers: list[int], *, is_alone: bool) -> str:
    """Return the partitions as text. A single number could be misread as a count."""
    if numbers == [0] and is_alone:
        return ONLY
    return f"all {len(numbers)}" if is_alone and len(numbers) > 1 else ranges(numbers)


def known_sum(numbers: Iterable[int]) -> int:
    """Return the sum of the known numbers, or -1 if none is known."""
    known = [number for number in numbers if number >= 0]
    return sum(known) if known else -1


def is_lag_old(state: str, partition_states: Iterable[str]) -> bool:
    """Return whether some lag is outdated. In an outage it is the last known value, and the source
    may have grown since, so it is shown as a minimum.
    """
    return state == FlowState.DEGRADED and PartitionState.RETRYING in partition_states


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of one flow or of all flows."""

    flows: int
    topics: int
    partitions: int
    lag: int
    lag_ms: int
    copied: int
    records_per_s: float


def totals(flows: Iterable[Mapping[str, Any]]) -> Totals:
    known = list(flows)
    parts = [part for flow in known for part in flow["partitions"]]
    rates = [
        rate
        for flow in known
        for topic, rate in (flow.get("rates") or {}).items()
        if any(part["topic"] == topic for part in flow["partitions"])
    ]
    return Totals(
        # a leader and a standby may both report a flow
        flows=len({flow["flow"] for flow in known}),
        topics=len(
            {(flow["flow"], part["topic"]) for flow in known for part in flow["partitions"]}
        ),
        partitions=len(parts),
        lag=known_sum(part["lag"] for part in parts),
        lag_ms=max((part["lag_ms"] for part in parts), default=-1),
        copied=known_sum(part.get("copied", -1) for part in parts),
        records_per_s=sum(rates) if rates else -1,
    )


def troubles(flow: Mapping[str, Any], found: Iterable[Row]) -> Iterator[tuple[Row, ...]]:
    """Yield rows with problems, grouped by message. The flow's own problem is shown with the flow
    and not repeated.
    """
    same: dict[tuple[str, str, str], list[Row]] = {}
    for one in found:
        if one.trouble and not _is_the_flows(flow, one.code, one.message):
            same.setdefault((one.state, one.code, one.message), []).append(one)
    yield from map(tuple, same.values())


def _is_the_flows(flow: Mapping[str, Any], code: str, message: str) -> bool:
    """Return whether a partition's problem is the flow's own problem."""
    return bool(code) and code == flow["code"] and message in flow["reason"]
