"""The driver is killed or frozen, or a second one runs by mistake. Every record arrives exactly
once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import eventually
from tests.support.load import Load
from tests.support.mirror_process import Driver
from tests.support.monitor import LOCAL, Series, ask, labels, series
from tests.support.rig import Rig
from tests.support.stopwatch import Stopwatch
from tests.support.topics import create_topic, end_offsets
from twinlog.addresses import Address
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

PARTITIONS = 4
TAKES_OVER_S = 15.0
"""Maximum time until a standby leads, in seconds. Kafka's coordinator removes a dead member after
its session timeout of 10 s.
"""


@pytest.fixture
def flow(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        create_topic(source_cluster, rig.topic, partitions=PARTITIONS)
        yield rig


def arrived(rig: Rig) -> int:
    return sum(end_offsets(rig.target, rig.remote).values())


def leader_at(address: Address) -> tuple[str, int]:
    """Return the process that reports the flow, and the generation that leads it."""
    (one,) = ask(address, "/api/v1/flows").json["flows"]
    return one["reportedBy"], one["generation"]


def is_calm(found: Series, rig: Rig) -> None:
    """Check that no alert for a lost process or flow would fire on these series
    (deploy/prometheus).
    """
    flow = {"source": rig.alias, "target": rig.target_alias}
    assert found["twinlog_flow_ready", labels(**flow)] == 1
    assert found["twinlog_flow_state", labels(**flow, state="STANDBY")] == 0
    assert [name for name, _ in found if name == "twinlog_build_info"]


def finish(rig: Rig, load: Load) -> None:
    count = load.stop()
    eventually(lambda: arrived(rig) >= count, what="everything that was produced")


@pytest.mark.witness("after a killed driver another process resumes")
def test_driver_killed_and_a_new_one_started(flow: Rig) -> None:
    config = flow.config()
    with Load(flow.source, flow.topic, partitions=PARTITIONS) as load:
        with Driver(config) as first:
            eventually(lambda: first.state.records > 500)
            orphans = first.state.lanes
            first.kill()
        with Driver(config) as second:
            eventually(lambda: second.state.records > 500)
            assert second.state.generation == 1
            assert not [pid for pid in orphans if is_running(pid)], "lanes outlive their driver"
            finish(flow, load)
    flow.same()


def test_second_mirror_stands_by_and_takes_over_within_seconds(flow: Rig) -> None:
    config = flow.config()
    with (
        Load(flow.source, flow.topic, partitions=PARTITIONS) as load,
        Driver(config, listen=LOCAL) as first,
    ):
        eventually(lambda: first.state.records > 500)
        # like two services on one host whose files configure the same address
        with Driver(config, listen=first.served()) as second:
            second.until("STANDBY")
            assert second.address is None
            assert "standing by: another process leads this flow" in second.state.reason
            assert not second.state.lanes
            first.kill()
            with Stopwatch() as since:
                eventually(lambda: second.state.generation >= 1, what="the second one's lead")
            assert since.seconds < TAKES_OVER_S + 5
            eventually(lambda: second.state.records > 0, what="records of the second mirror")
            assert second.served() == first.address
            assert leader_at(second.served()) == ("here", second.state.generation)
            eventually(lambda: ask(second.served(), "/readyz").status == 200)
            is_calm(series(ask(second.served(), "/metrics").body), flow)
            finish(flow, load)
    flow.same()


@pytest.mark.witness("a frozen driver becomes a standby when it wakes up")
def test_frozen_driver_finds_its_flow_led_by_another_and_stands_by(flow: Rig) -> None:
    config = flow.config()
    with Load(flow.source, flow.topic, partitions=PARTITIONS) as load, Driver(config) as first:
        eventually(lambda: first.state.records > 500)
        with Driver(config) as second:
            second.until("STANDBY")
            first.signal(signal.SIGSTOP)
            eventually(lambda: second.state.records > 500, what="records of the second mirror")
            first.signal(signal.SIGCONT)
            first.until("STANDBY")
            before = second.state.records
            eventually(lambda: second.state.records > before + 500)
            assert not first.state.lanes
            finish(flow, load)
    flow.same()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
