"""Lanes are killed, frozen and resumed under load, while one lease (Spark job whose tasks are
lanes) follows another. Every record arrives exactly once.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.client import eventually
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.rig import Rig, arrived, send_signals
from tests.support.topics import create_topic, end_offsets
from twinlog.control.running import lane_use
from twinlog.control.running.lane_use import LaneUse
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

PARTITIONS = 4


@pytest.fixture
def flow(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        create_topic(source_cluster, rig.topic, partitions=PARTITIONS)
        yield rig


def under_load(
    rig: Rig, mirror: Mirror, trouble: Callable[[Load], None], *, seconds: float
) -> None:
    """Copy under load and call `trouble` repeatedly for some seconds. Then wait until every record
    has arrived, and compare both logs.
    """
    with mirror, Load(rig.source, rig.topic, partitions=PARTITIONS, per_second=2_000) as load:
        mirror.eventually(lambda parts: sum(p.records for p in parts) > 0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            trouble(load)
        count = load.stop()
        eventually(lambda: arrived(rig) >= count, what="everything that was produced")
        mirror.stop()
    rig.same()
    assert arrived(rig) == count


@pytest.mark.witness("lanes are killed repeatedly")
def test_lanes_killed_again_and_again(flow: Rig) -> None:
    mirror = Mirror(flow.config(), lanes=2, lease_s=3.0)
    dice = random.Random(1)

    def trouble(_load: Load) -> None:
        time.sleep(dice.uniform(0.2, 1.2))  # a random moment of the copy
        pids = mirror.leases.pids()
        send_signals(dice.sample(pids, min(len(pids), dice.randint(1, 2))), signal.SIGKILL)

    under_load(flow, mirror, trouble, seconds=10)


@pytest.mark.witness("leases change under load")
def test_leases_change_under_load(flow: Rig) -> None:
    mirror = Mirror(flow.config(), lanes=2, lease_s=1.0)

    def four_leases(_load: Load) -> None:
        eventually(lambda: len(mirror.leases.jobs) > 4, what="the fifth lease")

    under_load(flow, mirror, four_leases, seconds=0.1)


@pytest.mark.parametrize("dies", [False, True], ids=["all live", "killed"])
def test_partitions_move_between_the_lanes_of_a_lease_under_load(
    flow: Rig, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The traffic is classified as light and as busy in turns several times a second. So partitions
    move between the lanes of one lease (Spark job). With `dies`, a lane is killed as well. The copy
    must be complete and without duplicates.
    """
    always = {"PERIOD_S": 0.1, "LIGHT_FOR_S": 0.0, "LIGHT_CORES": 9.0, "LIGHT_BYTES": 1 << 40}
    for name, value in (always | {"BUSY_CORES": -1.0}).items():
        monkeypatch.setattr(lane_use, name, value)
    moves, dice = [0], random.Random(3)
    use_all = LaneUse._use_all_lanes

    def counted(use: LaneUse) -> None:
        moves[0] += 1
        use_all(use)

    monkeypatch.setattr(LaneUse, "_use_all_lanes", counted)
    mirror = Mirror(flow.config(), lanes=2)

    def trouble(_load: Load) -> None:
        before = moves[0]
        eventually(lambda: moves[0] >= before + 5, what="further moves")
        if dies:
            send_signals(dice.sample(mirror.leases.pids(), 1), signal.SIGKILL)

    under_load(flow, mirror, trouble, seconds=8)


def test_frozen_lane_is_replaced_and_harmless_when_it_continues(flow: Rig) -> None:
    mirror = Mirror(flow.config(), lanes=2)

    def trouble(_load: Load) -> None:
        pids = mirror.leases.pids()[:1]
        send_signals(pids, signal.SIGSTOP)
        time.sleep(0.5)  # until the frozen lane's last requests have arrived
        before = end_offsets(flow.target, flow.remote)
        # the driver assigns the partitions to the other lane although the frozen lane never
        # responds
        eventually(
            lambda: all(e > before[p] for p, e in end_offsets(flow.target, flow.remote).items()),
            what="partitions of the frozen lane",
        )
        send_signals(pids, signal.SIGCONT)
        eventually(lambda: not {*pids} & {*mirror.leases.pids()}, what="its end")

    under_load(flow, mirror, trouble, seconds=0.1)


def test_frozen_for_a_moment_again_and_again(flow: Rig) -> None:
    mirror = Mirror(flow.config(), lanes=2, lease_s=2.0)
    dice = random.Random(2)

    def trouble(_load: Load) -> None:
        pids = dice.sample(mirror.leases.pids(), 1)
        send_signals(pids, signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 1.0))  # a random moment of the copy
        send_signals(pids, signal.SIGCONT)
        time.sleep(dice.uniform(0.1, 0.5))  # a random moment of the copy

    under_load(flow, mirror, trouble, seconds=8)


FREEZES_BEFORE_ITS_HELLO = """
import os, pathlib, signal
done = pathlib.Path({done!r})
if not done.exists():
    done.touch()
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_only_lane_that_freezes_before_its_hello_is_given_up(
    flow: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.lanes.lanes.HELLO_WITHIN_S", 15.0)
    mirror = Mirror(flow.config(), lanes=1)
    mirror.leases.prelude = FREEZES_BEFORE_ITS_HELLO.format(done=str(tmp_path / "done"))
    with mirror, Load(flow.source, flow.topic, partitions=PARTITIONS, per_second=200) as load:
        mirror.eventually(lambda parts: sum(p.records for p in parts) > 0)
        count = load.stop()
        eventually(lambda: arrived(flow) >= count)
        mirror.stop()
    flow.same()
