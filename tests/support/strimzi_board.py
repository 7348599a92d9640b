"""The series that Strimzi's dashboard for MirrorMaker 2 selects: names and labels, panel by panel.

These are facts about two files of github.com/strimzi/strimzi-kafka-operator, release 1.2.0 (commit
6c7b43c4), read from the expressions in them:

- `packaging/examples/metrics/grafana-dashboards/strimzi-kafka-mirror-maker-2.json`, for the names
  that the JMX exporter's rules give (`EXPORTER`);
- `packaging/examples/metrics/strimzi-metrics-reporter/grafana-dashboards/` + the same name, for
  those of Strimzi's Metrics Reporter (`REPORTER`).

The files themselves are not part of this project. With TWINLOG_STRIMZI=FOLDER, a checkout of that
release, a test compares the facts with them (`unit/test_strimzi_board.py`), and another one
evaluates the files' own expressions (`faults/test_alerts_and_board.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = [
    "EXPORTER",
    "LAYOUTS",
    "POD",
    "Panels",
    "Selected",
    "documented",
    "expressions",
    "published",
    "selected_by",
    "with_variables",
]

FOLDER: Final = "packaging/examples/metrics"
NAME: Final = "grafana-dashboards/strimzi-kafka-mirror-maker-2.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "monitoring.md"
CHECKOUT: Final = os.environ.get("TWINLOG_STRIMZI")

POD: Final = (
    ("strimzi_io_cluster", "=", "$strimzi_mirror_maker_cluster_name"),
    ("strimzi_io_kind", "=~", "KafkaMirrorMaker2"),
)
"""Matchers of the labels of a pod that nearly all panels use."""
CONTAINER: Final = (
    ("container", "=", "$strimzi_mirror_maker_cluster_name-mirrormaker2"),
    ("namespace", "=", "$kubernetes_namespace"),
    ("pod", "=~", "$strimzi_mirror_maker_cluster_name-mirrormaker2-.+"),
)
OBJECT: Final = (
    'kafka.connect<type=source-task-metrics, connector=".*MirrorSourceConnector", task=1><>'
    "source-record-active-count"
)


class Selected(NamedTuple):
    """The series that one expression selects."""

    name: str
    by: tuple[str, ...] = ()
    """Labels by which the expression sums the series."""
    matchers: tuple[tuple[str, str, str], ...] = POD
    """Matchers of the expression, each as (label, operator, value)."""

    @property
    def expression(self) -> str:
        """Return an expression that selects these series, with Grafana's variables."""
        text = ",".join(f"{label}{op}{json.dumps(value)}" for label, op, value in self.matchers)
        return f"{self.name}{{{text}}}"


Panels = Mapping[str, tuple[Selected, ...]]
"""Type of a mapping from the title of a panel to its series. Two panels with the same title select
the same series.
"""

PARTITION: Final = ("partition", "topic")
SOURCE: Final = "kafka_connect_mirror_mirrorsourceconnector_"
CHECKPOINT: Final = "kafka_connect_mirror_mirrorcheckpointconnector_"
PER_POD: Final = ("kubernetes_pod_name",)


def _timing(name: str) -> tuple[Selected, ...]:
    return tuple(
        Selected(f"{SOURCE}{name}{end}", PARTITION) for end in ("", "_avg", "_max", "_min")
    )


COMMON: Final[Panels] = {
    "Total record rate": (Selected(f"{SOURCE}record_rate"),),
    "Total byte rate": (Selected(f"{SOURCE}byte_rate"),),
    "Record Age": _timing("record_age_ms"),
    "Replication Latency": _timing("replication_latency_ms"),
    "Consumer Group Offset Sync Latency": (
        Selected(
            f"{CHECKPOINT}checkpoint_latency_ms",
            ("group", "partition", "source", "target", "topic"),
        ),
    ),
    "JVM Memory": (Selected("jvm_memory_used_bytes", PER_POD),),
    "Time Spent in GC": (Selected("jvm_gc_collection_seconds_sum", PER_POD),),
    "JVM Thread Count": (Selected("jvm_threads_current", PER_POD),),
}

EXPORTER: Final[Panels] = {
    **COMMON,
    "Total Number of Running Connectors": (Selected("kafka_connect_worker_connector_count"),),
    "Total Number of Running Tasks": (Selected("kafka_connect_worker_task_count"),),
    "Consumer Lag": (
        Selected(
            "kafka_consumer_fetch_manager_records_lag",
            PARTITION,
            (("clientid", "=~", '.*replication-consumer"'), *POD),
        ),
    ),
    "Incoming Bytes per Second": (Selected("kafka_consumer_incoming_byte_total", PER_POD),),
    "Outgoing Bytes per Second": (Selected("kafka_producer_outgoing_byte_total", PER_POD),),
    "Source Connector - Producer Available Buffer": (
        Selected(
            "kafka_producer_buffer_available_bytes",
            matchers=(("clientid", "=~", '".*SourceConnector-[0-9]+"'),),
        ),
    ),
    "Source Connector - Average Offset Commit Time": (
        Selected(
            "kafka_connect_connector_task_offset_commit_avg_time_ms",
            matchers=(("connector", "=~", '".*SourceConnector"'), ("task", "=~", "[0-9]+")),
        ),
    ),
    "Source Connector - Connect Outstanding Messages Queue": (
        Selected(
            "kafka_connect_source_task_source_record_active_count",
            matchers=(("connector", "=~", '".*SourceConnector"'),),
        ),
    ),
    "Assigned Connectors per Worker": (
        Selected("kafka_connect_coordinator_assigned_connectors", PER_POD),
    ),
    "Assigned Tasks per Worker": (Selected("kafka_connect_coordinator_assigned_tasks", PER_POD),),
    "Rebalancing": (Selected("kafka_connect_worker_rebalance_rebalancing"),),
    "CPU Usage": (Selected("container_cpu_usage_seconds_total", ("pod",), CONTAINER),),
}

REPORTER: Final[Panels] = {
    **COMMON,
    "Total Number of Running Connectors": (
        Selected("kafka_connect_connect_worker_metrics_connector_count"),
    ),
    "Total Number of Running Tasks": (Selected("kafka_connect_connect_worker_metrics_task_count"),),
    "Consumer Lag": (
        Selected(
            "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
            PARTITION,
            (("client_id", "=~", ".*replication-consumer"), *POD),
        ),
    ),
    "Incoming Bytes per Second": (
        Selected("kafka_consumer_consumer_metrics_incoming_byte", PER_POD),
    ),
    "Outgoing Bytes per Second": (
        Selected("kafka_producer_producer_metrics_outgoing_byte", PER_POD),
    ),
    "Connector - Producer Available Buffer": (
        Selected("kafka_producer_producer_metrics_buffer_available_bytes", ("client_id",), ()),
    ),
    "Source Connector - Average Offset Commit Time": (
        Selected(
            "kafka_connect_connector_task_metrics_offset_commit_avg_time_ms",
            matchers=(("connector", "=~", ".*SourceConnector"), ("task", "=~", "[0-9]+")),
        ),
    ),
    "Source Connector - Connect Outstanding Messages Queue": (
        Selected(
            "kafka_connect_source_task_source_record_active_count",
            ("_objectname",),
            (("_objectname", "=~", OBJECT),),
        ),
    ),
    "Assigned Connectors per Worker": (
        Selected("kafka_connect_connect_coordinator_metrics_assigned_connectors", PER_POD),
    ),
    "Assigned Tasks per Worker": (
        Selected("kafka_connect_connect_coordinator_metrics_assigned_tasks", PER_POD),
    ),
    "Rebalancing": (Selected("kafka_connect_connect_worker_rebalance_metrics_rebalancing"),),
    "CPU Usage": (Selected("process_cpu_seconds_total", ("pod",), CONTAINER),),
}

LAYOUTS: Final = {
    f"{FOLDER}/{NAME}": EXPORTER,
    f"{FOLDER}/strimzi-metrics-reporter/{NAME}": REPORTER,
}


def expressions(board: Any) -> Iterator[tuple[str, str]]:
    """Yield the title and the expression of every panel of a dashboard."""
    for panel in board.get("panels", ()):
        yield from expressions(panel)
        for target in panel.get("targets", ()):
            if "expr" in target:
                yield panel["title"], target["expr"]


def selected_by(expression: str) -> Iterator[Selected]:
    """Yield the series that an expression selects."""
    by = re.search(r"\bby \(([^)]*)\)", expression)
    labels = tuple(sorted(re.split(r",\s*", by[1]))) if by else ()
    expression = re.sub(r"\bby \([^)]*\)", "", expression)
    for name, found in re.findall(r"\b([a-z]\w+_\w+)(?:\{(.*?[^\\]\")\})?(?=[\[)])", expression):
        matchers = re.findall(r'(\w+)(=~|!~|!=|=)("(?:[^"\\]|\\.)*")', found)
        yield Selected(
            name, labels, tuple(sorted((one, op, json.loads(text)) for one, op, text in matchers))
        )


def documented() -> dict[str, tuple[str, str]]:
    """Return what docs/monitoring.md states about each panel, by the panel's title. The first text
    states if the panel shows data, the second states the source of the data, or why there is none.
    """
    text = PAGE.read_text()
    table = text[text.index("### Strimzi's board") : text.index("## Alerts and board")]
    rows = [re.split(r"\s*(?<!\\)\|\s*", line) for line in table.splitlines() if line[:1] == "|"]
    return {title: (shows, why) for _, title, shows, why, _ in rows[2:]}


def published(path: str) -> Any:
    """Return the dashboard file of a layout, or None if there is no checkout of Strimzi."""
    return None if not CHECKOUT else json.loads((Path(CHECKOUT) / path).read_text())


def with_variables(expression: str, cluster: str, namespace: str) -> str:
    """Return an expression as Grafana sends it, with its variables replaced."""
    text = expression.replace("$strimzi_mirror_maker_cluster_name", cluster)
    return text.replace("$kubernetes_namespace", namespace)
