"""What is known of all flows at one moment, how fast partitions go, and what flows add up to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.control.watch.readiness import FlowReadiness
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot

RATE_WINDOW_S: Final = 60.0
SAMPLE_EVERY_S: Final = 10.0


PartitionKey = tuple[str, str, int]
"""Flow, topic and partition."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Per second, over the last minute."""

    records: float = 0.0
    bytes: float = 0.0


def _not_known(_at: float, _flow: str, _part: PartitionSnapshot) -> Rate:
    return Rate()


class Count(NamedTuple):
    """What the target has taken from this process."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known at one moment; `at` is monotonic."""

    at: float
    flows: Sequence[FlowSnapshot]
    readiness: Sequence[FlowReadiness]
    rate: Callable[[float, str, PartitionSnapshot], Rate] = _not_known
    """`PartitionRates.rate`."""
    totals: Mapping[str, Count] = field(default_factory=dict)
    """Of every flow that this process has run, by its name."""


class _Sample(NamedTuple):
    at: float
    records: int
    bytes: int


class PartitionRates:
    """Remembers counts of the last minute, one in ten seconds for every partition. One thread takes
    counts, others may ask.
    """

    def __init__(self) -> None:
        self._samples: dict[PartitionKey, deque[_Sample]] = {}

    def update(self, now: float, flows: Sequence[FlowSnapshot]) -> None:
        """Take what the flows report; `now` is monotonic."""
        number = 0
        for flow in flows:
            number += len(flow.partitions)
            for part in flow.partitions:
                self._take(now, (flow.flow, part.topic, part.partition), part)
        if len(self._samples) > number:
            known = {(f.flow, part.topic, part.partition) for f in flows for part in f.partitions}
            self._samples = {key: one for key, one in self._samples.items() if key in known}

    def _take(self, now: float, key: PartitionKey, part: PartitionSnapshot) -> None:
        samples = self._samples.get(key)
        if samples is None:
            self._samples[key] = deque((_Sample(now, part.records, part.bytes),))
            return
        if now - samples[-1].at >= SAMPLE_EVERY_S:
            samples.append(_Sample(now, part.records, part.bytes))
        while len(samples) > 1 and samples[1].at <= now - RATE_WINDOW_S:
            samples.popleft()

    def rate(self, now: float, flow: str, part: PartitionSnapshot) -> Rate:
        """Of a partition as it was at that time."""
        samples = self._samples.get((flow, part.topic, part.partition))
        if samples is None:
            return Rate()
        first = samples[0]  # there is always one
        if now <= first.at:
            return Rate()
        # a flow that lost its lead begins to count again
        seconds = now - first.at
        return Rate(
            max(0, part.records - first.records) / seconds,
            max(0, part.bytes - first.bytes) / seconds,
        )


class FlowTotals:
    """What each flow has copied, added up from its partitions: a number that never falls.

    The sum of what partitions say now would fall when one of them leaves, or begins to count again
    because its flow lost the lead, and Prometheus takes a counter that falls for one that began
    at 0: everything that the others ever copied would be counted once more.
    """

    def __init__(self) -> None:
        self._seen: dict[PartitionKey, Count] = {}
        self._totals: dict[str, Count] = {}

    def update(self, flows: Iterable[FlowSnapshot]) -> Mapping[str, Count]:
        """Take what the flows report."""
        seen: dict[PartitionKey, Count] = {}
        totals = dict(self._totals)
        for flow in flows:
            # of a topic that is there twice the first one counts, as it is served
            here = {
                (flow.flow, part.topic, part.partition): Count(part.records, part.bytes)
                for part in reversed(flow.partitions)
            }
            records, size = totals.get(flow.flow, Count())
            for key, now in here.items():
                before = self._seen.get(key, Count())
                if now.records < before.records or now.bytes < before.bytes:
                    before = Count()  # it began again
                records += now.records - before.records
                size += now.bytes - before.bytes
            totals[flow.flow] = Count(records, size)
            seen |= here
        self._seen, self._totals = seen, totals
        return totals
