"""The text of `/metrics`: Prometheus' format, made from the last snapshots when it is asked for.

Imported at the first scrape: the library takes longer to load than a mirror should wait for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from twinlog import __version__, metrics
from twinlog.control.watch.readings import PartitionKey, Rate, Reading
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.watch.timing_window import TimingView
from twinlog.metrics import Kind, Metric, TimingMetrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FLOW_STATES: Final = (
    "STARTING",
    "RUNNING",
    "PARTLY_FAILED",
    "STANDBY",
    "DEGRADED",
    "THROTTLED",
    "STOPPING",
    "STOPPED",
    "FAILED",
)

Family = GaugeMetricFamily | CounterMetricFamily


class _Families(Collector):
    """Turns a reading into metric families; lives for one answer."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._families: dict[str, Family] = {}

    def collect(self) -> Iterator[Family]:
        for metric in (*metrics.OURS, *metrics.MM2):
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            self._families[metric.name] = kind(metric.name, metric.meaning, labels=metric.labels)
        self._add(metrics.BUILD, (__version__,), 1)
        ready = {one.flow: one.is_ready for one in self._reading.readiness}
        for flow in self._reading.flows:
            labels = flow_labels(flow)
            self._flow(flow, labels)
            self._add(metrics.FLOW_READY, labels, float(ready.get(flow.flow, False)))
            # a topic with a problem may be there twice, as it was and as it is; once is served
            known = {(part.topic, part.partition): part for part in reversed(flow.partitions)}
            for part in known.values():
                self._partition(flow, part, labels)
        yield from self._families.values()

    def _add(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        self._families[metric.name].add_metric(labels, value)

    def _flow(self, flow: FlowSnapshot, labels: tuple[str, str]) -> None:
        for state in FLOW_STATES:
            self._add(metrics.FLOW_STATE, (*labels, state), float(flow.state == state))
        self._add(metrics.FLOW_LANES, labels, flow.lanes)
        self._add(metrics.FLOW_GENERATION, labels, flow.generation)
        for state, count in Counter(part.state for part in flow.partitions).items():
            self._add(metrics.PARTITIONS, (*labels, state), count)
        for code, count in flow.errors.items():
            self._add(metrics.ERRORS, (*labels, code), count)
        for one in flow.checkpoints():
            group = (*labels, one.group, one.topic, str(one.partition))
            self._times(metrics.CHECKPOINT_LATENCY, one.latency, group)

    def _partition(
        self, flow: FlowSnapshot, part: PartitionSnapshot, labels: tuple[str, str]
    ) -> None:
        upstream = (*labels, part.topic, str(part.partition))
        if part.code:
            self._add(metrics.PARTITION_ERROR, (*upstream, part.code), 1)
        self._add(metrics.RECORDS, upstream, part.records)
        self._add(metrics.BYTES, upstream, part.bytes)
        if part.state == "RELEASED":
            return  # its topic was taken off the list: nobody looks at its end any more
        if part.lag >= 0:
            self._add(metrics.LAG_RECORDS, upstream, part.lag)
        if part.lag_ms >= 0:
            self._add(metrics.LAG_SECONDS, upstream, part.lag_ms / 1000)
        if part.target_topic:
            self._as_mm2(flow, part, (*labels, part.target_topic, str(part.partition)))

    def _as_mm2(self, flow: FlowSnapshot, part: PartitionSnapshot, labels: tuple[str, ...]) -> None:
        key = PartitionKey(flow.flow, part.topic, part.partition)
        rate = self._reading.rates.get(key, Rate())
        self._add(metrics.RECORD_COUNT, labels, part.records)
        self._add(metrics.RECORD_RATE, labels, rate.records)
        self._add(metrics.BYTE_COUNT, labels, part.bytes)
        self._add(metrics.BYTE_RATE, labels, rate.bytes)
        self._times(metrics.RECORD_AGE, part.age, labels)
        self._times(metrics.REPLICATION_LATENCY, part.latency, labels)

    def _times(
        self, names: TimingMetrics, view: TimingView | None, labels: tuple[str, ...]
    ) -> None:
        if view is None:
            return  # as in MM2: there is no series before the first record
        self._add(names.last, labels, view.last_ms)
        self._add(names.least, labels, _or_nan(view.least_ms))
        self._add(names.most, labels, _or_nan(view.most_ms))
        self._add(names.average, labels, _or_nan(view.average_ms))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def flow_labels(flow: FlowSnapshot) -> tuple[str, str]:
    """Source and target of a flow's name."""
    source, _, target = flow.flow.partition("->")
    return source, target


def exposition(reading: Reading) -> bytes:
    """The whole text; memory and CPU of this process come last."""
    registry, process = CollectorRegistry(auto_describe=False), CollectorRegistry()
    registry.register(_Families(reading))
    ProcessCollector(registry=process)
    return generate_latest(registry) + generate_latest(process)
