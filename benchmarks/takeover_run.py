"""Measures how long a standby on a standalone Spark cluster takes to take over.

`python -m benchmarks.takeover_run --standby warm --times 10`: two brokers, a master and two workers
of four slots, and two mirrors, all on this machine. Each time the leader is killed with
-9, one record for each partition is produced, and the standby copies them. `--conf KEY=VALUE` is
for both mirrors; `--log FILE` keeps what each successor has logged.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.client import produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.spark_mirror import PARTITIONS, arrived, config, orders
from tests.support.standalone import Cluster
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

WITHIN_S: Final = 120.0
RESTS_S: Final = 6.0
"""A standby that has just started still uses the machine."""
FIRST: Final = 3000


class Takeover(NamedTuple):
    """Seconds from the kill, and the cores of the standby before it."""

    first: float
    """Until the first new record."""
    every: float
    """Until one new record of each partition."""
    held: int


class Takeovers:
    """A cluster of Spark, two of Kafka, and the mirrors that lead one flow after another."""

    def __init__(
        self, folder: Path, standby: str, lanes: int, settings: Sequence[str], stack: ExitStack
    ) -> None:
        self._folder, self._is_warm, self._stack = folder, standby == "warm", stack
        self._source, self._target = (LocalCluster(one, folder / one) for one in ("from", "to"))
        for broker in (self._source, self._target):
            broker.start()
            stack.callback(broker.stop)
        self._spark = Cluster(folder)
        stack.callback(self._spark.end)
        self._spark.start_master()
        for _ in range(2):
            self._spark.add_worker(cores=4)
        conf = [word for one in settings for word in ("--conf", one)]
        self._words = ("--lanes", str(lanes), "--listen", "off", *conf)
        self._topic, self._produced, self._started = f"takeover-{uuid.uuid4()}", 0, 0
        create_topic(self._source, self._topic, partitions=PARTITIONS)
        keys = {"twinlog.spark.standby": standby}
        self._file = config(folder, self._source, self._target, self._topic, **keys)
        self._leader, _ = self._start()
        began = self._produce(FIRST)
        self._await(FIRST)
        print(f"first lanes: {time.monotonic() - began:.1f} s", flush=True)

    def _start(self) -> tuple[Command, str]:
        self._started += 1
        name = f"mirror-{self._started}"
        words = ("--master", self._spark.url, "--name", name, *self._words)
        run = Command(self._folder / name, "mirror", str(self._file), *words)
        return self._stack.enter_context(run), name

    def _produce(self, records: int) -> float:
        began = time.monotonic()
        produce(self._source, self._topic, orders(records, begin=self._produced))
        self._produced += records
        return began

    def _await(self, records: int) -> None:
        eventually(lambda: arrived(self._target, self._topic) >= records, within=WITHIN_S)

    def one(self, log: Path | None) -> Takeover:
        """Kill the leader, and await the records that its standby copies."""
        successor, name = self._start()
        eventually(lambda: "ready to take over" in successor.stderr, within=WITHIN_S)
        if self._is_warm:
            eventually(lambda: self._spark.applications().get(name), within=WITHIN_S)
        time.sleep(RESTS_S)
        held = self._spark.applications().get(name, 0)
        killed_at, before = time.time(), self._produced
        self._leader.process.kill()
        began = self._produce(PARTITIONS)
        self._await(before + 1)
        first = time.monotonic() - began
        self._await(self._produced)
        every = time.monotonic() - began
        self._leader = successor
        if log is not None:
            with log.open("a") as file:
                file.write(f"killed at {time.ctime(killed_at)}\n{successor.stderr}\n")
        return Takeover(first, every, held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--standby", choices=("cold", "warm"), default="cold")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin none after these")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    settings = given.conf or ["spark.executor.cores=2"]
    found: list[Takeover] = []
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        conf = Path(name) / "conf"
        conf.mkdir()
        secret = f"spark.authenticate.secret {secrets.token_hex(32)}\n"
        authenticated = "spark.authenticate true\nspark.network.crypto.enabled true\n"
        (conf / "spark-defaults.conf").write_text(authenticated + secret)
        os.environ |= {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        takeovers = Takeovers(Path(name), given.standby, given.lanes, settings, stack)
        while len(found) < given.times and time.monotonic() - began < given.seconds:
            load = os.getloadavg()[0]
            found.append(one := takeovers.one(given.log))
            print(
                f"{given.standby}, {one.held} cores held: first record {one.first:.1f} s, one of "
                f"each partition {one.every:.1f} s, load before: {load:.1f}",
                flush=True,
            )
    seconds = [one.first for one in found]
    median, worst = statistics.median(seconds), max(seconds)
    print(f"{given.standby}: median {median:.1f} s, worst {worst:.1f} s of {len(found)}")


if __name__ == "__main__":
    main()
