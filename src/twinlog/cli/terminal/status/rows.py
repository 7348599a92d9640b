"""What `status` says of topics: one row for each, and more only where partitions differ.

That some partitions of a topic wait for a record while others have just had one is no difference:
with rows of their own they would come and go at every round.
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
"""States of a copy that goes well: partitions in these share a row, which has the first of them."""

ONLY: Final = "all 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Partitions of one topic that have the same to say; -1 is what is not known."""

    topic: str
    target_topic: str
    partitions: str
    """`all 4`, or their numbers where the topic has several rows."""
    number: int
    state: str
    lag: int
    lag_ms: int
    loss_ms: int
    copied: int
    """By the flow, whatever process it was."""
    records_per_s: float
    """Of the topic, in its first row; -1 in the others."""
    since_ms: int
    newest_ms: int
    """Of its newest record on the target, where the source is away."""
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
        """Records wait, or it is not known whether some do; or something is said of it."""
        return self.lag != 0 or bool(self.message)


def rows(flow: Mapping[str, Any]) -> list[Row]:
    """A row for each topic; for several troubles, or states that are no usual ones, one each."""
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
    """A number alone would be read as how many there are."""
    if numbers == [0] and is_alone:
        return ONLY
    return f"all {len(numbers)}" if is_alone and len(numbers) > 1 else ranges(numbers)


def known_sum(numbers: Iterable[int]) -> int:
    """Of those that are known; -1 where none is."""
    known = [number for number in numbers if number >= 0]
    return sum(known) if known else -1


def is_lag_old(state: str, partition_states: Iterable[str]) -> bool:
    """Whether some lag is not of now: in an outage it is what was known last, and the source may
    have grown since. So it is said as the least that waits.
    """
    return state == FlowState.DEGRADED and PartitionState.RETRYING in partition_states


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of one flow, or of all."""

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
        flows=len({flow["flow"] for flow in known}),  # one of them may stand by for the other
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
    """Rows that something is said of; those with the same words together. What the flow itself
    waits for is said once, of the flow.
    """
    same: dict[tuple[str, str, str], list[Row]] = {}
    for one in found:
        if one.trouble and not _is_the_flows(flow, one.code, one.message):
            same.setdefault((one.state, one.code, one.message), []).append(one)
    yield from map(tuple, same.values())


def _is_the_flows(flow: Mapping[str, Any], code: str, message: str) -> bool:
    """Whether a trouble of a partition is what the flow itself waits for."""
    return bool(code) and code == flow["code"] and message in flow["reason"]
