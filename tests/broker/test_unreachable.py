"""A cluster is unreachable. A mirror retries forever, and `--once` for a minute."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

from tests.support.client import Outgoing, eventually, produce, read_all
from tests.support.forwarder import Forwarder
from tests.support.mirror import Mirror
from tests.support.stopwatch import Stopwatch
from tests.support.terminal import Terminal
from tests.support.topics import create_topic
from twinlog.cli.commands.mirror import MirrorReport
from twinlog.control.check import mirror_check
from twinlog.control.flow import managed_flow, trouble
from twinlog.control.flow.flow_setup import FlowSetup, PreparedFlow
from twinlog.control.process.run import MirrorResult
from twinlog.control.running import flow_run
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.layout import free_ports

pytestmark = [pytest.mark.broker]

MINUTE_S = 60.0
MAX_PAUSE_S = 3.0


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits, some of which are minutes by default."""
    monkeypatch.setattr("twinlog.control.flow.flow_setup.REACHED_WITHIN_S", 0.2)
    monkeypatch.setattr("twinlog.control.flow.managed_flow.MAX_AWAY_PAUSE_S", 0.8)


@pytest.fixture
def config(
    tmp_path: Path, source_cluster: LocalCluster, fresh_topic: str
) -> tuple[Path, str, Forwarder]:
    """The configuration of a flow whose target's port is still closed, the remote topic, and the
    port's forwarder.
    """
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(value=b"%d" % n) for n in range(50)])
    alias = f"A{uuid.uuid4().hex[:8]}"
    (port,) = free_ports(1)
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"clusters = {alias}, B\n{alias}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = 127.0.0.1:{port}\n"
        f"{alias}->B.enabled = true\ntopics = {fresh_topic}\nreplication.factor = 1\n"
    )
    return path, f"{alias}.{fresh_topic}", Forwarder(port)


def test_log_in_json_is_not_wrapped_on_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    first, second = free_ports(2)
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{first}\n"
        f"B.bootstrap.servers = 127.0.0.1:{second}\nA->B.enabled = true\n"
    )
    with Terminal(2000, "mirror", str(path), "--listen", "off", "--log-format", "json") as mirror:
        mirror.resize(40)  # the program believes that the terminal is narrower than it is
        mirror.until(lambda text: "UNREACHABLE" in text)
        mirror.interrupt()
        assert mirror.wait() == 1
        lines = mirror.text.splitlines()
    told = [json.loads(line) for line in lines if "UNREACHABLE" in line and line[0] == "{"]
    assert told[0]["code"] == "UNREACHABLE"
    assert max(map(len, lines[-2:])) <= 40, "what is for people is"


def test_ctrl_c_on_a_terminal_leaves_no_line_of_the_screen_behind(tmp_path: Path) -> None:
    """Ctrl-C is pressed while the screen is shown. The terminal echoes `^C` after the last line,
    which is as wide as the terminal, but no line of the screen remains.
    """
    path = tmp_path / "mm2.properties"
    first, second = free_ports(2)
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{first}\n"
        f"B.bootstrap.servers = 127.0.0.1:{second}\nA->B.enabled = true\n"
    )
    with Terminal(70, "mirror", str(path), "--listen", "off") as mirror:
        mirror.until(lambda text: "A->B  DEGRADED" in text and "UNREACHABLE" in text)
        mirror.press("^C")  # the terminal's echo of Ctrl-C
        mirror.interrupt()
        assert mirror.wait() == 1
        assert mirror.text.count("A->B  DEGRADED") == 1, mirror.text


def test_a_late_log_line_is_printed_above_the_screen(tmp_path: Path) -> None:
    """The HTTP address is in use at the start, and becomes free while the screen is shown, as at a
    takeover. The log line that reports the served address must be printed above the screen. No line
    of the earlier screen remains.
    """
    path = tmp_path / "mm2.properties"
    first, second = free_ports(2)
    path.write_text(
        f"clusters = A, B\nA.bootstrap.servers = 127.0.0.1:{first}\n"
        f"B.bootstrap.servers = 127.0.0.1:{second}\nA->B.enabled = true\n"
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Terminal(80, "mirror", str(path), "--listen", _address(taken)) as mirror,
    ):
        address = _address(taken)
        mirror.until(lambda text: "A->B  DEGRADED" in text)
        taken.close()
        eventually(lambda: _is_served(address))
        mirror.interrupt()
        assert mirror.wait() == 1
        assert mirror.text.count("A->B  ") == 1, "no line of the screen is left behind"
        assert f"http://{address} serves" in mirror.text


def _address(taken: socket.socket) -> str:
    return f"127.0.0.1:{taken.getsockname()[1]}"


def _is_served(address: str) -> bool:
    try:
        urllib.request.urlopen(f"http://{address}/metrics", timeout=5).close()
    except OSError:
        return False
    return True


def test_the_promised_times() -> None:
    gives_up = (managed_flow.ONCE_GIVES_UP_S, flow_run.ONCE_GIVES_UP_S, mirror_check.GIVES_UP_S)
    assert set(gives_up) == {MINUTE_S}
    assert trouble.ONE_LINE_EVERY_S == MINUTE_S


@pytest.mark.witness("a mirror waits for an unreachable cluster")
def test_a_mirror_waits_without_an_end_and_reports_it_once_a_minute(
    config: tuple[Path, str, Forwarder],
    target_cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file, remote, door = config
    monkeypatch.setattr("twinlog.control.flow.managed_flow.ONCE_GIVES_UP_S", 1.0)
    monkeypatch.setattr("twinlog.control.flow.trouble.ONE_LINE_EVERY_S", 2.0)
    monkeypatch.setattr("twinlog.control.flow.managed_flow.MAX_AWAY_PAUSE_S", MAX_PAUSE_S)
    tries: list[float] = []
    prepare = FlowSetup.prepare

    def counted(setup: FlowSetup, *, once: bool) -> PreparedFlow:
        tries.append(time.monotonic())
        return prepare(setup, once=once)

    monkeypatch.setattr(FlowSetup, "prepare", counted)
    with caplog.at_level(logging.WARNING), Mirror(file) as mirror:
        began = time.monotonic()

        def told() -> list[str]:
            return [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]

        eventually(lambda: len(told()) >= 2 and len(tries) > 5)
        (flow,) = mirror.snapshots
        assert flow.state == "DEGRADED"
        assert "B (127.0.0.1:" in flow.reason
        assert flow.reason.endswith("[UNREACHABLE]")
        assert len(told()) <= 2 + (time.monotonic() - began) / 2.0, "one line in two seconds"
        pauses = [after - before for before, after in itertools.pairwise(tries)]
        assert min(pauses[-2:]) >= MAX_PAUSE_S > min(pauses[:2]), "less often, and it never stops"
        with door.open_to(target_cluster.bootstrap):
            eventually(lambda: "RUNNING" in {flow.state for flow in mirror.snapshots})
            mirror.eventually(lambda parts: [p.records for p in parts] == [50])
        mirror.stop()
    assert len(read_all(target_cluster, remote)) == 50


def test_once_gives_up_with_exit_code_1(
    config: tuple[Path, str, Forwarder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.flow.managed_flow.ONCE_GIVES_UP_S", 1.5)
    began = time.monotonic()
    with Mirror(config[0], once=True) as mirror, Stopwatch() as since:
        flows = mirror.wait()
    assert time.monotonic() - began > 1.5
    assert since.seconds < MINUTE_S / 2
    assert [(flow.state, flow.code) for flow in flows] == [("FAILED", "UNREACHABLE")]
    errors = tuple(mirror.supervisor.errors)
    report = MirrorReport(MirrorResult(flows=tuple(flows), seconds=0.0, errors=errors), once=True)
    assert report.exit_code == 1
    (line,) = report.flow_failures()
    assert "B (127.0.0.1:" in line
    assert line.endswith("[UNREACHABLE]")


def test_once_gives_up_a_cluster_that_went_away_under_it(
    config: tuple[Path, str, Forwarder],
    target_cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--once` ends with UNREACHABLE if the flow was set up, but its lane then reaches no broker of
    the target.
    """
    file, _, door = config
    monkeypatch.setattr("twinlog.control.running.flow_run.ONCE_GIVES_UP_S", 1.5)
    with door.open_to(target_cluster.bootstrap):
        mirror = Mirror(file, once=True)
        mirror.leases.prelude = (
            "import twinlog.cluster.client as c\n"
            "from twinlog.errors import Unreachable\n"
            "def away(self, *args, **more): raise Unreachable('cluster B: no broker answers')\n"
            "c.ClusterClient.metadata = away\n"
        )
        with mirror:
            (flow,) = mirror.wait()
    assert [part.code for part in flow.partitions] == ["UNREACHABLE"]
