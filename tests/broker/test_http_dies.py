"""The HTTP server dies while records are copied. The copy continues, and HTTP recovers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import eventually
from tests.support.mirror import Mirror
from tests.support.monitor import ask
from tests.support.topics import create_topic
from twinlog.cli.terminal.monitoring import watched
from twinlog.config.load import load
from twinlog.control.web.address import parse_listen
from twinlog.control.web.current_config import CurrentConfig
from twinlog.control.web.server import WebServer
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker


def generations(mirror: Mirror) -> list[int]:
    """Return the generation of each flow, or -1 if the process does not lead it."""
    return [-1 if one.generation is None else one.generation for one in mirror.snapshots]


def test_the_copy_continues_without_the_http_thread_which_restarts_soon(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(source_cluster, fresh_topic)
    there = f"B{fresh_topic.replace('-', '')}"
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = A, {there}\nA.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"{there}.bootstrap.servers = {target_cluster.bootstrap}\nA->{there}.enabled = true\n"
        f"topics = {fresh_topic}\nreplication.factor = 1\nemit.checkpoints.enabled = false\n"
    )
    config, servers = load(file, environment={}), list[WebServer]()
    sent: list[bytes] = []

    def arrived() -> list[bytes]:
        return [bytes(one.value or b"") for one in read_all(target_cluster, f"A.{fresh_topic}")]

    def more() -> None:
        sent.extend(b"%d" % number for number in range(len(sent), len(sent) + 100))
        produce(source_cluster, fresh_topic, [Outgoing(value=value) for value in sent[-100:]])
        eventually(lambda: len(arrived()) >= len(sent))
        assert arrived() == sent

    def die() -> None:
        raise RuntimeError("odd")

    with (
        watched(
            file,
            parse_listen("127.0.0.1:0"),
            threading.Event(),
            servers.append,
            current=CurrentConfig(config),
        ) as watch,
        Mirror(file, lanes=1, on_snapshot=watch.update) as mirror,
    ):
        more()
        first = servers[0]
        assert ask(first.address, "/healthz").status == 200
        lanes = mirror.leases.pids()
        generation = eventually(lambda: [g for g in generations(mirror) if g >= 0])[0]
        first.open_requests.close_late = die  # type: ignore[method-assign]
        eventually(lambda: not first._thread.is_alive(), what="the server dies")
        more()
        second = eventually(lambda: servers[1:])[0]
        assert second.address == first.address
        for path in ("/healthz", "/metrics", "/api/v1/flows"):
            assert ask(first.address, path).status == 200
        more()
        assert mirror.leases.pids() == lanes, "no lane was started again"
        assert generations(mirror) == [generation]
    (told,) = (one for one in caplog.records if "HTTP_DIED" in one.getMessage())
    assert "its thread died of RuntimeError: odd" in told.getMessage()
