"""One flow on several hosts, as in `docs/spark.md`: a standalone master, two workers and the
mirror, each on its own host. First an executor is killed, then a worker's host, then the master's
host. One of the topics is transformed on the mirror's host.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.support import spark_mirror
from tests.support.client import produce, read_all
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.hosts import Host, hosts
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    Orders,
    arrived,
    assert_identical,
    caught_up,
    config,
)
from tests.support.standalone import address_of, end, executors, spread
from tests.support.topics import create_topic

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.xdist_group("spark"),
]

LANES = 2
CORES = 2 * LANES
"""Number of cores of each worker. They suffice for all lanes and their successors if the other
worker's host is gone.
"""


MASK = (
    "SELECT key, concat('masked ', offset) AS value, topic, partition, offset, timestamp, "
    "timestampType, headers FROM records WHERE value IS NOT NULL"
)


class Masked:
    """A second topic of the flow. Its records are masked by a transform."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        self._orders, self.topic = orders, f"{orders.topic}-masked"
        self._produced = 0
        create_topic(orders.source, self.topic, partitions=PARTITIONS)
        flow = orders.flow
        lines = {
            f"{flow}.topics": f"{orders.topic}, {self.topic}",
            f"{flow}.twinlog.transforms": "mask",
            f"{flow}.twinlog.transforms.mask.topics": self.topic,
            f"{flow}.twinlog.transforms.mask.sql": MASK,
        }
        config(folder, orders.source, orders.target, orders.topic, **lines)

    def grows(self) -> None:
        """Produce records, and wait until all of them have arrived masked."""
        produce(
            self._orders.source,
            self.topic,
            spark_mirror.orders(400, begin=self._produced),
            codec="lz4",
        )
        self._produced += 400
        expected = [
            (one.partition, one.key, b"masked %d" % one.offset)
            for one in read_all(self._orders.source, self.topic)
            if one.value is not None
        ]
        target, name = self._orders.target, f"A.{self.topic}"
        eventually(lambda: arrived(target, self.topic) >= len(expected), what="masked records")
        assert [(one.partition, one.key, one.value) for one in read_all(target, name)] == expected


def lanes_on(host: Host) -> int:
    """Return the number of Spark's Python workers on this host, without the daemons that fork
    them.
    """
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
    except OSError:  # the process has ended
        return False


def is_daemon(process: psutil.Process) -> bool:
    return "twinlog.spark.daemon" in process.cmdline()


@pytest.mark.usefixtures("conf", "quick_jvms")
def test_a_flow_over_two_hosts_outlives_an_executor_a_worker_and_the_master(
    orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = (orders.source.bootstrap, orders.target.bootstrap)
    masked = Masked(orders, tmp_path)

    def more_arrive() -> bool:
        seen = arrived(orders.target, orders.topic)
        return bool(eventually(lambda: arrived(orders.target, orders.topic) > seen + 2000))

    with (
        hosts("master", "worker-1", "worker-2", "mirror", joined=True) as (master, *workers, own),
        ExitStack() as stack,
        spread(tmp_path / "spark", master, workers, CORES) as spark,
    ):
        for host in (*workers, own):
            stack.enter_context(host.reaches(*clusters))
        monkeypatch.setenv("SPARK_LOCAL_IP", address_of(own))
        words = ("mirror", str(orders.file), "--master", spark.url, "--lanes", str(LANES))
        with Command(tmp_path / "run", *words, "--lease", "20", host=own) as mirror:
            orders.arrive()
            eventually(lambda: all(lanes_on(host) for host in workers))
            assert lanes_on(own) == 0
            masked.grows()
            load = Load(orders.source, orders.topic, orders.produced)
            try:
                (executor,) = (one for one in executors() if is_on(workers[0], one))
                executor.kill()
                assert more_arrive()
                eventually(lambda: lanes_on(workers[0]), what="an executor in its place")
                masked.grows()
                end(spark.workers[0])
                eventually(lambda: lanes_on(workers[0]) == 0)
                assert more_arrive()
                end(spark.master)
                assert more_arrive()
                masked.grows()
            finally:
                load.stop()
            eventually(lambda: caught_up(orders.source, orders.target, orders.topic))
            mirror.terminate()
            assert mirror.wait() == 0, mirror.stderr
    assert assert_identical(orders.source, orders.target, orders.topic) > 7000
