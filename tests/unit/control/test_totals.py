"""Totals of flows and clusters, the labels of every series, and metrics without series of
partitions.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event

import pytest

from tests.support.eventually import eventually
from tests.support.monitor import LOCAL, Series, ask, labels, series
from tests.support.properties import BASE
from tests.support.snapshots import flow, partition
from twinlog import metrics
from twinlog.cli.terminal.monitoring import watched
from twinlog.config.load import load
from twinlog.config.series import ALL_SERIES, MetricNames, SeriesConfig
from twinlog.control.watch.latency import CheckpointTiming, Quantiles, TimingView
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.server import WebServer
from twinlog.lane.messages import LaneLoad


def served(*reports: list[FlowSnapshot], config: SeriesConfig = ALL_SERIES) -> Series:
    monitor = Monitor(series=config)
    for report in reports:
        monitor.update(report)
    answer = monitor.answer("/metrics")
    assert answer is not None
    return series(answer.body)


def copied(number: int, records: int) -> PartitionSnapshot:
    return partition("orders", number, records=records, bytes=10 * records)


def test_the_lag_of_a_flow_is_that_of_its_partitions() -> None:
    parts = [
        partition("orders", 0, lag=12, lag_ms=2500),
        partition("orders", 1, lag=3, lag_ms=4000),
        partition("orders", 2, lag=None, lag_ms=None),
        partition("orders", 3, lag=900, lag_ms=900_000, state="RELEASED"),
    ]
    found = served([flow(*parts)])
    assert found["twinlog_flow_lag_records", labels()] == 15
    assert found["twinlog_flow_lag_seconds", labels()] == 4


def test_lag_of_which_nothing_is_known_has_no_series() -> None:
    found = served([flow(partition(lag=None, lag_ms=None))])
    assert [name for name, _ in found if name.startswith("twinlog_flow_lag")] == []


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        ([[copied(0, 100), copied(1, 50)]], 150),
        ([[copied(0, 100)], [copied(0, 130), copied(1, 5)]], 135),
        ([[copied(0, 100), copied(1, 50)], [copied(0, 110)]], 160),
        ([[copied(0, 100)], [copied(0, 20)]], 120),
        ([[copied(0, 100)], [], [copied(0, 130)]], 130),
        ([[copied(0, 100)], [], [copied(0, 20)]], 120),
        ([[copied(0, 100), copied(0, 7)]] * 3, 100),
    ],
    ids=["sum", "more", "one leaves", "again", "next run", "away and again", "there twice"],
)
def test_a_total_never_falls_and_counts_nothing_twice(
    reports: list[list[PartitionSnapshot]], total: int
) -> None:
    found = served(*([flow(*parts)] for parts in reports))
    assert found["twinlog_flow_records_total", labels()] == total
    assert found["twinlog_flow_bytes_total", labels()] == 10 * total


def test_a_flow_that_was_removed_and_added_again_is_counted_once() -> None:
    """A reload removes a flow and the next one adds it again. While the lanes of the former run
    drain, there are two flows of this name.
    """
    ends, waits = flow(copied(0, 110)), flow(generation=None)
    begins, copies = flow(copied(0, 0)), flow(copied(0, 7))
    found = served(
        [flow(copied(0, 100))], [ends, waits], [ends, waits], [ends, begins], [ends, begins],
        [copies],
    )  # fmt: skip
    assert found["twinlog_flow_records_total", labels()] == 117


def test_a_cluster_is_read_and_written_by_all_its_flows() -> None:
    first, second = flow(copied(0, 100)), flow(copied(0, 20), flow="B->C")
    # the first flow is disabled in the second snapshot, but its records still count
    found = served([first, second], [second])
    of_b = {
        direction: found[
            "twinlog_cluster_records_total", (("cluster", "B"), ("direction", direction))
        ]
        for direction in ("from", "into")
    }
    assert of_b == {"into": 100, "from": 20}
    key = ("twinlog_cluster_bytes_total", (("cluster", "C"), ("direction", "into")))
    assert found[key] == 200


def test_labels_of_the_configuration_are_those_of_every_series() -> None:
    fixed = (("namespace", 'a "b"'), ("zone", "east"))
    found = served([flow(partition())], config=SeriesConfig(labels=fixed))
    assert {name for name, given in found if not set(fixed) <= set(given)} == set()
    assert any(name == "process_resident_memory_bytes" for name, _ in found)
    plain = served([flow(partition())])
    assert {(name, tuple(sorted({*given, *fixed}))) for name, given in plain} == set(found)


def test_without_partitions_only_stopped_ones_are_named() -> None:
    parts = [partition("orders", 0, lag=12), partition("orders", 1, state="FAILED", code="X")]
    found = served([flow(*parts)], config=SeriesConfig(has_partitions=False))
    named = {name for name, given in found if "partition" in dict(given)}
    assert named == {"twinlog_partition_error"}
    assert found["twinlog_flow_records_total", labels()] == 200
    assert found["twinlog_flow_lag_records", labels()] == 12
    assert found["twinlog_partitions", labels(state="FAILED")] == 1


@pytest.mark.alone
def test_ten_thousand_partitions_are_answered_within_a_second() -> None:
    monitor = Monitor()
    monitor.update([flow(*(partition(topic=f"topic-{n}") for n in range(10_000)))])

    def took_s() -> float:
        began = time.thread_time()
        answer = monitor.answer("/metrics", accept_encoding="gzip")
        assert answer is not None
        return time.thread_time() - began

    assert min(took_s() for _ in range(3)) < 1


def test_a_flow_has_retention_and_time_without_its_partitions() -> None:
    parts = [
        partition("orders", 0, lag=9, left_ms=90_000),
        partition("orders", 1, lag=9, left_ms=7000),
        partition("orders", 2, lag=0),
        partition("orders", 3, lag=9, left_ms=10, state="RELEASED"),
    ]
    quick = Quantiles(p50_ms=12, p99_ms=1500)
    found = served([flow(*parts, latency=quick)], config=SeriesConfig(has_partitions=False))
    assert found["twinlog_flow_retention_left_seconds", labels()] == 7
    assert found["twinlog_flow_latency_seconds", labels(quantile="0.5")] == 0.012
    assert found["twinlog_flow_latency_seconds", labels(quantile="0.99")] == 1.5
    none = served([flow(parts[2])])
    ours = {name for name, _ in none}
    assert not ours & {"twinlog_flow_retention_left_seconds", "twinlog_flow_latency_seconds"}


@pytest.mark.parametrize("formats", ["legacy", "new", "legacy new"])
def test_series_of_mirror_maker_2_have_the_names_that_their_flow_asks_for(formats: str) -> None:
    view = TimingView(last_ms=7, least_ms=2, most_ms=9, average_ms=4.5)
    part = partition("orders", 0, age=view, latency=view)
    names = frozenset(MetricNames(one) for one in formats.split())
    checked = CheckpointTiming(group="shop", topic="A.orders", partition=0, latency=view)
    asked = flow(part, checkpoints=lambda: (checked,))
    found = served([asked, flow(part, flow="C->B")], config=SeriesConfig(names={"A->B": names}))
    where = {"topic": "A.orders", "partition": "0"}
    group = {"topic": "A.orders", "partition": "0", "group": "shop"}
    plugin = {"connector": "MirrorSourceConnector", "task": "0"}
    checkpoint = {"connector": "MirrorCheckpointConnector", "task": "0"}
    legacy = {
        (f"{metrics.MM2_SOURCE}record_count", labels(**where)),
        (f"{metrics.MM2_SOURCE}replication_latency_ms_max", labels(**where)),
        (f"{metrics.MM2_CHECKPOINT}checkpoint_latency_ms", labels(**group)),
    }
    new = {
        ("kafka_connect_plugins_record_count", labels(**where, **plugin)),
        ("kafka_connect_plugins_replication_latency_ms_max", labels(**where, **plugin)),
        ("kafka_connect_plugins_checkpoint_latency_ms", labels(**group, **checkpoint)),
    }
    assert legacy & found.keys() == (legacy if "legacy" in formats else set())
    assert new & found.keys() == (new if "new" in formats else set())
    other = [name for name, pairs in found if ("source", "C") in pairs and "plugins" in name]
    assert other == []


def test_connect_s_series_have_the_names_of_both_of_strimzi_s_layouts() -> None:
    load = LaneLoad(received_bytes=70, sent_bytes=50, waiting_records=3, free_bytes=20)
    found = served([flow(partition("orders", 0, lag=12), generation=3, lanes=4, load=load)])
    for prefix in ("kafka_connect_worker", "kafka_connect_connect_worker_metrics"):
        assert found[f"{prefix}_connector_count", ()] == 1
        assert found[f"{prefix}_task_count", ()] == 4
    for prefix in ("kafka_connect_coordinator", "kafka_connect_connect_coordinator_metrics"):
        assert found[f"{prefix}_assigned_connectors", ()] == 1
        assert found[f"{prefix}_assigned_tasks", ()] == 4
    place = (("partition", "0"), ("topic", "orders"))
    reads, writes = "A->B|replication-consumer", "connector-producer-A->B.MirrorSourceConnector-0"
    quoted, plain = (("clientid", f'"{reads}"'),), (("client_id", reads),)
    assert found["kafka_consumer_fetch_manager_records_lag", (*quoted, *place)] == 12
    lag = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
    assert found[lag, (*plain, *quoted, *place)] == 12
    assert found["kafka_consumer_incoming_byte_total", quoted] == 70
    assert found["kafka_consumer_consumer_metrics_incoming_byte", plain] == 70
    quoted, plain = (("clientid", f'"{writes}"'),), (("client_id", writes),)
    assert found["kafka_producer_outgoing_byte_total", quoted] == 50
    assert found["kafka_producer_producer_metrics_outgoing_byte", plain] == 50
    assert found["kafka_producer_buffer_available_bytes", quoted] == 20
    assert found["kafka_producer_producer_metrics_buffer_available_bytes", plain] == 20
    active, task = "source_record_active_count", ("task", "0")
    connector = "A->B.MirrorSourceConnector"
    at = ("connector", f'"{connector}"'), task
    assert found[f"kafka_connect_source_task_{active}", at] == 3
    assert (
        found[f"kafka_connect_source_task_metrics_{active}", (("connector", connector), task)] == 3
    )


def test_the_rate_of_connect_s_source_task_is_that_of_the_whole_flow() -> None:
    clock = [100.0]
    monitor = Monitor(clock=lambda: clock[0])
    monitor.update([flow(copied(0, 100), copied(1, 50)), flow(flow="C->B", generation=None)])
    clock[0] += 20
    monitor.update([flow(copied(0, 300), copied(1, 150)), flow(flow="C->B", generation=None)])
    answer = monitor.answer("/metrics")
    assert answer is not None
    found = series(answer.body)
    task = (("connector", "A->B.MirrorSourceConnector"), ("task", "0"))
    for name in ("poll", "write"):
        whole = f"kafka_connect_source_task_metrics_source_record_{name}_rate"
        assert {labels: value for (one, labels), value in found.items() if one == whole} == {
            task: pytest.approx(15)
        }


def test_the_formats_of_a_file_are_those_of_its_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join((*BASE, "A->B.metric.names.formats = new")))
    config, servers = load(file, environment={}), list[WebServer]()
    with watched(file, LOCAL, Event(), servers.append, current=CurrentConfig(config)) as watch:
        eventually(lambda: servers)
        watch.update([flow(partition("orders", 0))])
        found = {name for name, _ in series(ask(servers[0].address, "/metrics").body)}
    assert "kafka_connect_plugins_record_count" in found
    assert f"{metrics.MM2_SOURCE}record_count" not in found
