"""The number of lanes of a flow, derived from its configuration, this machine, and a given Spark
master.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.properties import flow_of, loader
from twinlog.channel.codec import MessageCodec
from twinlog.channel.server import ChannelServer, address_for_executors
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.flow.wiring import MANY, lanes_in_memory, lanes_of
from twinlog.control.process import engine as engine_module
from twinlog.control.process import supervisor as supervisor_module
from twinlog.control.process.engine import FORGOTTEN_AFTER_S, SparkEngine
from twinlog.control.process.run import MirrorOptions
from twinlog.control.process.supervisor import Supervisor
from twinlog.errors import Disconnected, Unreachable
from twinlog.lane.messages import MESSAGES
from twinlog.spark.options import SparkOptions


def an_engine(
    flows: Sequence[FlowConfig], *, master: str | None = None, lanes: int | None = None
) -> SparkEngine:
    return SparkEngine(MirrorOptions(spark=SparkOptions(master=master), lanes=lanes), flows)


@pytest.fixture
def flow(tmp_path: Path) -> FlowConfig:
    return flow_of(loader(tmp_path)())


@pytest.mark.parametrize(
    ("tasks_max", "cores", "override", "partitions", "lanes"),
    [
        (None, 8, None, 100, 8),  # not MirrorMaker 2's default of one task
        (None, 8, None, 3, 3),
        (32, 2, None, 100, 2),  # more lanes than cores would cost memory and gain nothing
        (4, 8, None, 100, 4),
        (1, 8, None, 100, 1),
        (4, 8, None, 0, 1),
        (4, 2, 6, 100, 6),  # --lanes overrides all others
        (4, 2, 6, 3, 3),
    ],
)
def test_lanes_of_a_flow(
    flow: FlowConfig,
    tasks_max: int | None,
    cores: int,
    override: int | None,
    partitions: int,
    lanes: int,
) -> None:
    changed = replace(flow, lanes=replace(flow.lanes, tasks_max=tasks_max))
    assert lanes_of(changed, cores, override, partitions) == lanes


@pytest.mark.parametrize(("override", "lanes"), [(None, 1), (3, 3)])
def test_flow_with_little_traffic_has_one_lane_unless_the_number_is_given(
    flow: FlowConfig, override: int | None, lanes: int
) -> None:
    engine = an_engine([flow], lanes=override)
    assert engine.lanes_for(flow, 100, flows=1, is_light=True) == lanes


@pytest.mark.parametrize(
    ("slots", "flows", "lanes"), [(16, 1, 8), (8, 1, 7), (3, 1, 2), (1, 1, 1), (16, 2, 7)]
)
def test_a_given_master_has_room_for_every_lease_and_a_lane_of_the_next(
    flow: FlowConfig, slots: int, flows: int, lanes: int
) -> None:
    engine = an_engine([flow], master="spark://somewhere:7077", lanes=8)
    engine._slots = slots
    assert engine.lanes_for(flow, 100, flows=flows) == lanes


def test_standby_of_a_cluster_knows_its_lanes_before_it_has_slots(flow: FlowConfig) -> None:
    """A cold standby has no application, so it reports the number of lanes that it would ask for.
    This number does not depend on the cores of its own host.
    """
    flow = replace(flow, lanes=replace(flow.lanes, tasks_max=300))
    engine = an_engine([flow], master="spark://somewhere:7077")
    assert engine.lanes_for(flow, MANY, flows=1) == 300


def test_spark_waits_for_a_busy_supervisor(
    flow: FlowConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the supervisor does not respond in time, its answer is awaited. An error would end Spark's
    application, or with a caller's session, the process.
    """
    monkeypatch.setattr(supervisor_module, "ANSWER_WITHIN_S", 0.05)
    engine = an_engine([flow], master="spark://somewhere:7077", lanes=4)
    engine._supervisor = supervisor = Supervisor([], once=True, lease_s=1, lane_count=lambda *_: 1)
    with ThreadPoolExecutor(1) as pool:
        lanes = pool.submit(engine._lanes_wanted)
        time.sleep(0.2)  # the supervisor is busy for longer than ANSWER_WITHIN_S
        assert not lanes.done()
        while not lanes.done():
            supervisor.turn(0.01)
        assert lanes.result() == 4
        for_ever = pool.submit(engine._lanes_wanted)
        engine._stop.set()
        assert for_ever.result(10) == 4, "it does not keep the process from ending"


def test_lanes_follow_the_slots_of_a_cluster(flow: FlowConfig) -> None:
    engine = an_engine([flow], master="spark://somewhere:7077", lanes=4)
    found = []
    for slots in (4, 8, 4, 0):  # with 0 slots, the executors are lost, and new ones will be started
        engine._count(slots)
        found.append(engine.lanes_for(flow, 100, flows=1))
    assert found == [3, 4, 3, 3]


def test_a_standalone_master_may_have_forgotten_an_application_without_executors(
    flow: FlowConfig,
) -> None:
    long_ago = time.monotonic() - FORGOTTEN_AFTER_S - 1
    for master in ("yarn", "k8s://https://somewhere", "local[4]"):
        other = an_engine([flow], master=master)
        other._without_since = long_ago
        other._require_known()
    engine = an_engine([flow], master="spark://somewhere:7077")
    for _ in range(2):
        engine._without_since = long_ago
        with pytest.raises(Disconnected, match="it has had no executor for 1 min"):
            engine._require_known()
        engine._require_known()  # the next lease waits twice as long
        engine._count(4)
        engine._require_known()
    engine._without_since, engine._began = long_ago, time.monotonic()
    engine._require_known()


def test_a_reload_gets_no_more_lanes_than_this_spark_was_made_for(
    flow: FlowConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "usable_cores", lambda: 8)
    two, four = (replace(flow, lanes=replace(flow.lanes, tasks_max=n)) for n in (2, 4))
    engine = an_engine([two])
    assert engine.lanes_for(two, 100, flows=1) == 2
    assert caplog.messages == []
    assert engine.lanes_for(four, 100, flows=1) == 2
    assert engine.lanes_for(four, 100, flows=1) == 2
    (said,) = caplog.messages
    assert "runs with 2 lanes, not 4, until the mirror is restarted" in said
    assert an_engine([]).lanes_for(four, 100, flows=2) == 1  # a flow that was added


MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("limit", "flows", "lanes"),
    [(1536, 1, 6), (768, 1, 1), (256, 1, 1), (1536, 2, 3), (8192, 1, 48)],
)
def test_a_pod_has_the_memory_of_its_lanes(
    flow: FlowConfig, limit: int, flows: int, lanes: int
) -> None:
    assert flow.lanes.memory_bytes == 64 * MEBIBYTE
    assert lanes_in_memory([flow] * flows, limit * MEBIBYTE) == lanes


def test_transforms_have_memory_of_their_own(flow: FlowConfig, tmp_path: Path) -> None:
    lines = ("twinlog.transforms = t", "twinlog.transforms.t.topics = orders")
    masking = flow_of(loader(tmp_path)(*lines, "twinlog.transforms.t.sql = SELECT * FROM records"))
    assert lanes_in_memory([masking, flow], 2560 * MEBIBYTE) == 3
    assert lanes_in_memory([flow, flow], 1536 * MEBIBYTE) == 3


def test_without_a_limit_memory_does_not_count(
    flow: FlowConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "usable_cores", lambda: 8)
    monkeypatch.setattr(engine_module, "memory_limit", lambda: None)
    assert an_engine([flow]).lanes_for(flow, 100, flows=1) == 8
    monkeypatch.setattr(engine_module, "memory_limit", lambda: 1536 * MEBIBYTE)
    assert an_engine([flow]).lanes_for(flow, 100, flows=1) == 6


@pytest.mark.parametrize(
    ("master", "is_warm", "starts"),
    [
        ("spark://somewhere:7077", False, False),
        ("spark://somewhere:7077", True, True),
        ("yarn", True, True),
        (None, True, True),  # this machine's Spark always starts with the process
    ],
)
def test_a_warm_standby_starts_spark_with_the_process(
    flow: FlowConfig, master: str | None, is_warm: bool, starts: bool
) -> None:
    warm = replace(flow, lanes=replace(flow.lanes, has_warm_standby=is_warm))
    engine = an_engine([flow, warm], master=master)
    assert engine._needed.is_set() is starts
    assert engine._is_warm is (is_warm and master is not None)


@pytest.mark.parametrize(("mode", "starts"), [("client", False), ("cluster", True)])
def test_a_driver_that_yarn_has_started_starts_an_application(
    flow: FlowConfig, mode: str, starts: bool
) -> None:
    given = {"spark.submit.deployMode": mode}
    spark = SparkOptions(master="yarn", user_settings=given)
    engine = SparkEngine(MirrorOptions(spark=spark), [flow])
    assert engine._needed.is_set() is engine._is_warm is starts


def test_lanes_of_this_machine_stay_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Spark runs on this machine, the channel listens only on loopback. If Spark has another
    master, it listens on another address (SPARK_LOCAL_IP if it is set), where the server uses TLS.
    """
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert address_for_executors("local[4,2]") == "127.0.0.1"
    assert address_for_executors("spark://a:7077") != ""
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.7")
    assert address_for_executors("spark://a:7077") == "192.0.2.7"
    assert address_for_executors("local") == "127.0.0.1"


def test_executors_reach_a_host_without_ipv4_and_one_without_a_route_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routes = {socket.AF_INET6}

    def connect(probe: socket.socket, _address: object) -> None:
        if probe.family not in routes:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "getsockname", lambda _: ("2001:db8::7", 1, 0, 0))
    assert address_for_executors("spark://a:7077") == "2001:db8::7"
    routes.clear()
    with pytest.raises(Unreachable, match="set SPARK_LOCAL_IP") as no_route:
        address_for_executors("spark://a:7077")
    with pytest.raises(Unreachable, match=r"cannot listen at .*; set SPARK_LOCAL_IP") as elsewhere:
        ChannelServer(MessageCodec(MESSAGES), print, host="203.0.113.7")
    assert no_route.value.code == elsewhere.value.code == "CHANNEL_UNREACHABLE"


def test_channel_is_tls_wherever_others_can_reach_it() -> None:
    supervisor = Supervisor([], once=True, lease_s=1, lane_count=lambda *_: 1)
    codec = MessageCodec(MESSAGES)
    for host, secured in (("127.0.0.1", False), ("0.0.0.0", True)):  # noqa: S104
        server = ChannelServer(codec, supervisor.deliver, host=host)
        try:
            assert (server.address.fingerprint is not None) is secured
        finally:
            server.close()
