"""The metrics and the two probes over HTTP, for flows whose numbers a test sets."""

from __future__ import annotations

import gzip
import json
import socket
from dataclasses import replace
from pathlib import Path
from threading import Event
from threading import enumerate as threads
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.certificates import shared_authority
from tests.support.eventually import eventually
from tests.support.monitor import LOCAL, Series, ask, labels, series, served
from tests.support.settings import settings_for
from tests.support.snapshots import flow, partition
from twinlog import metrics
from twinlog.addresses import Address
from twinlog.cli.terminal import monitoring
from twinlog.cluster.security.security_settings import SecuritySettings
from twinlog.control.watch.latency import CheckpointTiming, LatencyHistogram, Quantiles, TimingView
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.verified import Verified
from twinlog.control.web import server as web_server
from twinlog.control.web.address import CannotListen, parse_listen
from twinlog.control.web.server import WebServer
from twinlog.errors import UsageError
from twinlog.lane.messages import LaneLoad
from twinlog.spark.jvm_use import JvmUse


class Clock:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


CHECKED = CheckpointTiming(
    group="shop",
    topic="A.orders",
    partition=0,
    latency=TimingView(last_ms=7, least_ms=2, most_ms=9, average_ms=4.5),
)


TRUSTED = replace(
    settings_for("host:1"),
    security=SecuritySettings(protocol="SSL", ca_pem=shared_authority().pem),
)


def metrics_of(*flows: Any, jvm: JvmUse | None = None) -> Series:
    monitor = Monitor()
    monitor.note_jvm(jvm)
    monitor.update(list(flows))
    answer = monitor.answer("/metrics")
    assert answer is not None
    return series(answer.body)


def test_lag_is_reported_in_records_and_seconds_for_every_partition() -> None:
    found = metrics_of(
        flow(partition("orders", 0, lag=12, lag_ms=2500, state="COPYING"), partition("orders", 1))
    )
    first, second = (labels(topic="orders", partition=str(n)) for n in (0, 1))
    assert found["twinlog_lag_records", first] == 12
    assert found["twinlog_lag_seconds", first] == 2.5
    assert found["twinlog_lag_records", second] == found["twinlog_lag_seconds", second] == 0


def test_a_standby_flow_has_its_own_state_and_is_ready() -> None:
    found = metrics_of(flow(state="STANDBY", generation=None, guarantee="", lanes=0))
    assert found["twinlog_flow_state", labels(state="STANDBY")] == 1
    assert found["twinlog_flow_state", labels(state="DEGRADED")] == 0
    assert found["twinlog_flow_ready", labels()] == 1


def test_lag_that_is_not_known_has_no_series() -> None:
    found = metrics_of(flow(partition(lag=None, lag_ms=None)))
    assert not any(name.startswith("twinlog_lag") for name, _ in found)


def test_a_topic_that_was_taken_off_the_list_has_counts_and_no_lag() -> None:
    found = metrics_of(flow(partition(state="RELEASED", lag=5, lag_ms=5)))
    assert found["twinlog_records_total", labels(topic="orders", partition="0")] == 100
    assert not any(name.startswith("twinlog_lag") for name, _ in found)


def test_no_series_is_served_twice() -> None:
    again = partition(state="FAILED", lag=None, target_topic="", code="X", records=0)
    monitor = Monitor()
    monitor.update([flow(partition(), again)])
    answer = monitor.answer("/metrics")
    assert answer is not None
    lines = [line.rpartition(b" ")[0] for line in answer.body.splitlines() if line[:1] != b"#"]
    assert len(lines) == len(set(lines))


def test_a_topic_that_was_copied_and_now_has_a_problem_has_its_code() -> None:
    """For an hour, the partitions of such a topic are shown twice: RELEASED with the records that
    were copied, and FAILED with the problem.
    """
    now = partition(state="FAILED", lag=None, target_topic="", code="COPIED_BACK", records=0)
    found = metrics_of(flow(partition(state="RELEASED"), now, now))
    where = labels(topic="orders", partition="0", code="COPIED_BACK")
    assert found["twinlog_partition_error", where] == 1
    assert found["twinlog_records_total", labels(topic="orders", partition="0")] == 100


def test_errors_are_counted_by_code_and_current_ones_are_listed() -> None:
    stuck = partition("orders", 3, state="FAILED", code="RECORD_TOO_LARGE", message="no")
    found = metrics_of(flow(stuck, errors={"RECORD_TOO_LARGE": 4, "UNREACHABLE": 1}))
    assert found["twinlog_errors_total", labels(code="RECORD_TOO_LARGE")] == 4
    assert found["twinlog_errors_total", labels(code="UNREACHABLE")] == 1
    where = labels(topic="orders", partition="3", code="RECORD_TOO_LARGE")
    assert found["twinlog_partition_error", where] == 1
    assert found["twinlog_partitions", labels(state="FAILED")] == 1


def test_series_of_mirrormaker_carry_its_names_and_the_remote_topic() -> None:
    times = TimingView(last_ms=7, least_ms=2, most_ms=9, average_ms=4.5)
    found = metrics_of(flow(partition("orders", 0, age=times, latency=times)))
    where = labels(topic="A.orders", partition="0")
    expected = {
        "record_count": 100,
        "byte_count": 10_000,
        "record_age_ms": 7,
        "record_age_ms_min": 2,
        "record_age_ms_max": 9,
        "record_age_ms_avg": 4.5,
        "replication_latency_ms": 7,
        "replication_latency_ms_avg": 4.5,
    }
    prefix = "kafka_connect_mirror_mirrorsourceconnector_"
    assert {name: found[prefix + name, where] for name in expected} == expected


def test_every_metric_that_is_named_is_served_and_no_other() -> None:
    times = TimingView(last_ms=7, least_ms=2, most_ms=9, average_ms=4.5)
    stuck = partition(code="X", age=times, latency=times, left_ms=600_000)
    names = {
        name
        for name, _ in metrics_of(
            flow(
                stuck,
                errors={"X": 1},
                checkpoints=lambda: (CHECKED,),
                loss_records=7,
                loss_ms=2500,
                rpo_ms=30_000,
                held_rate=50_000,
                latency=Quantiles(p50_ms=5, p99_ms=70),
                latencies=LatencyHistogram(counts={5: 1}, total_ms=5),
                verified=Verified(mode="sample", at_ms=7),
                clusters=lambda: (TRUSTED,),
                load=LaneLoad(),
            ),
            jvm=JvmUse(heap_bytes=1, nonheap_bytes=1, threads=1, collection_s=(("Copy", 0.1),)),
        )
    }
    ours = {name for name in names if not name.startswith(("process_", "python_"))}
    # these series are served only if a flow requests them
    plugins = {metric.name for metric in metrics.PLUGIN_NAMES.values()}
    histogram = metrics.FLOW_BATCH_LATENCY.name
    parts = {f"{histogram}_{end}" for end in ("bucket", "sum", "count")}
    assert ours == {metric.name for metric in metrics.ALL} - plugins - {histogram} | parts


def test_series_of_connect_count_the_flows_that_are_led_and_all_lanes() -> None:
    found = metrics_of(
        flow(partition(), lanes=3),
        flow(partition(), flow="C->B", lanes=1, state="PAUSED"),
        flow(flow="D->B", lanes=0, state="STANDBY", generation=None),
    )
    expected = {
        "kafka_connect_worker_connector_count": 2,
        "kafka_connect_coordinator_assigned_connectors": 2,
        "kafka_connect_worker_task_count": 4,
        "kafka_connect_coordinator_assigned_tasks": 4,
    }
    assert {name: found[name, ()] for name in expected} == expected
    assert metrics_of()["kafka_connect_worker_connector_count", ()] == 0


def test_lag_of_a_consumer_is_shown_by_flow() -> None:
    found = metrics_of(
        flow(partition(lag=12)),
        flow(partition(lag=5), flow="C->B"),
        flow(partition(lag=None), flow="D->B"),
    )
    lags = {
        dict(where)["clientid"]: value
        for (name, where), value in found.items()
        if name == "kafka_consumer_fetch_manager_records_lag"
    }
    assert lags == {'"A->B|replication-consumer"': 12, '"C->B|replication-consumer"': 5}


def test_loss_is_reported_where_it_is_known() -> None:
    found = metrics_of(flow(partition(), loss_records=7, loss_ms=2500, rpo_ms=30_000))
    names = ("loss_records", "loss_seconds", "loss_unknown", "rpo_seconds", "rpo_exceeded")
    assert [found[f"twinlog_flow_{name}", labels()] for name in names] == [7, 2.5, 0, 30, 0]
    late = metrics_of(flow(partition(), loss_unknown=1, rpo_ms=30_000, rpo_excess="it is"))
    assert {name for name, _ in late if "_loss_" in name} == {"twinlog_flow_loss_unknown"}
    assert late["twinlog_flow_rpo_exceeded", labels()] == 1
    assert not [name for name, _ in metrics_of(flow(partition())) if "_rpo_" in name]


def test_checkpoints_carry_their_group() -> None:
    found = metrics_of(flow(partition(), checkpoints=lambda: (CHECKED,)))
    where = labels(group="shop", topic="A.orders", partition="0")
    prefix = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert (found[prefix, where], found[f"{prefix}_max", where]) == (7, 9)


def test_rates_are_those_of_the_last_minute() -> None:
    clock = Clock()
    monitor = Monitor(clock=clock)
    for second in range(121):
        clock.now = 1000.0 + second
        # 10 records per second for a minute, then 50
        records = 10 * second if second <= 60 else 600 + 50 * (second - 60)
        monitor.update([flow(partition(records=records, bytes=100 * records))])
    answer = monitor.answer("/metrics")
    assert answer is not None
    found, where = series(answer.body), labels(topic="A.orders", partition="0")
    prefix = "kafka_connect_mirror_mirrorsourceconnector_"
    assert found[prefix + "record_rate", where] == pytest.approx(50)
    assert found[prefix + "byte_rate", where] == pytest.approx(5000)


def test_prometheus_parses_the_text() -> None:
    monitor = Monitor()
    monitor.update([flow(partition('or"de\\rs\n'))])
    with served(monitor) as server:
        answer = ask(server.address, "/metrics")
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/plain")
    found = series(answer.body)
    assert found["twinlog_records_total", labels(topic='or"de\\rs\n', partition="0")] == 100


def test_openmetrics_and_gzip_are_served_on_request() -> None:
    monitor = Monitor()
    monitor.update([flow(*(partition(number=number) for number in range(100)))])
    headers = {
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.2",
        "Accept-Encoding": "gzip",
    }
    with served(monitor) as server:
        plain = ask(server.address, "/metrics")
        answer = ask(server.address, "/metrics", headers=headers)
    assert answer.headers.get_content_type() == "application/openmetrics-text"
    assert answer.headers["Content-Encoding"] == "gzip"
    assert plain.headers["Content-Encoding"] is None
    text = gzip.decompress(answer.body).decode()
    families = {one.name: one for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert [sample.value for sample in families["twinlog_records"].samples] == [100] * 100
    assert text.endswith("# EOF\n"), "memory and CPU of the process are in front of it"
    assert "process_resident_memory_bytes" in families
    assert len(answer.body) < len(plain.body) / 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Accept", "application/openmetrics-text;q=0"),
        ("Accept", "text/plain;version=1..0"),
        ("Accept", "text/html, */*"),
        ("Accept-Encoding", "gzip;q=0, identity"),
        ("Accept-Encoding", "gzip; q=0.000"),
    ],
)
def test_paths_that_are_not_enabled_are_not_served(name: str, value: str) -> None:
    with served(Monitor()) as server:
        answer = ask(server.address, "/metrics", headers={name: value})
    assert (answer.status, answer.headers.get_content_type()) == (200, "text/plain")
    assert answer.headers["Content-Encoding"] is None


@pytest.mark.parametrize("version", ["abc", "1.x", "9", ""])
def test_version_that_is_none_is_answered_with_one_that_is(version: str) -> None:
    accept = f"application/openmetrics-text;version={version}"
    with served(Monitor()) as server:
        answer = ask(server.address, "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    assert answer.headers.get_param("version") == "1.0.0"


def test_before_the_first_report_the_process_is_healthy_and_nothing_is_ready() -> None:
    with served(Monitor()) as server:
        assert ask(server.address, "/healthz").status == 200
        assert ask(server.address, "/readyz").status == 503
        assert ask(server.address, "/metrics").status == 200


def test_fields_of_readiness_are_named_as_in_rest() -> None:
    clock = Clock()
    monitor = Monitor(clock=clock, ready_within_s=60)
    stuck = flow(partition(state="COPYING", upstream=5, lag=1))
    monitor.update([stuck])
    clock.now += 61.5
    monitor.update([stuck])
    answer = monitor.answer("/readyz")
    assert answer is not None
    body = json.loads(answer.body)
    (fields,) = body["flows"]
    assert (answer.status, body["ready"]) == (503, False)
    assert fields == {
        "flow": stuck.flow,
        "isReady": False,
        "silentMs": 61_500,
        "state": stuck.state,
        "reason": "",
    }


def test_a_supervisor_that_hangs_is_neither_healthy_nor_ready() -> None:
    clock = Clock()
    monitor = Monitor(clock=clock)
    monitor.update([flow(partition())])
    with served(monitor) as server:
        assert (ask(server.address, "/healthz").status, ask(server.address, "/readyz").status) == (
            200,
            200,
        )
        clock.now += 16
        answer = ask(server.address, "/healthz")
        assert (answer.status, answer.json["healthy"]) == (503, False)
        assert ask(server.address, "/readyz").status == 503


def test_a_supervisor_that_turns_without_new_numbers_is_healthy() -> None:
    clock = Clock()
    monitor = Monitor(clock=clock)
    monitor.update([flow(partition())])
    for _ in range(2):
        clock.now += 14
        monitor.on_turn()
    assert (monitor.silent_s, monitor.age_s) == (None, 28)
    clock.now += 16
    assert monitor.silent_s == 16


@pytest.mark.parametrize("path", ["/", "/metrics/", "/api", "/status", "/../metrics"])
def test_there_is_nothing_else(path: str) -> None:
    with served(Monitor()) as server:
        assert ask(server.address, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(method: str) -> None:
    with served(Monitor()) as server:
        assert ask(server.address, "/metrics", method).status in (405, 501)


def test_head_has_no_body() -> None:
    with served(Monitor()) as server:
        answer = ask(server.address, "/metrics", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0


def test_readers_that_say_nothing_do_not_keep_others_out() -> None:
    with served(Monitor()) as server:
        silent = [socket.create_connection(server.address) for _ in range(10)]
        try:
            assert ask(server.address, "/healthz").status == 200
        finally:
            for one in silent:
                one.close()


def test_the_server_is_loaded_by_the_first_client_or_after_the_mirrors_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_loaded(server: WebServer) -> bool:
        return server._server is not None

    monkeypatch.setattr(web_server, "LOADS_AFTER_S", 60)
    with served(Monitor()) as server:
        assert not is_loaded(server)
        assert ask(server.address, "/healthz").status == 200
        assert is_loaded(server)
    with served(Monitor()) as server:
        pass  # the server had no client, so nothing was loaded
    assert not is_loaded(server)
    monkeypatch.setattr(web_server, "LOADS_AFTER_S", 0.01)
    with served(Monitor()) as server:
        eventually(lambda: is_loaded(server), what="loaded without a client")


def test_a_taken_port_is_reported_with_a_remedy() -> None:
    with (
        served(Monitor()) as server,
        pytest.raises(CannotListen, match=r"127.0.0.1:\d+: .*in use.*--listen"),
    ):
        WebServer(Monitor(), server.address)


def test_an_address_is_served_as_soon_as_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(monitoring, "BINDS_AGAIN_S", 0.01)
    lines: list[str] = []
    with served(Monitor()) as first:
        address = first.address
        standby = monitoring.watched(
            tmp_path / "mm2.properties", address, Event(), lambda one: lines.append(one.line)
        )
        watch = standby.__enter__()
    try:
        eventually(lambda: lines)
        watch.update([flow(generation=7)])
        found = series(ask(address, "/metrics").body)
        assert found["twinlog_flow_generation", labels()] == 7
    finally:
        standby.__exit__(None, None, None)
    assert lines == [f"http://{address} serves /metrics, /healthz, /readyz"]
    assert capsys.readouterr().err.count("[CANNOT_LISTEN]") == 1
    with pytest.raises(ConnectionRefusedError):
        ask(address, "/healthz")


def test_an_address_that_comes_free_after_the_end_is_left_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made: list[WebServer] = []
    is_taken, tries, ends = Event(), Event(), Event()

    def late(monitor: Monitor, address: Address, *_: object) -> WebServer:
        if not is_taken.is_set():
            is_taken.set()
            raise CannotListen("taken")
        tries.set()
        ends.wait()
        made.append(WebServer(monitor, address))
        return made[0]

    monkeypatch.setattr(monitoring, "BINDS_AGAIN_S", 0.01)
    monkeypatch.setattr(monitoring, "web_server", late)
    with monitoring.watched(tmp_path / "mm2.properties", LOCAL, Event(), made.append):
        eventually(tries.is_set)
    ends.set()
    eventually(lambda: not [one for one in threads() if one.name == "twinlog-listen"])
    (server,) = made
    with pytest.raises(ConnectionRefusedError):
        ask(server.address, "/healthz")


def test_where_it_is_named_and_nowhere_else() -> None:
    with served(Monitor(), Address("127.0.0.2", 0)) as server:
        assert ask(server.address, "/healthz").status == 200
        with pytest.raises(ConnectionRefusedError):
            ask(Address("127.0.0.1", server.address.port), "/healthz")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9405", Address("127.0.0.1", 9405)),
        ("[::1]:80", Address("::1", 80)),
        ("host.example:0", Address("host.example", 0)),
        ("off", None),
    ],
)
def test_listen(text: str, expected: Address | None) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "9405", ":9405", "a:", "a:b", "::1:80", "a:65536", "a:-1"])
def test_listen_that_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="--listen"):
        parse_listen(text)
