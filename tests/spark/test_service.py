"""`deploy/twinlog.service` under a supervisor that acts like systemd: the command, its
notifications and its exit codes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.client import Outgoing, produce
from tests.support.command import ENTRY, all_gone, write_config
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.monitor import ask, series
from tests.support.topics import create_topic
from twinlog.addresses import Address
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("commands")]

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "twinlog.service"


class Manager:
    """Acts like systemd for a unit with Type=notify: it reads notifications from a socket, and
    starts the process in a clean environment.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard: list[str] = []
        self._path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self._socket.setblocking(False)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, config: Path, *more: str, variables: Mapping[str, str]) -> None:
        """Run the unit's ExecStart with this machine's paths."""
        (line,) = re.findall(r"^ExecStart=(.*)", UNIT.read_text(), re.MULTILINE)
        _, verb, _ = shlex.split(line)
        environment = {
            "PATH": os.environ["PATH"],
            "NOTIFY_SOCKET": str(self._path),
            "WATCHDOG_USEC": "60000000",
            "XDG_RUNTIME_DIR": str(self.folder),
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
            **variables,
        }
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [*ENTRY, verb, str(config), *more],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    @property
    def output(self) -> str:
        return (self.folder / "out").read_text()

    def hears(self, line: str) -> int:
        """Return the number of times that the process has sent this notification so far."""
        while True:
            try:
                self.heard += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.heard.count(line)

    def exit_code(self, within: float = PATIENCE_S) -> int:
        try:
            return self.running.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended:\n{self.output}") from None

    def close(self) -> None:
        self._socket.close()
        if self.process is not None and self.process.poll() is None:
            below = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            for child in below:
                if child.is_running():
                    child.kill()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    try:
        yield made
    finally:
        made.close()


def a_config(folder: Path, source: str, target: str, topic: str) -> Path:
    there = f"S{topic[-8:]}"
    return write_config(
        folder / "mm2.properties",
        {
            "clusters": f"A, {there}",
            "A.bootstrap.servers": source,
            f"{there}.bootstrap.servers": target,
            f"A->{there}.enabled": "true",
            f"A->{there}.topics": topic,
            "replication.factor": 1,
            "emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false",
        },
    )


OF_SPARK_AND_LANES = {
    "jvm_memory_used_bytes": 1 << 20,
    "jvm_gc_collection_seconds_sum": 0,
    "jvm_threads_current": 5,
    "kafka_consumer_incoming_byte_total": 100,
    "kafka_producer_outgoing_byte_total": 100,
    "kafka_producer_buffer_available_bytes": 1 << 20,
}
"""Metrics that must exceed these values after records were copied."""


def test_the_service_is_ready_watched_scraped_and_stopped(
    manager: Manager,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
) -> None:
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster, fresh_topic, [Outgoing(b"k", b"%d" % n) for n in range(100)])
    config = a_config(tmp_path, source_cluster.bootstrap, target_cluster.bootstrap, fresh_topic)
    log = tmp_path / "mirror.log"
    manager.start(
        config,
        *("--listen", "127.0.0.1:0", "--log-file", str(log), "--log-format", "json"),
        variables={},
    )
    eventually(lambda: manager.hears("READY=1") == 1, what="READY")
    first = eventually(lambda: manager.output.splitlines()[:1])[0]
    served = r"http://127\.0\.0\.1:(\d+) serves /metrics, /healthz, /readyz, /api/v1, /page/"
    told = re.fullmatch(served, first)
    assert told is not None, first
    address = Address("127.0.0.1", int(told[1]))

    def total(of: str) -> float:
        manager.hears("")  # reads the socket, which loses notifications when it has ten unread ones
        found = series(ask(address, "/metrics").body)
        return sum(value for (name, _), value in found.items() if name == of)

    eventually(lambda: total("twinlog_records_total") == 100, what="100 records in /metrics")
    for name, least in OF_SPARK_AND_LANES.items():
        eventually(lambda name=name, least=least: total(name) > least, what=name)  # type: ignore[misc]
    assert ask(address, "/readyz").status == ask(address, "/healthz").status == 200
    (flow,) = ask(address, "/api/v1/flows").json["flows"]
    assert (flow["records"], flow["reportedBy"]) == (100, "here")
    running = f"STATUS=A->S{fresh_topic[-8:]} RUNNING"
    eventually(lambda: manager.hears(running), what=running)
    fed = manager.hears("WATCHDOG=1")
    eventually(lambda: manager.hears("WATCHDOG=1") >= fed + 2, what="the watchdog")

    manager.running.send_signal(signal.SIGHUP)
    eventually(lambda: manager.hears("READY=1") == 2, what="the end of the reload")
    reload = manager.heard.index("RELOADING=1")
    assert manager.heard[reload + 1].startswith("MONOTONIC_USEC=")
    assert "READY=1" in manager.heard[reload:]
    assert "the configuration was reloaded: no flow changes" in manager.output

    below = psutil.Process(manager.running.pid).children(recursive=True)
    manager.running.send_signal(signal.SIGTERM)
    assert manager.exit_code() == 0, manager.output
    assert manager.hears("STOPPING=1") == 1
    assert manager.hears("READY=1") == 2
    assert all_gone(below), "Spark's JVM and its workers have ended with it"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= events[0].keys()
    told_states = [e["message"].rpartition(" ")[2] for e in events if "monitoring" in e["logger"]]
    assert [state for state in told_states if state.isupper()][:2] == ["STARTING", "RUNNING"]
    assert events[-1]["message"].startswith("Twinlog ends")


@pytest.mark.witness("a service with an invalid configuration ends with exit code 2")
def test_a_wrong_configuration_is_never_ready_and_ends_with_2(
    manager: Manager, tmp_path: Path
) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text("clusters = A, B\nA->B.enabled = perhaps\n")
    manager.start(config, "--listen", "off", variables={})
    assert manager.exit_code() == 2, "RestartPreventExitStatus=2"
    assert manager.hears("READY=1") == 0
    assert "[CONFIG_INVALID]" in manager.output


def test_errors_that_a_restart_may_fix_end_with_exit_code_1(
    manager: Manager, source_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    config = a_config(tmp_path, source_cluster.bootstrap, "127.0.0.1:1", fresh_topic)
    log = tmp_path / "mirror.log"
    manager.start(
        config,
        *("--listen", "off", "--log-file", str(log)),
        variables={"JAVA_HOME": str(tmp_path / "no-java")},
    )
    assert manager.exit_code() == 1, "Restart=on-failure"
    assert "[ENVIRONMENT]" in manager.output
    assert re.search(r"mirror_fails\n(.*\n)+.*\[ENVIRONMENT\]", log.read_text())
    assert manager.hears("STOPPING=1") == 1
