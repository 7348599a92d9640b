"""What a person at a terminal sees of a real mirror, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client import produce
from tests.support.groups import numbered
from tests.support.terminal import Terminal
from tests.support.topics import create_topic, delete_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

RECORDS = 500


def test_a_mirror_and_its_status_on_terminals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = A, B\nA->B.enabled = true\nA->B.topics = {fresh_topic}\n"
        f"A.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
        "replication.factor = 1\nrefresh.topics.interval.seconds = 1\n"
        "emit.heartbeats.enabled = false\n"
    )
    create_topic(source_cluster, fresh_topic)
    produce(source_cluster.bootstrap, fresh_topic, numbered(0, RECORDS))
    with Terminal(80, "mirror", str(file), "--listen", "off") as mirror:
        mirror.until(lambda text: "A->B  STARTING" in text and "starting Spark" in text)
        mirror.until(lambda text: "A->B  RUNNING" in text and "at the end" in text)
        assert mirror.screen.is_cursor_shown, "and so it is after kill -9"
        with Terminal(120, "status", str(file), "--watch") as status:
            status.until(lambda text: "total: 1 flow, 1 topic, 1 partition  lag 0" in text)
            delete_topic(source_cluster, fresh_topic)
            text = status.until(lambda text: "SOURCE_DELETED" in text)
            assert f"A.{fresh_topic} is kept" in text
            status.interrupt()
            assert status.wait() == 0
            assert (status.screen.is_cursor_shown, "total" in status.text) == (True, False)
        text = mirror.until(lambda text: "copy kept" in text)
        assert f"({fresh_topic}) deleted at A" in " ".join(text.split())
        mirror.interrupt()
        assert mirror.wait() == 0
        assert mirror.screen.is_cursor_shown
        assert f"A->B: {RECORDS} records" in mirror.text, "the summary stands below"
