"""The text of `/metrics` in Prometheus' format, made from the last snapshots on request.

Imported at the first scrape, because the library takes long to load, and a mirror should not wait
for it.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client import Metric as Family
from prometheus_client.exposition import choose_encoder

from twinlog import __version__, metrics
from twinlog.cluster.certificates import certificate_ends
from twinlog.codes import NOT_MIRRORED, FlowState
from twinlog.config.series import ALL_SERIES, LEGACY_NAMES, MetricNames, SeriesConfig
from twinlog.control.watch.latency import TimingView
from twinlog.control.watch.monitor import accepts_name
from twinlog.control.watch.series.readings import Count, Reading
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.metrics import Metric, TimingMetrics
from twinlog.model import Flow
from twinlog.quantities import known, largest, total

# Encodes series as Prometheus' text or OpenMetrics, as the library does, in a third of its time.
#
# The series of a partition have the same labels, and the library sorts and escapes the labels of
# each series. Its answer for 10,000 partitions took 2.1 s, during which the process did little
# else. Here labels are not sorted, and consecutive series with the same labels share their text.
#
# Sources: Prometheus' exposition formats, and OpenMetrics 1.0.

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_TOTAL: Final = "_total"

_Labels = tuple[str, ...]
_Fixed = tuple[tuple[str, str], ...]


class _Escaped(dict[str, str]):
    """The escaped text of each label value."""

    def __missing__(self, value: str) -> str:
        self[value] = escaped = value.translate(_ESCAPES)
        return escaped


class SeriesText:
    """The series of one response, in the order of `metrics`."""

    def __init__(
        self, metrics: Iterable[Metric], *, is_openmetrics: bool, fixed: _Fixed = ()
    ) -> None:
        """`fixed`: labels that every series gets."""
        self._is_openmetrics = is_openmetrics
        self._escaped = _Escaped()
        self._fixed = fixed
        self._lines: dict[str, list[str]] = {each.name: self._head(each) for each in metrics}
        self._last: tuple[_Labels, _Labels, str] = (), (), self._labels_text((), ())

    def add(self, metric: Metric, labels: _Labels, value: float) -> None:
        """Add a sample; labels are in the metric's order."""
        names, values, text = self._last
        if values is not labels or names != metric.labels:
            text = self._labels_text(metric.labels, labels)
            self._last = metric.labels, labels, text
        number = "NaN" if value != value else repr(value)  # noqa: PLR0124 (true only for NaN)
        self._lines[metric.name].append(f"{metric.name}{text} {number}\n")

    def add_histogram(
        self, metric: Metric, labels: _Labels, buckets: Iterable[tuple[float, int]], total: float
    ) -> None:
        """Add a histogram; `buckets` are upper bounds with cumulative counts, the last one is inf.
        `total` is the sum of the values.
        """
        lines, names, count = self._lines[metric.name], (*metric.labels, "le"), 0
        for bound, count in buckets:
            edge = "+Inf" if math.isinf(bound) else repr(bound)
            text = self._labels_text(names, (*labels, edge))
            lines.append(f"{metric.name}_bucket{text} {count}\n")
        text = self._labels_text(metric.labels, labels)
        lines.append(f"{metric.name}_count{text} {count}\n{metric.name}_sum{text} {total!r}\n")

    def encode(self) -> bytes:
        """Return everything that was added, without the end marker of OpenMetrics."""
        return "".join(line for lines in self._lines.values() for line in lines).encode()

    def _labels_text(self, names: _Labels, values: _Labels) -> str:
        pairs = (*zip(names, values, strict=True), *self._fixed)
        escaped = self._escaped
        inner = ",".join([f'{name}="{escaped[value]}"' for name, value in pairs])
        return f"{{{inner}}}" if inner else ""

    def _head(self, metric: Metric) -> list[str]:
        name, meaning = metric.name, metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
        if self._is_openmetrics:
            name, meaning = name.removesuffix(_TOTAL), meaning.replace('"', r"\"")
        return [f"# HELP {name} {meaning}\n", f"# TYPE {name} {metric.kind}\n"]


OFFLINE: Final = (FlowState.NOT_RUNNING, FlowState.UNKNOWN)
FLOW_STATES: Final = tuple(state for state in FlowState if state not in OFFLINE)

_Add = Callable[[Metric, tuple[str, ...], float], None]

MEDIA_TYPE: Final = "application/openmetrics-text"
OPENMETRICS: Final = f"{MEDIA_TYPE}; version=1.0.0"


class _Series:
    """Converts a `Reading` to series, for one response."""

    def __init__(self, reading: Reading, text: SeriesText, series: SeriesConfig) -> None:
        self._reading = reading
        self._text, self._add = text, text.add
        self._has_partitions = series.has_partitions
        self._names = series.names

    def fill(self) -> None:
        self._add(metrics.BUILD, _versions(), 1)
        self._as_connect()
        self._jvm()
        self._certificates()
        self._clusters()
        ready = {group.flow: group.is_ready for group in self._reading.readiness}
        for flow in self._reading.flows:
            name = Flow.of(flow.flow)
            labels = name.source, name.target
            self._flow(flow, labels)
            self._add(metrics.FLOW_READY, labels, float(ready.get(flow.flow, False)))
            # a partition with a problem may occur twice: in its former state, which has the counts,
            # and in its current state, which has the code
            stopped = ((p.topic, str(p.partition), p.code) for p in flow.partitions if p.code)
            for where in dict.fromkeys(stopped):
                self._add(metrics.PARTITION_ERROR, (*labels, *where), 1)
            known = {(part.topic, part.partition): part for part in reversed(flow.partitions)}
            self._totals(flow, [*known.values()], labels)
            for part in known.values() if self._has_partitions else ():
                self._partition(flow, part, labels)

    def _clusters(self) -> None:
        """Add totals of all flows that this process has run, including those it no longer runs."""
        counts: dict[tuple[str, str], Count] = {}
        for name, copied in self._reading.totals.items():
            flow = Flow.of(name)
            for labels in ((flow.source, "from"), (flow.target, "into")):
                before = counts.get(labels, Count())
                counts[labels] = Count(before.records + copied.records, before.bytes + copied.bytes)
        for labels, copied in counts.items():
            self._add(metrics.CLUSTER_RECORDS, labels, copied.records)
            self._add(metrics.CLUSTER_BYTES, labels, copied.bytes)

    def _known(self, metric: Metric, labels: tuple[str, ...], value: float | None) -> None:
        if value is not None:
            self._add(metric, labels, value)

    def _known_ms(self, metric: Metric, labels: tuple[str, ...], ms: int | None) -> None:
        self._known(metric, labels, None if ms is None else ms / 1000)

    def _totals(
        self, flow: FlowSnapshot, partitions: Sequence[PartitionSnapshot], labels: tuple[str, str]
    ) -> None:
        copied = self._reading.totals.get(flow.flow, Count())
        self._add(metrics.FLOW_RECORDS, labels, copied.records)
        self._add(metrics.FLOW_BYTES, labels, copied.bytes)
        held = [part for part in partitions if part.state not in NOT_MIRRORED]
        least_kept_ms = min(known(part.left_ms for part in held), default=None)
        self._known(metrics.FLOW_LAG_RECORDS, labels, total(part.lag for part in held))
        self._known_ms(metrics.FLOW_LAG_SECONDS, labels, largest(part.lag_ms for part in held))
        self._known_ms(metrics.FLOW_KEPT_SECONDS, labels, least_kept_ms)
        if flow.generation is not None:
            at, rate = self._reading.at, self._reading.rate
            records = sum(rate(at, flow.flow, part).records for part in partitions)
            for metric in metrics.TASK_RATES:
                self._add(metric, (connector(flow), "0"), records)
            self._load(flow)
        if flow.latency is not None:
            for quantile, ms in (("0.5", flow.latency.p50_ms), ("0.99", flow.latency.p99_ms)):
                self._add(metrics.FLOW_LATENCY_SECONDS, (*labels, quantile), ms / 1000)

        if flow.latencies is not None:
            self._text.add_histogram(
                metrics.FLOW_BATCH_LATENCY,
                labels,
                flow.latencies.cumulative(),
                flow.latencies.total_ms / 1000,
            )

    def _load(self, flow: FlowSnapshot) -> None:
        """Add the load of a flow's lanes, named as by the JMX exporter and Strimzi's reporter."""
        if (load := flow.load) is None:
            return
        reads, writes = consumer(flow), f"connector-producer-{connector(flow)}-0"
        for metric, reported, client, value in (
            (metrics.INCOMING, metrics.REPORTED_INCOMING, reads, load.received_bytes),
            (metrics.OUTGOING, metrics.REPORTED_OUTGOING, writes, load.sent_bytes),
            (metrics.AVAILABLE, metrics.REPORTED_AVAILABLE, writes, load.free_bytes),
        ):
            self._add(metric, (f'"{client}"',), value)
            self._add(reported, (client,), value)
        self._add(metrics.ACTIVE, (f'"{connector(flow)}"', "0"), load.waiting_records)
        self._add(metrics.REPORTED_ACTIVE, (connector(flow), "0"), load.waiting_records)

    def _jvm(self) -> None:
        if (jvm := self._reading.jvm) is None:
            return
        self._add(metrics.JVM_MEMORY, ("heap",), jvm.heap_bytes)
        self._add(metrics.JVM_MEMORY, ("nonheap",), jvm.nonheap_bytes)
        self._add(metrics.JVM_THREADS, (), jvm.threads)
        for collector, seconds in jvm.collection_s:
            self._add(metrics.JVM_COLLECTION, (collector,), seconds)

    def _certificates(self) -> None:
        """Add the earliest expiry per cluster, because several clients may have certificates."""
        clusters = [settings for flow in self._reading.flows for settings in flow.clusters()]
        first: dict[tuple[str, str], int] = {}
        for end in certificate_ends(clusters):
            key = end.cluster, str(end.held)
            first[key] = min(end.ends_at, first.get(key, end.ends_at))
        for labels, ends_at in first.items():
            self._add(metrics.CERTIFICATE_EXPIRY, labels, ends_at)

    def _flow(self, flow: FlowSnapshot, labels: tuple[str, str]) -> None:
        for state in FLOW_STATES:
            self._add(metrics.FLOW_STATE, (*labels, state), float(flow.state == state))
        self._add(metrics.FLOW_LANES, labels, flow.lanes)
        generation = -1 if flow.generation is None else flow.generation
        self._add(metrics.FLOW_GENERATION, labels, generation)
        self._known(metrics.FLOW_LOSS_RECORDS, labels, flow.loss_records)
        self._known_ms(metrics.FLOW_LOSS_SECONDS, labels, flow.loss_ms)
        if flow.partitions:
            self._add(metrics.FLOW_LOSS_UNKNOWN, labels, flow.loss_unknown)
        self._known_ms(metrics.FLOW_RPO_SECONDS, labels, flow.rpo_ms)
        self._known(metrics.FLOW_HELD_RATE, labels, flow.held_rate)
        if flow.rpo_ms is not None:
            self._add(metrics.FLOW_RPO_EXCEEDED, labels, float(bool(flow.rpo_excess)))
        if flow.verified is not None:
            self._add(metrics.VERIFIED_RECORDS, labels, flow.verified.records)
            self._add(metrics.VERIFIED_DIFFERENCES, labels, flow.verified.differences)
            if flow.verified.at_ms:
                self._add(metrics.VERIFIED_TIME, labels, flow.verified.at_ms / 1000)
        for partition_state, count in Counter(part.state for part in flow.partitions).items():
            self._add(metrics.PARTITIONS, (*labels, partition_state), count)
        for code, count in flow.errors.items():
            self._add(metrics.ERRORS, (*labels, code), count)
        for timing in flow.checkpoints() if self._has_partitions else ():
            group = (*labels, timing.group, timing.topic, str(timing.partition))
            _times(self._adder_for(flow), metrics.CHECKPOINT_LATENCY, timing.latency, group)

    def _partition(
        self, flow: FlowSnapshot, partition: PartitionSnapshot, labels: tuple[str, str]
    ) -> None:
        upstream = (*labels, partition.topic, str(partition.partition))
        self._add(metrics.RECORDS, upstream, partition.records)
        self._add(metrics.BYTES, upstream, partition.bytes)
        if partition.state in NOT_MIRRORED:
            return  # the partition's log end is no longer queried
        if partition.lag is not None:
            self._add(metrics.LAG_RECORDS, upstream, partition.lag)
            at = f'"{consumer(flow)}"', *upstream[2:]
            self._add(metrics.CONSUMER_LAG, at, partition.lag)
            self._add(metrics.FETCHER_LAG, (consumer(flow), *at), partition.lag)
        self._known_ms(metrics.LAG_SECONDS, upstream, partition.lag_ms)
        self._known_ms(metrics.KEPT_SECONDS, upstream, partition.left_ms)
        if partition.target_topic:
            self._as_mm2(
                flow, partition, (*labels, partition.target_topic, str(partition.partition))
            )

    def _as_connect(self) -> None:
        flows = self._reading.flows
        led = sum(flow.generation is not None for flow in flows)
        lanes = sum(flow.lanes for flow in flows)
        for metric in metrics.LED:
            self._add(metric, (), led)
        for metric in metrics.CONNECTED:
            self._add(metric, (), lanes)

    def _as_mm2(
        self, flow: FlowSnapshot, partition: PartitionSnapshot, labels: tuple[str, ...]
    ) -> None:
        rate = self._reading.rate(self._reading.at, flow.flow, partition)
        add = self._adder_for(flow)
        add(metrics.RECORD_COUNT, labels, partition.records)
        add(metrics.RECORD_RATE, labels, rate.records)
        add(metrics.BYTE_COUNT, labels, partition.bytes)
        add(metrics.BYTE_RATE, labels, rate.bytes)
        _times(add, metrics.RECORD_AGE, partition.age, labels)
        _times(add, metrics.REPLICATION_LATENCY, partition.latency, labels)

    def _adder_for(self, flow: FlowSnapshot) -> _Add:
        """Return a function that adds a series of MirrorMaker 2 under each name that is enabled."""
        names = self._names.get(flow.flow, LEGACY_NAMES)
        if names == LEGACY_NAMES:
            return self._add

        def add(metric: Metric, labels: tuple[str, ...], value: float) -> None:
            if MetricNames.LEGACY in names:
                self._add(metric, labels, value)
            is_checkpoint = metric in metrics.CHECKPOINT_LATENCY
            plugin = metrics.CHECKPOINT_CONNECTOR if is_checkpoint else metrics.SOURCE_CONNECTOR
            self._add(metrics.PLUGIN_NAMES[metric.name], (plugin, "0", *labels), value)

        return add


def _times(
    add: _Add, names: TimingMetrics, view: TimingView | None, labels: tuple[str, ...]
) -> None:
    if view is None:
        return  # as in MM2, there is no series before the first record
    add(names.last, labels, view.last_ms)
    add(names.least, labels, _or_nan(view.least_ms))
    add(names.most, labels, _or_nan(view.most_ms))
    add(names.average, labels, _or_nan(view.average_ms))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


@cache
def _versions() -> tuple[str, str, str]:
    """Return the versions of Twinlog, Python and PySpark; the last is empty without PySpark."""
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = ""
    return __version__, platform.python_version(), spark


def consumer(flow: FlowSnapshot) -> str:
    """Return an equivalent of the client ID of MirrorMaker 2's consumer. Dashboards recognize
    replicating consumers by its suffix.
    """
    return f"{flow.flow}|replication-consumer"


def connector(flow: FlowSnapshot) -> str:
    """Return the name that Strimzi gives to MirrorMaker 2's connector."""
    return f"{flow.flow}.{metrics.SOURCE_CONNECTOR}"


class _LabelledCollector:
    """Memory and CPU of this process, with the configured labels, which the library omits."""

    def __init__(self, collector: ProcessCollector, labels: Mapping[str, str]) -> None:
        self._collector, self._more = collector, dict(labels)

    def collect(self) -> Iterable[Family]:
        for family in self._collector.collect():
            family.samples = [
                sample._replace(labels={**sample.labels, **self._more}) for sample in family.samples
            ]
            yield family


def exposition(
    reading: Reading, accept: str = "", series: SeriesConfig = ALL_SERIES
) -> tuple[bytes, str]:
    """Return the whole text in the format that the `Accept` header requests (Prometheus' own or
    OpenMetrics), and its content type. Memory and CPU of this process come last.
    """
    is_openmetrics = accepts_name(accept, MEDIA_TYPE)
    text = SeriesText(metrics.ALL, is_openmetrics=is_openmetrics, fixed=series.labels)
    _Series(reading, text, series).fill()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_LabelledCollector(ProcessCollector(registry=None), dict(series.labels)))
    # the header is not passed on, because the library fails on an invalid version in it
    encode, content_type = choose_encoder(OPENMETRICS if is_openmetrics else "")
    return text.encode() + encode(registry), content_type
