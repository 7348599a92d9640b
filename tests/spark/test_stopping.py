"""A mirror cannot shut down cleanly, because its lanes or Spark's JVM are frozen. It must end
nevertheless, and immediately after a second signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.client import produce
from tests.support.command import Command, all_gone
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.spark_mirror import arrived, config, orders
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


@contextmanager
def frozen_lanes(mirror: Command) -> Iterator[list[psutil.Process]]:
    """Freeze the mirror's lanes within the block. Yield all descendants of the mirror."""
    below, lanes = mirror.children(), mirror.lane_pids()
    assert lanes
    for pid in lanes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield below
    finally:
        for pid in lanes:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("signals", [1, 2])
def test_stopping_with_frozen_lanes(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    signals: int,
) -> None:
    create_topic(source_cluster, fresh_topic, partitions=4)
    produce(source_cluster, fresh_topic, orders(100))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    with Command(tmp_path / "run", "mirror", str(file), "--listen", "off") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 100)
        with frozen_lanes(mirror) as below:
            os.kill(mirror.pid, signal.SIGINT)
            eventually(lambda: "a second signal stops immediately" in mirror.stderr)
            assert mirror.process.poll() is None, "it waits for its lanes"
            if signals == 2:
                os.kill(mirror.pid, signal.SIGINT)
                assert mirror.wait(PATIENCE_S) == -signal.SIGINT
            else:
                assert mirror.wait(PATIENCE_S) == 0, mirror.stderr
                assert "did not drain in time" in mirror.stderr
        assert all_gone(below), "nothing is left when the lanes wake"


def test_stopping_with_a_frozen_jvm(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    create_topic(source_cluster, fresh_topic, partitions=4)
    produce(source_cluster, fresh_topic, orders(100))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    with Command(tmp_path / "run", "mirror", str(file), "--listen", "off") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 100)
        below = mirror.children()
        (jvm,) = (one for one in below if one.name() == "java")
        jvm.suspend()
        os.kill(mirror.pid, signal.SIGTERM)
        assert mirror.wait(PATIENCE_S) == 0, mirror.stderr
        assert all_gone(below)
