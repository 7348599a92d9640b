"""Measures how long a flow on a standalone Spark cluster takes to continue after a failure.

`python -m benchmarks.cluster_run --standby warm --times 10`: two brokers, a master and two workers
of four slots, and two mirrors, all on this machine. Each time the leader is killed with
-9, one record for each partition is produced, and the standby copies them. With `--fails` something
else is killed, and there is no standby. `--conf KEY=VALUE` is for all mirrors; `--log FILE` keeps
what each successor has logged.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.support.client import produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.spark_mirror import PARTITIONS, arrived, config, orders
from tests.support.standalone import Cluster, end, executors
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

WITHIN_S: Final = 120.0
RESTS_S: Final = 6.0
"""A standby or an executor that has just started still uses the machine."""
AWAY_S: Final = 35.0
"""How long there is no worker. The flow is `WAITING_FOR_SPARK` after 30 s."""
FIRST: Final = 3000


class Measured(NamedTuple):
    """Seconds from the failure, or from the return of what was missing."""

    first: float
    """Until the first new record."""
    every: float
    """Until one new record of each partition."""


class Flow:
    """A cluster of Spark, two of Kafka, and the mirrors that lead one flow after another."""

    def __init__(self, folder: Path, given: argparse.Namespace, stack: ExitStack) -> None:
        self._folder, self._given, self._stack = folder, given, stack
        self._source, self._target = (LocalCluster(one, folder / one) for one in ("from", "to"))
        for broker in (self._source, self._target):
            broker.start()
            stack.callback(broker.stop)
        self._spark = Cluster(folder)
        stack.callback(self._spark.end)
        conf = [word for one in given.conf for word in ("--conf", one)]
        self._words = ("--lanes", str(given.lanes), "--listen", "off", *conf)
        self._topic, self._produced, self._started = f"takeover-{uuid.uuid4()}", 0, 0
        create_topic(self._source, self._topic, partitions=PARTITIONS)
        keys = {"twinlog.spark.standby": given.standby}
        self._file = config(folder, self._source, self._target, self._topic, **keys)
        began = self._produce(FIRST)
        if given.fails == "no master":
            self._leader, _ = self._start()
            time.sleep(AWAY_S)
            began = time.monotonic()
        self._spark.start_master()
        self._workers = [self._spark.add_worker(cores=4) for _ in range(2)]
        if given.fails != "no master":
            self._leader, _ = self._start()
        self._await(FIRST)
        print(f"first records: {time.monotonic() - began:.1f} s", flush=True)

    def measured(self) -> Measured:
        """Let something fail, and await new records."""
        failures: Mapping[str, Callable[[], float]] = {
            "lane": partial(self._kill, lanes),
            "executor": partial(self._kill, lambda: executors()[:1]),
            "application": partial(self._kill, executors),
            "worker": self._lose_worker,
            "workers": self._lose_workers,
            "master": self._lose_master,
            "leader": self._lose_leader,
        }
        began = failures[self._given.fails]()
        self._await(self._produced - PARTITIONS + 1)
        first = time.monotonic() - began
        self._await(self._produced)
        every = time.monotonic() - began
        time.sleep(RESTS_S)
        return Measured(first, every)

    # -- failures. Each produces records, and returns the time from which to measure

    def _kill(self, found: Callable[[], list[psutil.Process]]) -> float:
        for process in eventually(found):
            process.kill()
        return self._produce(PARTITIONS)

    def _lose_worker(self) -> float:
        lost = self._workers.pop(0)
        end(lost)
        began = self._produce(PARTITIONS)
        self._workers.append(self._spark.add_worker(cores=4))
        return began

    def _lose_workers(self) -> float:
        for lost in self._workers:
            end(lost)
        self._produce(PARTITIONS)
        time.sleep(AWAY_S)
        self._workers = [self._spark.add_worker(cores=4) for _ in range(2)]
        return time.monotonic()

    def _lose_master(self) -> float:
        self._spark.end_master()
        return self._produce(PARTITIONS)

    def _lose_leader(self) -> float:
        successor, name = self._start()
        eventually(lambda: "ready to take over" in successor.stderr, within=WITHIN_S)
        if self._given.standby == "warm":
            eventually(lambda: self._spark.applications().get(name), within=WITHIN_S)
        time.sleep(RESTS_S)
        held, killed_at = self._spark.applications().get(name, 0), time.time()
        self._leader.process.kill()
        began = self._produce(PARTITIONS)
        self._leader = successor
        print(f"{self._given.standby}, {held} cores held: ", end="", flush=True)
        if self._given.log is not None:
            self._stack.callback(self._keep, successor, killed_at)
        return began

    def _keep(self, successor: Command, killed_at: float) -> None:
        with self._given.log.open("a") as file:
            file.write(f"leads after a kill at {time.ctime(killed_at)}\n{successor.stderr}\n")

    # -- steps

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


def lanes() -> list[psutil.Process]:
    """Return one process of a lane, which the daemon of an executor has forked."""
    forked = (child for one in executors() for child in one.children(recursive=True))
    parents = ((child, child.parent()) for child in forked)
    daemon = "twinlog.spark.daemon"
    return [c for c, parent in parents if parent is not None and daemon in parent.cmdline()][:1]


def settings_of_spark(folder: Path, fails: str) -> dict[str, str]:
    """Return the environment of all of Spark's processes."""
    settings = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
    }
    if fails == "application":
        settings["spark.deploy.maxExecutorRetries"] = "1"  # the master ends it with its executors
    folder.mkdir()
    lines = (f"{key} {value}\n" for key, value in settings.items())
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    one = ("leader", "lane", "executor", "worker", "workers", "master", "no master", "application")
    parser.add_argument("--fails", choices=one, default="leader")
    parser.add_argument("--standby", choices=("cold", "warm"), default="cold")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin none after these")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--log", type=Path)
    given = parser.parse_args(words)
    given.conf = given.conf or ["spark.executor.cores=2"]
    return given


def main() -> None:
    given = arguments()
    found: list[Measured] = []
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        os.environ |= settings_of_spark(Path(name) / "conf", given.fails)
        flow = Flow(Path(name), given, stack)
        if given.fails == "no master":
            return
        while len(found) < given.times and time.monotonic() - began < given.seconds:
            load = os.getloadavg()[0]
            found.append(one := flow.measured())
            print(
                f"{given.fails}: first record {one.first:.1f} s, one of each partition "
                f"{one.every:.1f} s, load before: {load:.1f}",
                flush=True,
            )
    for what, seconds in zip(Measured._fields, zip(*found, strict=True), strict=True):
        median, worst = statistics.median(seconds), max(seconds)
        print(f"{given.fails}, {what}: median {median:.1f} s, worst {worst:.1f} s of {len(found)}")


if __name__ == "__main__":
    main()
