"""Measures how long a flow on a standalone Spark cluster takes to start, or to resume after a
failure.

`python -m benchmarks.cluster_run --fails lane executor worker --lanes 2 --times 10`: two brokers, a
master, two workers of four slots, and a mirror, all on this machine. Each measurement lets one
component fail, and produces one record for each partition. At the end, a table is printed. If the
leader fails, a standby copies the records (`--standby`). `start` lets nothing fail, and measures
the time from the mirror's start to its first 3000 records. `--executors fixed dynamic` measures all
failures without and with dynamic allocation. `--conf KEY=VALUE` applies to all mirrors. `--log
FILE` stores the log of each successor of a leader.
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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.support.client import produce
from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.spark_mirror import PARTITIONS, arrived, config, orders
from tests.support.standalone import Cluster, end, is_executor
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

WITHIN_S: Final = 400.0
RESTS_S: Final = 6.0
"""Pause before a failure, in seconds, because standbys and executors use CPU after their start."""
AWAY_S: Final = 35.0
"""Time without a worker, in seconds. The flow is `WAITING_FOR_SPARK` after 30 s."""
FIRST: Final = 3000
DYNAMIC: Final = (
    "spark.dynamicAllocation.enabled=true",
    "spark.dynamicAllocation.shuffleTracking.enabled=true",
)
SETTINGS: Final = {
    # makes the master end an application after its executors have failed
    "application": {"spark.deploy.maxExecutorRetries": "1"},
    "master, recovers": {"spark.deploy.recoveryMode": "FILESYSTEM"},
}
"""Spark's settings for some kinds of failure."""
ONCE: Final = ("start", "no master", "master", "executor", "worker")
"""Kinds of failure that need a new cluster or mirror for each measurement."""


class Measured(NamedTuple):
    """Seconds since the failure, or since the missing component returned."""

    first: float
    """Seconds until the first new record was copied."""
    every: float
    """Seconds until all new records were copied."""


class Flow:
    """A Spark cluster, and the mirrors that lead the flow one after the other."""

    def __init__(
        self,
        folder: Path,
        given: argparse.Namespace,
        clusters: tuple[LocalCluster, LocalCluster],
        stack: ExitStack,
    ) -> None:
        self._folder, self._given, self._stack = folder, given, stack
        self._source, self._target = clusters
        os.environ |= settings_of_spark(folder, given.fails)
        self._spark = Cluster(folder)
        stack.callback(self._spark.end)
        conf = [word for one in given.conf for word in ("--conf", one)]
        self._words = ("--lanes", str(given.lanes), "--listen", "off", *conf)
        self._topic, self._produced, self._started = f"takeover-{uuid.uuid4()}", 0, 0
        create_topic(self._source, self._topic, partitions=PARTITIONS)
        keys = {"twinlog.spark.standby": given.standby}
        self._file = config(folder, *clusters, self._topic, **keys)
        self._produce(FIRST)
        is_early = given.fails == "no master"
        if is_early:
            self._leader, _ = self._start()
            time.sleep(AWAY_S)
        self._spark.start_master()
        self._workers = [self._spark.add_worker(cores=4) for _ in range(2)]
        began = time.monotonic()
        if not is_early:
            eventually(lambda: self._spark.workers() == 2)
            began = time.monotonic()
            self._leader, _ = self._start()
        self._first = self._copied(FIRST, began)

    def measured(self) -> Measured:
        """Let the chosen component fail, and wait until new records are copied."""
        if self._given.fails in ("start", "no master"):
            return self._first
        failures: Mapping[str, Callable[[], float]] = {
            "lane": partial(self._kill, lambda: self._lane_and_parents()[:1]),
            "executor": partial(
                self._kill, lambda: [one for one in self._lane_and_parents() if is_executor(one)]
            ),
            "application": partial(self._kill, self._executors),
            "worker": self._lose_worker,
            "workers": self._lose_workers,
            "master": self._lose_master,
            "master, returns": partial(self._restart_master, recovers=False),
            "master, recovers": partial(self._restart_master, recovers=True),
            "leader": self._lose_leader,
        }
        time.sleep(RESTS_S)
        began = failures[self._given.fails]()
        return self._copied(PARTITIONS, began)

    # -- failures. Each method produces records, and returns the time at which the measurement
    # begins

    def _kill(self, found: Callable[[], list[psutil.Process]]) -> float:
        for process in eventually(found):
            process.kill()
        return self._produce(PARTITIONS)

    def _lose_worker(self) -> float:
        above = {process.pid for process in eventually(self._lane_and_parents)}
        (lost,) = (worker for worker in self._workers if worker.pid in above)
        self._workers.remove(lost)
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

    def _restart_master(self, *, recovers: bool) -> float:
        known = self._executors()
        self._spark.end_master()
        self._spark.start_master()
        began = time.monotonic()
        eventually(lambda: self._spark.workers() == len(self._workers))
        if recovers:
            eventually(lambda: any(self._spark.applications().values()), what="its executors")
            assert all(one.is_running() for one in known)
            return self._produce(PARTITIONS)
        eventually(lambda: not any(one.is_running() for one in known))
        self._produce(PARTITIONS)
        return began

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
        print(f"{held} cores held: ", end="", flush=True)
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

    def _copied(self, records: int, began: float) -> Measured:
        """Wait until the last `records` records are copied, and return the times since `began`."""
        times = []
        for wanted in (self._produced - records + 1, self._produced):
            eventually(partial(self._has, wanted), within=WITHIN_S)
            times.append(time.monotonic() - began)
        return Measured(*times)

    def _has(self, records: int) -> bool:
        return arrived(self._target, self._topic) >= records

    def _executors(self) -> list[psutil.Process]:
        below = (psutil.Process(one.pid).children(recursive=True) for one in self._workers)
        return [process for processes in below for process in processes if is_executor(process)]

    def _lane_and_parents(self) -> list[psutil.Process]:
        """Return the process of the busiest lane, and its parents up to the worker's process."""
        forked = [child for one in self._executors() for child in one.children(recursive=True)]
        daemons = {child.pid for child in forked if "twinlog.spark.daemon" in child.cmdline()}
        lanes = [child for child in forked if child.ppid() in daemons]
        # the busiest lane has the most connections: lanes without partitions have fewer, and idle
        # workers of PySpark even fewer
        lanes.sort(key=lambda lane: -len(lane.net_connections()))
        return [lanes[0], *lanes[0].parents()] if lanes else []


def settings_of_spark(folder: Path, fails: str) -> dict[str, str]:
    """Return the environment of all Spark processes. Writes spark-defaults.conf."""
    settings = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.deploy.recoveryDirectory": str(folder / "recovery"),
        **SETTINGS.get(fails, {}),
    }
    conf = folder / "conf"
    conf.mkdir(parents=True)
    lines = (f"{key} {value}\n" for key, value in settings.items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    more = ("leader", "lane", "workers", "application", "master, returns", "master, recovers")
    parser.add_argument("--fails", nargs="+", choices=(*ONCE, *more), default=["leader"])
    parser.add_argument("--executors", nargs="+", choices=("fixed", "dynamic"), default=["fixed"])
    parser.add_argument("--standby", choices=("cold", "warm"), default="cold")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin none after these")
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--log", type=Path)
    given = parser.parse_args(words)
    given.conf = ["spark.executor.cores=2", *given.conf]
    return given


def measurements(
    folder: Path, given: argparse.Namespace, clusters: tuple[LocalCluster, LocalCluster]
) -> Generator[Measured, None, None]:
    """Yield the measurements of one kind of failure."""
    each = 1 if given.fails in ONCE else given.times
    for _ in range(given.times // each):
        with ExitStack() as stack:
            flow = Flow(folder / str(uuid.uuid4()), given, clusters, stack)
            for _ in range(each):
                yield flow.measured()


def row(what: str, measuring: Iterator[Measured], until: float) -> str:
    """Return one line of the table. Begins no measurement after `until` (monotonic)."""
    found: list[Measured] = []
    while time.monotonic() < until:
        load = os.getloadavg()[0]
        if (one := next(measuring, None)) is None:
            break
        found.append(one)
        print(
            f"{what}: first record {one.first:.1f} s, all {one.every:.1f} s, "
            f"load before: {load:.1f}",
            flush=True,
        )
    cells = [
        f"median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s"
        for seconds in zip(*found, strict=True)
    ]
    return f"| {what} | {' | '.join(cells)} | {len(found)} |"


def main() -> None:
    given = arguments()
    until = time.monotonic() + given.seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    rows = ["| | first new record | all new records | times |", "| --- " * 4 + "|"]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        stack.callback(lambda: print(*rows, sep="\n"))
        clusters = LocalCluster("from", folder / "from"), LocalCluster("to", folder / "to")
        for broker in clusters:
            broker.start()
            stack.callback(broker.stop)
        for fails, executors in product(given.fails, given.executors):
            conf = [*given.conf, *(DYNAMIC if executors == "dynamic" else ())]
            of_row = argparse.Namespace(**{**vars(given), "fails": fails, "conf": conf})
            standby = f", {given.standby} standby" if fails == "leader" else ""
            with closing(measurements(folder, of_row, clusters)) as measuring:
                rows.append(row(f"{fails}{standby}, {executors} executors", measuring, until))


if __name__ == "__main__":
    main()
