"""One flow over several hosts, as `docs/spark.md` has it: a standalone master, two workers, and the
mirror, each on a host of its own. An executor is killed, then a worker's host dies, then the
master's.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.support.client import produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.hosts import Host, hosts
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    arrived,
    assert_identical,
    caught_up,
    config,
    orders,
)
from tests.support.standalone import (  # noqa: F401 (a fixture)
    address_of,
    conf,
    end,
    executors,
    spread,
)
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.xdist_group("spark"),
]

LANES = 2
CORES = 2 * LANES
"""Of each worker: all lanes and their successors, when the other host is gone."""


def lanes_on(host: Host) -> int:
    """Python workers of Spark there: what the daemons of executors have forked."""
    found = 0
    for process in psutil.process_iter():
        try:
            parent = process.parent()
            is_forked = is_daemon(process) and parent is not None and is_daemon(parent)
        except psutil.Error:
            continue
        found += is_forked and is_on(host, process)
    return found


def is_on(host: Host, process: psutil.Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/ns/net").readlink() == host.network
    except OSError:  # it has ended
        return False


def is_daemon(process: psutil.Process) -> bool:
    return "twinlog.spark.daemon" in process.cmdline()


def test_a_flow_over_two_hosts_outlives_an_executor_a_worker_and_the_master(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    conf: Path,  # noqa: F811 (the fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert conf.is_dir()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(3000))
    file = config(tmp_path, source_cluster, target_cluster, fresh_topic)
    clusters = (source_cluster.bootstrap, target_cluster.bootstrap)

    def more_arrive() -> bool:
        seen = arrived(target_cluster, fresh_topic)
        return bool(eventually(lambda: arrived(target_cluster, fresh_topic) > seen + 2000))

    with (
        hosts("master", "worker-1", "worker-2", "mirror", joined=True) as (master, *workers, own),
        ExitStack() as stack,
        spread(tmp_path / "spark", master, workers, CORES) as spark,
    ):
        for host in (*workers, own):
            stack.enter_context(host.reaches(*clusters))
        monkeypatch.setenv("SPARK_LOCAL_IP", address_of(own))
        words = ("mirror", str(file), "--master", spark.url, "--lanes", str(LANES), "--lease", "20")
        with Command(tmp_path / "run", *words, host=own) as mirror:
            eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
            eventually(lambda: all(lanes_on(host) for host in workers))
            assert lanes_on(own) == 0
            load = Load(source_cluster, fresh_topic, 3000)
            try:
                (executor,) = (one for one in executors() if is_on(workers[0], one))
                executor.kill()
                assert more_arrive()
                eventually(lambda: lanes_on(workers[0]), what="an executor in its place")
                end(spark.workers[0])
                eventually(lambda: lanes_on(workers[0]) == 0)
                assert more_arrive()
                end(spark.master)
                assert more_arrive()
            finally:
                load.stop()
            eventually(lambda: caught_up(source_cluster, target_cluster, fresh_topic))
            mirror.terminate()
            assert mirror.wait() == 0, mirror.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) > 7000
