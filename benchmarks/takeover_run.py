"""Measures how long a standby on a standalone Spark cluster takes to take over.

`python -m benchmarks.takeover_run --standby warm --times 10`: two brokers, a master and two workers
of four slots, and two mirrors of one lane, all on this machine. Each time the leader is killed with
-9, one record for each partition is produced, and the standby copies them.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.client import produce
from tests.support.command import Command
from tests.support.spark_mirror import PARTITIONS, arrived, config, orders
from tests.support.standalone import Cluster
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

WITHIN_S: Final = 300.0
RESTS_S: Final = 10.0
"""A standby that has just started still uses the machine."""
FIRST: Final = 3000


class Takeovers:
    """A cluster of Spark, two of Kafka, and the mirrors that lead one flow after another."""

    def __init__(self, folder: Path, standby: str, stack: ExitStack) -> None:
        self._folder, self._standby, self._stack = folder, standby, stack
        self._source, self._target = (LocalCluster(one, folder / one) for one in ("from", "to"))
        for broker in (self._source, self._target):
            broker.start()
            stack.callback(broker.stop)
        self._spark = Cluster(folder)
        stack.callback(self._spark.end)
        self._spark.start_master()
        for _ in range(2):
            self._spark.add_worker(cores=4)
        self._topic, self._produced, self._started = f"takeover-{uuid.uuid4()}", 0, 0
        create_topic(self._source, self._topic, partitions=PARTITIONS)
        keys = {"twinlog.spark.standby": standby}
        self._file = config(folder, self._source, self._target, self._topic, **keys)
        self._leader, _ = self._start()
        self._copies(FIRST)

    def _start(self) -> tuple[Command, str]:
        self._started += 1
        name = f"mirror-{self._started}"
        words = ("--master", self._spark.url, "--lanes", "1", "--listen", "off", "--name", name)
        cores = ("--conf", "spark.executor.cores=2")
        run = Command(self._folder / name, "mirror", str(self._file), *words, *cores)
        return self._stack.enter_context(run), name

    def _copies(self, records: int) -> None:
        produce(self._source, self._topic, orders(records, begin=self._produced))
        self._produced += records
        await_that(lambda: arrived(self._target, self._topic) == self._produced)

    def one(self) -> float:
        """Return the seconds from the kill until all new records are copied."""
        successor, name = self._start()
        await_that(lambda: "ready to take over" in successor.stderr)
        if self._standby == "warm":
            await_that(lambda: self._spark.applications().get(name))
        time.sleep(RESTS_S)
        began = time.monotonic()
        self._leader.process.kill()
        self._copies(PARTITIONS)
        self._leader = successor
        return time.monotonic() - began


def await_that(holds: Callable[[], object]) -> None:
    until = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > until:
            raise SystemExit("gave up")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--standby", choices=("cold", "warm"), default="cold")
    parser.add_argument("--times", type=int, default=10)
    given = parser.parse_args()
    found: list[float] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        conf = Path(name) / "conf"
        conf.mkdir()
        secret = f"spark.authenticate.secret {secrets.token_hex(32)}\n"
        authenticated = "spark.authenticate true\nspark.network.crypto.enabled true\n"
        (conf / "spark-defaults.conf").write_text(authenticated + secret)
        os.environ |= {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        takeovers = Takeovers(Path(name), given.standby, stack)
        for _ in range(given.times):
            load = os.getloadavg()[0]
            found.append(takeovers.one())
            print(f"{given.standby}: {found[-1]:.1f} s, load before: {load:.1f}", flush=True)
    median, worst = statistics.median(found), max(found)
    print(f"{given.standby}: median {median:.1f} s, worst {worst:.1f} s of {len(found)}")


if __name__ == "__main__":
    main()
