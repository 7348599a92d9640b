"""Leases on a real local Spark: lanes are started, killed, cancelled, and end."""

from __future__ import annotations

import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.lane_entries import CODEC, MODULE, Bomb, Finish, Finished
from twinlog.channel.client import ChannelClient
from twinlog.channel.server import (
    ChannelEvent,
    ChannelServer,
    LaneConnected,
    LaneGone,
    LaneMessage,
    Peer,
)
from twinlog.errors import Disconnected
from twinlog.spark.lease import LeaseJob, has_task
from twinlog.spark.masters import slots_now, task_slots
from twinlog.spark.options import SparkOptions
from twinlog.spark.session import Engine, start_spark, stop_spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        # so that workers can import these tests
        patch.setenv("PYTHONPATH", f"{ROOT}/src{os.pathsep}{ROOT}")
        # a task is not retried without limit here, so that a lane that always fails is detected
        engine = start_spark(SparkOptions(master="local[6,2]"), 2)
        yield engine
        stop_spark(engine)


class Driver:
    """A driver that only records the events of its lanes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: queue.Queue[ChannelEvent] = queue.Queue()
        self.server = ChannelServer(CODEC, self.events.put)
        self.server.start()
        self.address = self.server.address
        self.said: list[Finished] = []

    def lease(self, number: int, entry: str, lanes: int = 2) -> LeaseJob:
        return LeaseJob(
            self.engine.context,
            entry=f"{MODULE}:{entry}",
            address=self.address,
            secrets=self.server.secrets,
            lease=number,
            lanes=lanes,
        )

    def hellos(self, count: int) -> list[Peer]:
        found: list[Peer] = []
        while len(found) < count:
            event = self.events.get(timeout=PATIENCE_S)
            if isinstance(event, LaneConnected):
                found.append(event.peer)
        return found

    def farewells(self, count: int) -> list[Peer]:
        """Wait until this many lanes have ended, and return them. The messages that arrive before
        that are added to `said`.
        """
        found: list[Peer] = []
        while len(found) < count:
            event = self.events.get(timeout=PATIENCE_S)
            if isinstance(event, LaneMessage):
                self.said.append(event.message)
            if isinstance(event, LaneGone):
                found.append(event.peer)
        return found


@pytest.fixture
def driver(engine: Engine) -> Iterator[Driver]:
    driver = Driver(engine)
    yield driver
    driver.server.close()


def finish(job: LeaseJob, peers: list[Peer]) -> None:
    for peer in peers:
        peer.send(Finish())
    assert job.done.wait(PATIENCE_S)


def test_every_lane_comes_to_its_end(driver: Driver) -> None:
    job = driver.lease(1, "until_told")
    peers = driver.hellos(2)
    assert not job.is_done
    finish(job, peers)
    assert job.error is None
    driver.farewells(2)
    said = sorted(driver.said, key=lambda finished: finished.lane)
    assert said == [Finished(lease=1, lane=lane, attempt=0) for lane in (0, 1)]


@pytest.mark.witness("a killed worker is restarted, and the other one continues")
def test_a_killed_worker_is_tried_again_and_its_neighbour_stays(driver: Driver) -> None:
    job = driver.lease(2, "until_told")
    killed, neighbour = driver.hellos(2)
    os.kill(killed.identity.pid, signal.SIGKILL)
    (again,) = driver.hellos(1)
    assert again.identity.lane == killed.identity.lane
    assert again.identity.attempt == killed.identity.attempt + 1
    assert again.identity.pid != killed.identity.pid
    finish(job, [again, neighbour])
    assert job.error is None
    driver.farewells(2)
    attempts = {each.lane: each.attempt for each in driver.said}
    assert attempts == {killed.identity.lane: 1, neighbour.identity.lane: 0}


@pytest.mark.witness("the driver executes nothing from responses of executors")
def test_nothing_that_executors_answer_is_run_here(driver: Driver, tmp_path: Path) -> None:
    driver.address = replace(driver.address, host=str(tmp_path))
    job = driver.lease(11, "hostile", lanes=1)
    assert job.done.wait(PATIENCE_S)
    assert job.error is None
    # the payload would create a file if it were unpickled
    pickle.loads(pickle.dumps(Bomb(f"{tmp_path}/control")))  # noqa: S301
    assert [path.name for path in tmp_path.iterdir()] == ["control"]


@pytest.mark.witness("an expired lease accepts no lane")
def test_an_ended_lease_admits_no_lane(driver: Driver) -> None:
    job = driver.lease(12, "until_told", lanes=1)
    (lane,) = driver.hellos(1)
    (own,) = job._own
    finish(job, [lane])
    driver.farewells(1)
    address = replace(driver.server.address, token=own)
    client = ChannelClient.connect(address, replace(lane.identity, attempt=1), CODEC)
    try:
        with pytest.raises(Disconnected):
            while True:
                select.select([client], [], [], 0.25)
                client.receive()
    finally:
        client.close()


def test_a_lease_and_its_successor_run_side_by_side(driver: Driver) -> None:
    old = driver.lease(3, "until_told")
    old_lanes = driver.hellos(2)
    new = driver.lease(4, "until_told", lanes=4)
    new_lanes = driver.hellos(4)
    assert not old.is_done
    assert {peer.identity.lease for peer in new_lanes} == {4}
    next_lease = driver.lease(14, "until_told", lanes=1)
    assert not next_lease.awaits_slot, "unknown until Spark was queried"
    eventually(lambda: next_lease.awaits_slot, what="a lease that finds no slot")
    finish(old, old_lanes)
    next_lanes = driver.hellos(1)
    eventually(lambda: has_task(driver.engine.context, next_lease._group))
    assert not new.is_done
    finish(new, new_lanes)
    finish(next_lease, next_lanes)
    assert (old.error, new.error, next_lease.error) == (None, None, None)


def test_a_cancelled_lease_ends_its_lanes_and_is_no_failure(driver: Driver) -> None:
    job = driver.lease(5, "until_told")
    lanes = driver.hellos(2)
    job.cancel()
    assert job.done.wait(PATIENCE_S)
    assert job.error is None
    driver.farewells(2)
    for lane in lanes:
        eventually(lambda pid=lane.identity.pid: not psutil.pid_exists(pid))  # type: ignore[misc]
    job.cancel()
    # a lease of another run in the same session has the same number
    later = driver.lease(5, "until_told")
    finish(later, driver.hellos(2))
    assert later.error is None


def test_a_lease_that_is_cancelled_at_once_never_starts_a_lane(driver: Driver) -> None:
    job = driver.lease(6, "until_told")
    job.cancel()
    assert job.done.wait(PATIENCE_S)
    # a lane of the cancelled lease, if there were one, would connect before those of the next lease
    successor = driver.lease(13, "until_told")
    lanes = driver.hellos(2)
    assert [lane.identity.lease for lane in lanes] == [13, 13]
    finish(successor, lanes)


@pytest.mark.parametrize(
    ("script", "mode", "why"),
    [
        ("", 0o644, "cannot be started: {python}: Permission denied; PYSPARK_PYTHON sets this"),
        (None, 0, "cannot be started: {python}: No such file or directory; PYSPARK_PYTHON sets"),
        ("echo No module named pyspark >&2; exit 1", 0o755, "ended: No module named pyspark"),
    ],
    ids=["closed", "missing", "broken"],
)
def test_a_python_that_does_not_start_is_named(
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str | None,
    mode: int,
    why: str,
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(mode)
    monkeypatch.setattr(driver.engine.context, "pythonExec", str(python))
    job = driver.lease(8, "until_told", lanes=1)
    assert job.done.wait(PATIENCE_S)
    assert job.error is not None
    assert job.error.code == "LEASE"
    assert f"the lanes' Python {why.format(python=python)}" in job.error.message
    assert "\n" not in str(job.error)


def test_an_error_is_one_line_and_a_known_one_keeps_its_code(driver: Driver) -> None:
    for lease, (run, code, message) in enumerate(
        [
            ("refuse", "CHANNEL_UNREACHABLE", "lane 0 of 127.0.0.1: no way"),
            ("stumble", "LEASE", "ValueError: lane 0 is broken"),
        ],
        start=7,
    ):
        job = driver.lease(lease, run, lanes=1)
        assert job.done.wait(PATIENCE_S)
        assert job.error is not None
        assert job.error.code == code
        assert message in job.error.message
        assert "\n" not in str(job.error)


def test_slots_of_a_given_master_are_counted_and_too_few_are_one_line(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert slots_now(engine.context) == 6
    assert engine.context.master == "local[6,2]"
    assert task_slots(engine.context, 6) == 6
    assert caplog.messages == []
    assert task_slots(engine.context, 8) == 6
    (line,) = caplog.messages
    assert line == (
        "local[6,2] offers 6 task slots, but lanes and the next lease need 8, so fewer lanes are "
        "used; add cores, or lower tasks.max or --lanes"
    )


@pytest.mark.witness("Spark speculation is always off")
def test_spark_leaves_no_folder_here_and_never_speculates(engine: Engine) -> None:
    assert threading.main_thread().is_alive()
    assert not Path("spark-warehouse").exists()
    assert not Path("metastore_db").exists()
    assert engine.context.getConf().get("spark.ui.enabled") == "false"
    assert engine.context.getConf().get("spark.speculation") == "false"
    children_inherit = {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME"}
    assert not children_inherit & os.environ.keys(), "another Spark below us would take ours"


PROGRAM = """
import sys, time
from twinlog.spark.session import start_spark
engine = start_spark(None, 1)
assert engine.context.parallelize([], 2).count() == 0
print(engine.gateway.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.witness("a killed driver leaves no process behind")
def test_a_killed_driver_leaves_no_process_no_folder_and_no_output(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        jvm = int(process.stdout.readline())
        below = [jvm, *(child.pid for child in psutil.Process(jvm).children(recursive=True))]
        assert list(tmp_path.iterdir())
        process.kill()
        process.wait()
        assert process.stderr.read() == ""
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in below))
    assert list(tmp_path.iterdir()) == []
