"""Every metric of `/metrics`, with its labels and meaning. `control.watch.series` sets the values.

There are four kinds. `TWINLOG_METRICS` are named `twinlog_*`. `MM2` have the names that the usual
JMX exporter rules give to MirrorMaker 2's MBeans. `PLUGIN_NAMES` has the same metrics under the
names of Connect's plugins (KIP-1280). `CONNECT` are metrics of Connect and of its clients. The last
three kinds are for existing dashboards and alerts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple


class SeriesKind(StrEnum):
    """The metric types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric. The name of a counter includes `_total`."""

    name: str
    kind: SeriesKind
    labels: tuple[str, ...]
    meaning: str


FLOW: Final = ("source", "target")
PARTITION: Final = (*FLOW, "topic", "partition")


def _gauge(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name=name, kind=SeriesKind.GAUGE, labels=labels, meaning=meaning)


def _counter(name: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name=name, kind=SeriesKind.COUNTER, labels=labels, meaning=meaning)


BUILD: Final = _gauge(
    "twinlog_build_info",
    ("version", "python", "spark"),
    "1, with the versions of Twinlog, Python and PySpark as labels",
)
FLOW_STATE: Final = _gauge(
    "twinlog_flow_state", (*FLOW, "state"), "1 for the flow's current state, 0 for the others"
)
FLOW_READY: Final = _gauge(
    "twinlog_flow_ready",
    FLOW,
    "1 if /readyz reports the flow as ready, else 0",
)
FLOW_LANES: Final = _gauge("twinlog_flow_lanes", FLOW, "lanes that are connected")
FLOW_GENERATION: Final = _gauge(
    "twinlog_flow_generation", FLOW, "generation of the flow; -1 unless this process leads it"
)
FLOW_LOSS_RECORDS: Final = _gauge(
    "twinlog_flow_loss_records",
    FLOW,
    "offsets of the source that are not on the target, so losing the source would lose them",
)
FLOW_LOSS_SECONDS: Final = _gauge(
    "twinlog_flow_loss_seconds",
    FLOW,
    "age of the oldest recovery point of all partitions: the target has all records up to then",
)
FLOW_LOSS_UNKNOWN: Final = _gauge(
    "twinlog_flow_loss_unknown", FLOW, "partitions whose loss is unknown"
)
FLOW_RPO_EXCEEDED: Final = _gauge(
    "twinlog_flow_rpo_exceeded", FLOW, "1 while twinlog.rpo.seconds is exceeded, else 0"
)
FLOW_RPO_SECONDS: Final = _gauge("twinlog_flow_rpo_seconds", FLOW, "twinlog.rpo.seconds, if set")
FLOW_HELD_RATE: Final = _gauge(
    "twinlog_flow_producer_quota_bytes_per_second",
    FLOW,
    "while twinlog.rpo.enforce throttles producers: bytes per second that each user may write to "
    "each broker of the source",
)
VERIFIED_RECORDS: Final = _counter(
    "twinlog_verified_records_total",
    FLOW,
    "records of the copy that the mirror has read back and found equal to the source's",
)
VERIFIED_DIFFERENCES: Final = _counter(
    "twinlog_verified_differences_total",
    FLOW,
    "ranges of the copy that differ from the source",
)
VERIFIED_TIME: Final = _gauge(
    "twinlog_verified_timestamp_seconds", FLOW, "time of the last comparison"
)
PARTITIONS: Final = _gauge("twinlog_partitions", (*FLOW, "state"), "partitions by state")
PARTITION_ERROR: Final = _gauge(
    "twinlog_partition_error",
    (*PARTITION, "code"),
    "1 while the partition has stopped with this code",
)
ERRORS: Final = _counter(
    "twinlog_errors_total", (*FLOW, "code"), "occurrences of a code, including temporary problems"
)
RECORDS: Final = _counter(
    "twinlog_records_total", PARTITION, "records that the target has accepted"
)
BYTES: Final = _counter(
    "twinlog_bytes_total", PARTITION, "bytes of batches that the target has accepted, as sent"
)
LAG_RECORDS: Final = _gauge(
    "twinlog_lag_records", PARTITION, "offsets between the copy and the source's end"
)
LAG_SECONDS: Final = _gauge(
    "twinlog_lag_seconds",
    PARTITION,
    "while records wait: age of the last copied one, or the time for which records have waited, if "
    "that is less; else 0",
)
KEPT_SECONDS: Final = _gauge(
    "twinlog_retention_left_seconds",
    PARTITION,
    "while records have waited for some time: minimum time for which the source keeps the next one",
)
FLOW_RECORDS: Final = _counter(
    "twinlog_flow_records_total", FLOW, "records that the target has accepted, of all partitions"
)
FLOW_BYTES: Final = _counter(
    "twinlog_flow_bytes_total",
    FLOW,
    "bytes of batches that the target has accepted, of all partitions",
)
FLOW_LAG_RECORDS: Final = _gauge(
    "twinlog_flow_lag_records", FLOW, "lag in records of all partitions whose lag is known"
)
FLOW_LAG_SECONDS: Final = _gauge(
    "twinlog_flow_lag_seconds", FLOW, "greatest lag in seconds of any partition"
)
FLOW_KEPT_SECONDS: Final = _gauge(
    "twinlog_flow_retention_left_seconds",
    FLOW,
    "smallest twinlog_retention_left_seconds of any partition",
)
FLOW_LATENCY_SECONDS: Final = _gauge(
    "twinlog_flow_latency_seconds",
    (*FLOW, "quantile"),
    "latency of the last minute's batches, from the newest timestamp in a batch until the target "
    "acknowledged it; overestimated by at most 25 %",
)
FLOW_BATCH_LATENCY: Final = Metric(
    name="twinlog_flow_batch_latency_seconds",
    kind=SeriesKind.HISTOGRAM,
    labels=FLOW,
    meaning="latency of all batches since this process leads the flow, from the newest timestamp "
    "in a batch until the target had it",
)
CLUSTER: Final = ("cluster", "direction")
CLUSTER_RECORDS: Final = _counter(
    "twinlog_cluster_records_total",
    CLUSTER,
    "records that all flows copied from the cluster, or into it",
)
CLUSTER_BYTES: Final = _counter(
    "twinlog_cluster_bytes_total",
    CLUSTER,
    "bytes of batches that all flows copied from the cluster, or into it",
)
CERTIFICATE_EXPIRY: Final = _gauge(
    "twinlog_certificate_expiry_timestamp_seconds",
    ("cluster", "what"),
    "earliest expiry of the client certificates (client_certificate) or of the truststore",
)

TWINLOG_METRICS: Final = tuple(one for one in [*vars().values()] if isinstance(one, Metric))
"""All metrics named `twinlog_*`."""

MM2_SOURCE: Final = "kafka_connect_mirror_mirrorsourceconnector_"
MM2_CHECKPOINT: Final = "kafka_connect_mirror_mirrorcheckpointconnector_"
GROUP_PARTITION: Final = (*FLOW, "group", "topic", "partition")


def _mm2(name: str, meaning: str) -> Metric:
    return _gauge(f"{MM2_SOURCE}{name}", PARTITION, meaning)


RECORD_COUNT: Final = _mm2("record_count", "records that the target has accepted")
RECORD_RATE: Final = _mm2("record_rate", "records a second, over the last minute")
BYTE_COUNT: Final = _mm2("byte_count", "bytes of batches that the target has accepted")
BYTE_RATE: Final = _mm2("byte_rate", "bytes a second, over the last minute")


class TimingMetrics(NamedTuple):
    """The four metrics of a duration: its last value, and its minimum, maximum and average over the
    last minute.
    """

    last: Metric
    least: Metric
    most: Metric
    average: Metric


def _timing(
    name: str, what: str, unit: str = "batch", of: Callable[[str, str], Metric] = _mm2
) -> TimingMetrics:
    return TimingMetrics(
        last=of(name, f"{what}: the last {unit}"),
        least=of(f"{name}_min", f"{what}: the minimum of the last minute"),
        most=of(f"{name}_max", f"{what}: the maximum of the last minute"),
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
    "from the read of a commit until the target had its checkpoint",
    "checkpoint",
    _mm2_checkpoint,
)

MM2: Final = (
    RECORD_COUNT,
    RECORD_RATE,
    BYTE_COUNT,
    BYTE_RATE,
    *RECORD_AGE,
    *REPLICATION_LATENCY,
    *CHECKPOINT_LATENCY,
)

PLUGINS: Final = "kafka_connect_plugins_"
SOURCE_CONNECTOR: Final = "MirrorSourceConnector"
CHECKPOINT_CONNECTOR: Final = "MirrorCheckpointConnector"


def _plugin(metric: Metric) -> Metric:
    """Return a metric of MM2 with the name and labels of a Connect plugin (KIP-877, KIP-1280)."""
    name = metric.name.removeprefix(MM2_SOURCE).removeprefix(MM2_CHECKPOINT)
    return replace(metric, name=PLUGINS + name, labels=("connector", "task", *metric.labels))


PLUGIN_NAMES: Final = {metric.name: _plugin(metric) for metric in MM2}
"""Metrics for `metric.names.formats = new`, by the name of the metric in `MM2`."""

# The JMX exporter's rules and Strimzi's Metrics Reporter put client IDs into different labels. The
# exporter does not remove the quotes that JMX puts around a client ID. Dashboards for the Metrics
# Reporter used the exporter's label until Strimzi 1.2, so metrics of the Metrics Reporter have both
# labels.
CLIENT: Final = ("clientid", "topic", "partition")
REPORTED_CLIENT: Final = ("client_id", *CLIENT)
_LED: Final = "flows that this process leads"
_LANES: Final = "lanes that are connected"
_BEHIND: Final = "offsets between the copy and the source's end"

CONSUMER_LAG: Final = _gauge("kafka_consumer_fetch_manager_records_lag", CLIENT, _BEHIND)

FETCHER_LAG: Final = _gauge(
    "kafka_consumer_consumer_fetch_manager_metrics_records_lag", REPORTED_CLIENT, _BEHIND
)

TASK: Final = ("connector", "task")
_TAKEN: Final = "records per second that the target has accepted, over the last minute"
TASK_RATES: Final = tuple(
    _gauge(f"kafka_connect_source_task_metrics_source_record_{name}_rate", TASK, _TAKEN)
    for name in ("poll", "write")
)

_RECEIVED: Final = "bytes that lanes have received from the source's brokers"
_SENT: Final = "bytes that lanes have sent to the target's brokers"
_FREE: Final = "unused part of the memory that lanes have for records"
_WAITING: Final = "records that lanes have read and the target has not acknowledged"

INCOMING: Final = _counter("kafka_consumer_incoming_byte_total", ("clientid",), _RECEIVED)
OUTGOING: Final = _counter("kafka_producer_outgoing_byte_total", ("clientid",), _SENT)
AVAILABLE: Final = _gauge("kafka_producer_buffer_available_bytes", ("clientid",), _FREE)
ACTIVE: Final = _gauge("kafka_connect_source_task_source_record_active_count", TASK, _WAITING)
REPORTED_INCOMING: Final = _gauge(
    "kafka_consumer_consumer_metrics_incoming_byte", ("client_id",), _RECEIVED
)
REPORTED_OUTGOING: Final = _gauge(
    "kafka_producer_producer_metrics_outgoing_byte", ("client_id",), _SENT
)
REPORTED_AVAILABLE: Final = _gauge(
    "kafka_producer_producer_metrics_buffer_available_bytes", ("client_id",), _FREE
)
REPORTED_ACTIVE: Final = _gauge(
    "kafka_connect_source_task_metrics_source_record_active_count", TASK, _WAITING
)

# the last two names consist of the Kafka metric's group and name, as in Strimzi's Metrics Reporter
LED: Final = tuple(
    _gauge(f"kafka_connect_{name}", (), _LED)
    for name in (
        *("worker_connector_count", "coordinator_assigned_connectors"),
        "connect_worker_metrics_connector_count",
        "connect_coordinator_metrics_assigned_connectors",
    )
)
CONNECTED: Final = tuple(
    _gauge(f"kafka_connect_{name}", (), _LANES)
    for name in (
        *("worker_task_count", "coordinator_assigned_tasks"),
        "connect_worker_metrics_task_count",
        "connect_coordinator_metrics_assigned_tasks",
    )
)
BEHIND: Final = (CONSUMER_LAG, FETCHER_LAG)

JVM_MEMORY: Final = _gauge("jvm_memory_used_bytes", ("area",), "memory of Spark's JVM in use")
JVM_COLLECTION: Final = _gauge(
    "jvm_gc_collection_seconds_sum", ("gc",), "time of garbage collections of Spark's JVM"
)
JVM_THREADS: Final = _gauge("jvm_threads_current", (), "threads of Spark's JVM")
JVM: Final = (JVM_MEMORY, JVM_COLLECTION, JVM_THREADS)

LOAD: Final = (
    *(INCOMING, OUTGOING, AVAILABLE, ACTIVE),
    *(REPORTED_INCOMING, REPORTED_OUTGOING, REPORTED_AVAILABLE, REPORTED_ACTIVE),
)

CONNECT: Final = (*LED, *CONNECTED, *BEHIND, *TASK_RATES, *LOAD, *JVM)
"""Metrics of Connect and its clients that have a meaning for Twinlog, with the names of both the
JMX exporter and the Metrics Reporter.
"""

ALL: Final = (*TWINLOG_METRICS, *MM2, *CONNECT, *PLUGIN_NAMES.values())
