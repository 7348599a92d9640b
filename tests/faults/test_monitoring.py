"""Monitoring of a real mirror: the metrics agree with both logs, and show a stopped copy."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.mirror import Mirror
from tests.support.monitor import Series, ask, labels, series, served
from tests.support.rig import Rig
from twinlog.cli.terminal.monitoring import watched
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.control.web.server import WebServer

pytestmark = [pytest.mark.faults, pytest.mark.broker]

MM2 = "kafka_connect_mirror_mirrorsourceconnector_"
MINUTE_MS = 60_000
READY_WITHIN_S = 2.0
"""Time limit of readiness in seconds for these tests, instead of a minute. Silence of a broker is
noticed after 6 s, and after 10 s its cluster counts as UNREACHABLE. This limit must expire between
the two.
"""


def mirror_of(rig: Rig, monitor: Monitor) -> Mirror:
    return Mirror(rig.config(), lanes=1, on_snapshot=monitor.update)


def metrics(server: WebServer) -> Series:
    told = ask(server.address, "/metrics")
    assert told.status == 200
    return series(told.body)


def when(server: WebServer, holds: Callable[[Series], bool]) -> Series:
    """Return the metrics as soon as they satisfy the condition."""

    def look() -> Series:
        found = metrics(server)
        assert holds(found), found
        return found

    return eventually(look)


def of(rig: Rig, topic: str) -> tuple[tuple[str, str], ...]:
    return labels(source=rig.alias, target=rig.target_alias, topic=topic, partition="0")


def is_ready(server: WebServer) -> bool:
    return ask(server.address, "/readyz").status == 200


@pytest.mark.witness("metrics match both logs")
def test_numbers_of_a_copy_are_those_of_both_logs(rig: Rig) -> None:
    rig.create()
    rig.began_ms = int(time.time() * 1000) - 50_000
    rig.put(range(50))  # so record n is 50 - n seconds old
    monitor = Monitor()
    with mirror_of(rig, monitor), served(monitor) as server:
        assert not is_ready(server)
        rig.copied(50)
        here, there = of(rig, rig.topic), of(rig, rig.remote)
        found = when(server, lambda m: m.get(("twinlog_records_total", here)) == 50)
        eventually(lambda: is_ready(server))
        assert found["twinlog_lag_records", here] == found["twinlog_lag_seconds", here] == 0
        assert found[f"{MM2}record_count", there] == 50
        assert found[f"{MM2}record_rate", there] > 0
        assert found[f"{MM2}byte_count", there] == found["twinlog_bytes_total", here] > 500
        # the newest record was 1 s old when it was written, and the test takes less than 10 s
        age, latency = (
            found[f"{MM2}record_age_ms", there],
            found[f"{MM2}replication_latency_ms", there],
        )
        assert 1_000 <= age <= latency < 11_000
        assert found[f"{MM2}replication_latency_ms_max", there] == latency
        flow = labels(source=rig.alias, target=rig.target_alias)
        assert found["twinlog_flow_ready", flow] == found["twinlog_flow_lanes", flow] == 1
        assert not [name for name, _ in found if "checkpoint" in name]

        rig.put(range(50, 60))
        when(server, lambda m: m[f"{MM2}record_count", there] == 60)


def test_a_failing_partition_is_shown_by_its_code(rig: Rig) -> None:
    rig.create()
    rig.put(range(5))
    monitor = Monitor()
    with mirror_of(rig, monitor), served(monitor) as server:
        rig.copied(5)
        produce(rig.target, rig.remote, [Outgoing(b"x", b"u900")])
        rig.put(range(5, 10))
        flow = {"source": rig.alias, "target": rig.target_alias}
        counted = ("twinlog_errors_total", labels(**flow, code="EXTRA_RECORDS"))
        found = when(server, lambda m: counted in m)
        assert found[counted] >= 1
        where = labels(**flow, topic=rig.topic, partition="0", code="EXTRA_RECORDS")
        assert found["twinlog_partition_error", where] == 1


def test_a_stopped_flow_is_not_ready_until_it_continues(rig: Rig) -> None:
    rig.create()
    rig.put(range(10), age_ms=MINUTE_MS)
    monitor = Monitor(ready_within_s=READY_WITHIN_S)
    with mirror_of(rig, monitor), served(monitor) as server:
        rig.copied(10)
        eventually(lambda: is_ready(server))
        rig.target.freeze(1)
        try:
            rig.put(range(10, 20), age_ms=MINUTE_MS)
            when(server, lambda m: m.get(("twinlog_lag_records", of(rig, rig.topic))) == 10)
            eventually(lambda: not is_ready(server))
            assert ask(server.address, "/healthz").status == 200, "the process is not to blame"
            (flow,) = ask(server.address, "/readyz").json["flows"]
            assert (flow["flow"], flow["isReady"]) == (rig.flow, False)
            assert flow["silentMs"] > READY_WITHIN_S * 1000
            waited = metrics(server)
            lag_s = waited["twinlog_lag_seconds", of(rig, rig.topic)]
            assert 0 < lag_s < time.time() - rig.began_ms / 1000, "since they wait, not their age"
        finally:
            rig.target.thaw(1)
        eventually(lambda: is_ready(server))
        rig.copied(20)


def test_a_taken_port_is_one_line_and_the_copy_continues(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    rig.create()
    rig.put(range(10))
    never: list[WebServer] = []
    with (
        served(Monitor()) as other,
        watched(rig.config(), other.address, threading.Event(), never.append) as watch,
        Mirror(rig.config(), lanes=1, once=True, on_snapshot=watch.update) as mirror,
    ):
        mirror.wait()
    told = capsys.readouterr()
    # stderr may also have a line about a slow broker
    (line,) = (one for one in told.err.splitlines() if "CANNOT_LISTEN" in one)
    assert re.fullmatch(rf"warning: {other.address}: .*--listen.*\[CANNOT_LISTEN\]", line)
    assert never == []
    assert rig.numbers() == list(range(10))


def test_an_end_that_is_not_seen_any_more_is_not_ready(rig: Rig) -> None:
    rig.create()
    rig.put(range(10))
    monitor = Monitor(ready_within_s=READY_WITHIN_S)
    unready: list[FlowSnapshot] = []

    def update(flows: list[FlowSnapshot]) -> None:
        monitor.update(flows)
        now = monitor.reading
        assert now is not None
        late = {one.flow for one in now.readiness if not one.is_ready}
        unready.extend(flow for flow in flows if flow.flow in late)

    with (
        Mirror(rig.config(), lanes=1, on_snapshot=update) as mirror,
        served(monitor) as server,
    ):
        rig.copied(10)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        eventually(lambda: is_ready(server))
        unready.clear()
        rig.source.freeze(1)
        try:
            # silence is noticed after 5 s, long before the broker counts as dead
            eventually(lambda: not is_ready(server))
            (part,) = eventually(lambda: unready)[0].partitions
            assert (part.lag, part.state, part.code) == (0, "COPYING", "")
        finally:
            rig.source.thaw(1)
        mirror.eventually(lambda parts: parts[0].state == "AT_END")
        eventually(lambda: is_ready(server))
