"""The values of all flows at one moment, rates of partitions, and totals of flows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.control.watch.readiness import FlowReadiness
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.spark.jvm_use import JvmUse

RATE_WINDOW_S: Final = 60.0
SAMPLE_EVERY_S: Final = 10.0


PartitionKey = tuple[str, str, int]
"""Flow, topic and partition."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate per second over the last minute."""

    records: float = 0.0
    bytes: float = 0.0


class Count(NamedTuple):
    """Records and bytes that this process has written to the target."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values from which the series of one moment are made."""

    at: float
    """Monotonic time in seconds."""
    flows: Sequence[FlowSnapshot]
    readiness: Sequence[FlowReadiness]
    rate: Callable[[float, str, PartitionSnapshot], Rate] = lambda *_: Rate()
    """Returns the rate of a partition (`PartitionRates.rate`)."""
    totals: Mapping[str, Count] = field(default_factory=dict)
    """Totals of every flow that this process has run, by the flow's name."""
    jvm: JvmUse | None = None
    """The resource use of Spark's JVM, or None if unknown."""


class _Sample(NamedTuple):
    at: float
    records: int
    bytes: int


class PartitionRates:
    """Stores counts of the last minute for every partition, one per ten seconds. One thread calls
    `update`; other threads can read.
    """

    def __init__(self) -> None:
        self._samples: dict[PartitionKey, deque[_Sample]] = {}

    def update(self, now: float, flows: Sequence[FlowSnapshot]) -> None:
        """Add the flows' snapshots; `now` is monotonic."""
        number = 0
        for flow in flows:
            number += len(flow.partitions)
            for part in flow.partitions:
                self._add_sample(now, (flow.flow, part.topic, part.partition), part)
        if len(self._samples) > number:
            known = {(f.flow, part.topic, part.partition) for f in flows for part in f.partitions}
            self._samples = {key: sample for key, sample in self._samples.items() if key in known}

    def _add_sample(self, now: float, key: PartitionKey, partition: PartitionSnapshot) -> None:
        samples = self._samples.get(key)
        if samples is None:
            self._samples[key] = deque((_Sample(now, partition.records, partition.bytes),))
            return
        if now - samples[-1].at >= SAMPLE_EVERY_S:
            samples.append(_Sample(now, partition.records, partition.bytes))
        while len(samples) > 1 and samples[1].at <= now - RATE_WINDOW_S:
            samples.popleft()

    def rate(self, now: float, flow: str, partition: PartitionSnapshot) -> Rate:
        """Return the rate of a partition over the minute before `now`."""
        samples = self._samples.get((flow, partition.topic, partition.partition))
        if samples is None:
            return Rate()
        first = samples[0]  # samples are never empty
        if now <= first.at:
            return Rate()
        # counts restart if the flow has lost the leadership, so differences may be negative
        seconds = now - first.at
        return Rate(
            max(0, partition.records - first.records) / seconds,
            max(0, partition.bytes - first.bytes) / seconds,
        )


class FlowTotals:
    """Totals of the records and bytes that each flow has copied. A total never falls.

    The sum of the partitions' current counts would fall when a partition leaves, or while the flow
    has no run. Prometheus regards a falling counter as restarted from 0, and would count everything
    that the remaining partitions have copied once more.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[tuple[str, int], Count]] = {}
        self._totals: dict[str, Count] = {}

    def update(self, flows: Iterable[FlowSnapshot]) -> Mapping[str, Count]:
        """Add the flows' snapshots and return the totals."""
        seen: dict[str, dict[tuple[str, int], Count]] = {}
        for flow in flows:
            counts = seen.setdefault(flow.flow, {})
            for part in flow.partitions:
                # If a topic occurs twice, the first one counts, as in `/metrics`. The same applies
                # to a flow that was removed and added again, while its former run ends
                counts.setdefault((part.topic, part.partition), Count(part.records, part.bytes))
        totals = dict(self._totals)
        for name, current in seen.items():
            former = self._seen.get(name, {})
            records, size = totals.get(name, Count())
            for key, now in current.items():
                before = former.get(key, Count())
                if now.records < before.records or now.bytes < before.bytes:
                    before = Count()  # the count has restarted
                records += now.records - before.records
                size += now.bytes - before.bytes
            totals[name] = Count(records, size)
            # a flow without a run has no partitions; its next run continues their counts
            seen[name] = current or former
        self._seen, self._totals = seen, totals
        return totals
