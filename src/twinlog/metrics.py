"""Every metric, named once: what `/metrics` serves, with which labels and what it means.

The names of MirrorMaker 2's series are those that the usual JMX exporter rules make of its MBeans,
so that dashboards and alerts go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One series; a counter's name carries `_total`, as it is served."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


FLOW: Final = ("source", "target")
PARTITION: Final = (*FLOW, "topic", "partition")


def _gauge(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, meaning=meaning)


def _counter(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, meaning=meaning)


BUILD: Final = _gauge("twinlog_build_info", ("version",), "1, with the version as label")
FLOW_STATE: Final = _gauge(
    "twinlog_flow_state", (*FLOW, "state"), "1 for the state that the flow is in, 0 for the others"
)
FLOW_READY: Final = _gauge(
    "twinlog_flow_ready", FLOW, "1 when the flow moved or was at its end within the last minute"
)
FLOW_LANES: Final = _gauge("twinlog_flow_lanes", FLOW, "lanes that are connected")
FLOW_GENERATION: Final = _gauge(
    "twinlog_flow_generation", FLOW, "how often the lead of the flow was taken; -1 without it"
)
PARTITIONS: Final = _gauge("twinlog_partitions", (*FLOW, "state"), "partitions by state")
PARTITION_ERROR: Final = _gauge(
    "twinlog_partition_error", (*PARTITION, "code"), "1 while the partition stands still with it"
)
ERRORS: Final = _counter(
    "twinlog_errors_total", (*FLOW, "code"), "how often a code came up, passing troubles included"
)
RECORDS: Final = _counter("twinlog_records_total", PARTITION, "records that the target has taken")
BYTES: Final = _counter(
    "twinlog_bytes_total", PARTITION, "bytes of batches that the target has taken, as they travel"
)
LAG_RECORDS: Final = _gauge(
    "twinlog_lag_records", PARTITION, "offsets between the copy and the source's end"
)
LAG_SECONDS: Final = _gauge(
    "twinlog_lag_seconds", PARTITION, "age of the last copied record while others wait, else 0"
)

OURS: Final = (
    BUILD,
    FLOW_STATE,
    FLOW_READY,
    FLOW_LANES,
    FLOW_GENERATION,
    PARTITIONS,
    PARTITION_ERROR,
    ERRORS,
    RECORDS,
    BYTES,
    LAG_RECORDS,
    LAG_SECONDS,
)

MM2_SOURCE: Final = "kafka_connect_mirror_mirrorsourceconnector_"
MM2_CHECKPOINT: Final = "kafka_connect_mirror_mirrorcheckpointconnector_"
GROUP_PARTITION: Final = (*FLOW, "group", "topic", "partition")


def _mm2(name: str, meaning: str) -> Metric:
    return _gauge(f"{MM2_SOURCE}{name}", PARTITION, meaning)


RECORD_COUNT: Final = _mm2("record_count", "records that the target has taken")
RECORD_RATE: Final = _mm2("record_rate", "records a second, over the last minute")
BYTE_COUNT: Final = _mm2("byte_count", "bytes of batches that the target has taken")
BYTE_RATE: Final = _mm2("byte_rate", "bytes a second, over the last minute")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingMetrics:
    """The four series of one kind of time: the last, and least, most, average of a minute."""

    last: Metric
    least: Metric
    most: Metric
    average: Metric

    @property
    def all(self) -> tuple[Metric, ...]:
        return self.last, self.least, self.most, self.average


def _timing(
    name: str, what: str, one: str = "batch", of: Callable[[str, str], Metric] = _mm2
) -> TimingMetrics:
    return TimingMetrics(
        last=of(name, f"{what}: the last {one}"),
        least=of(f"{name}_min", f"{what}: the least of the last minute"),
        most=of(f"{name}_max", f"{what}: the most of the last minute"),
        average=of(f"{name}_avg", f"{what}: the average of the last minute"),
    )


def _mm2_checkpoint(name: str, meaning: str) -> Metric:
    return _gauge(f"{MM2_CHECKPOINT}{name}", GROUP_PARTITION, meaning)


RECORD_AGE: Final = _timing("record_age_ms", "age of a batch when it was read")
REPLICATION_LATENCY: Final = _timing(
    "replication_latency_ms", "age of a batch when the target had it"
)

CHECKPOINT_LATENCY: Final = _timing(
    "checkpoint_latency_ms",
    "from the look at a commit until the target had its checkpoint",
    "checkpoint",
    _mm2_checkpoint,
)

MM2: Final = (
    RECORD_COUNT,
    RECORD_RATE,
    BYTE_COUNT,
    BYTE_RATE,
    *RECORD_AGE.all,
    *REPLICATION_LATENCY.all,
    *CHECKPOINT_LATENCY.all,
)
