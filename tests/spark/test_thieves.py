"""Another user of this machine requests data from Spark's ports. Only Spark's executors may receive
it.
"""

from __future__ import annotations

import os
import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.lane_entries import CODEC, MODULE, Finish
from tests.support.thief import Refused, needs_root, steal
from twinlog.channel.server import ChannelEvent, ChannelServer, LaneConnected
from twinlog.spark import authentication
from twinlog.spark.lease import SparkLeaseStarter
from twinlog.spark.options import SparkOptions
from twinlog.spark.session import Engine, start_spark, stop_spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
BLOCK = "broadcast_0_piece0"
"""Name of the block in which Spark stores the code of its first task, with its closure."""


@pytest.fixture(autouse=True)
def where_workers_find_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src{os.pathsep}{ROOT}")


def sockets(engine: Engine) -> list[Any]:
    """Return the addresses at which Spark's JVM listens. Any user can list them with `ss -ltn`."""
    shell = psutil.Process(engine.gateway.process.pid)
    return [
        connection
        for process in (shell, *shell.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


class Loot:
    """The blocks of code that a thief obtains from the ports while a lane runs, and the responses
    of the ports that refuse the thief.
    """

    def __init__(self, engine: Engine) -> None:
        self.blocks: list[bytes] = []
        self.refusals: list[str] = []
        events: queue.Queue[ChannelEvent] = queue.Queue()
        server = ChannelServer(CODEC, events.put)
        server.start()
        try:
            starter = SparkLeaseStarter(
                engine.context, f"{MODULE}:until_told", server.address, server.secrets
            )
            job = starter.start(1, 1)
            (self.secret,) = job._own
            connected = events.get(timeout=PATIENCE_S)
            assert isinstance(connected, LaneConnected)
            # in parallel, because some ports never respond to an unknown client
            with ThreadPoolExecutor() as pool:
                ports = {connection.laddr.port for connection in sockets(engine)}
                list(pool.map(self._try, sorted(ports)))
            connected.peer.send(Finish())
            assert job.done.wait(PATIENCE_S)
        finally:
            server.close()

    def _try(self, port: int) -> None:
        try:
            self.blocks.append(steal(port, BLOCK))
        except Refused as refused:
            self.refusals.append(str(refused))


@needs_root
def test_no_other_user_reads_the_tasks_of_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start_spark(None, 1)
    try:
        loot = Loot(engine)
    finally:
        stop_spark(engine)
    assert loot.blocks == []
    refused = [refusal for refusal in loot.refusals if "Unknown challenge" in refusal]
    # two ports refused the thief: the scheduler's and the block manager's
    assert len(refused) == 2, loot.refusals
    # a control: the same thief does obtain the block from a Spark without a secret
    monkeypatch.setattr(authentication, "AUTHENTICATED", authentication.OPEN)
    engine = start_spark(None, 1)
    try:
        loot = Loot(engine)
    finally:
        stop_spark(engine)
    (code,) = loot.blocks
    assert loot.secret.encode() not in code  # even this thief does not obtain a lane's secret


def test_lanes_of_this_machine_are_on_the_loopback_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS"):
        monkeypatch.setenv(name, "0.0.0.0")  # noqa: S104
    for key in ("spark.driver.host", "spark.driver.bindAddress"):
        options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -D{key}=0.0.0.0"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    engine = start_spark(SparkOptions(master="local[2]"), 1)
    try:
        assert engine.context.parallelize([], 2).count() == 0
        addresses = {connection.laddr.ip for connection in sockets(engine)}
    finally:
        stop_spark(engine)
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert addresses
