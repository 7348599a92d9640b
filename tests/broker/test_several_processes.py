"""Several processes run one flow. One leads undisturbed, and the others are standbys."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rig import Rig
from tests.support.settings import settings_for
from tests.support.stopwatch import Stopwatch
from tests.support.topics import topic_names
from twinlog.cli.commands.mirror import MirrorReport
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.group_protocol import GroupCalls
from twinlog.cluster.groups.membership import SESSION_TIMEOUT_MS, MemberRole
from twinlog.config.load import load
from twinlog.control.flow.managed_flow import leave
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.leading.lead import StandingBy
from twinlog.control.process.run import MirrorResult
from twinlog.control.process.supervisor import LEAVE_WITHIN_S
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("several-processes")]


@pytest.fixture
def rig(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as found:
        found.create()
        yield found


def reason(mirror: Mirror) -> str:
    (flow,) = mirror.supervisor.snapshots()
    return flow.reason


def report_of(mirror: Mirror, flows: list[FlowSnapshot]) -> MirrorReport:
    errors = tuple(mirror.supervisor.errors)
    return MirrorReport(MirrorResult(flows=tuple(flows), seconds=0.0, errors=errors), once=True)


def topics_of(rig: Rig) -> set[str]:
    """Return the topics on the target whose names contain the flow's alias."""
    return {name for name in topic_names(rig.target) if rig.alias in name}


@pytest.mark.witness("--once does not change a flow that has a leader")
def test_once_beside_a_leader_ends_with_1_and_changes_nothing(rig: Rig) -> None:
    config = rig.config()
    with Driver(config) as leader:
        rig.put(range(10))
        rig.copied(10)
        before = leader.state
        topics = topics_of(rig)
        claim = rig.claim()
        with Mirror(config, once=True) as second:
            flows = second.wait()
        report = report_of(second, flows)
        assert report.exit_code == 1
        (line,) = report.flow_failures()
        assert f"another process leads this flow (process {leader.pid} on " in line
        assert line.endswith("nothing was changed [NOT_LEADER]")
        assert topics_of(rig) == topics
        assert rig.claim() == claim
        rig.put(range(10, 20))
        rig.copied(20)
        assert leader.state.generation == before.generation
        assert leader.state.lanes == before.lanes, "it never stopped to copy"
    rig.same()


@pytest.mark.faults
def test_once_waits_for_a_dead_leader_to_be_given_up(rig: Rig) -> None:
    config = rig.config()
    with Driver(config) as leader:
        rig.put(range(10))
        rig.copied(10)
        leader.kill()
    rig.put(range(10, 20))
    with Mirror(config, once=True) as second:
        flows = second.wait()
    assert report_of(second, flows).exit_code == 0
    assert rig.numbers() == list(range(20))
    rig.same()


@pytest.mark.faults
@pytest.mark.long
def test_once_says_that_another_leads_only_where_one_is_known(rig: Rig) -> None:
    """A dead member of the group has a longer session timeout than this process. Until the dead
    member's session ends, the coordinator responds to no join. So no leader is known, and `--once`
    must report this instead of naming a leader. A busy coordinator has the same effect.
    """
    config = rig.config()
    rig.put(range(5))
    rig.copy_once()
    with ClusterClient(settings_for(rig.target.bootstrap, "t")) as client:
        dead = GroupCalls(client, f"twinlog-{rig.flow}", 25_000, 60_000)
        assert dead.join(b"", lambda: True) is not None
        dead.close()
        rig.put(range(5, 10))
        with Mirror(config, once=True) as mirror:
            eventually(lambda: "which process leads this flow is unknown" in reason(mirror))
            assert mirror.supervisor.snapshots()[0].state == "STANDBY"
            flows = mirror.wait()
    assert report_of(mirror, flows).exit_code == 0
    assert rig.numbers() == list(range(10))
    rig.same()


@pytest.mark.witness("a standby takes over within 15 s")
@pytest.mark.faults
def test_standby_reports_it_and_takes_over_within_15_seconds(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    config = rig.config()
    with Driver(config) as leader, caplog.at_level(logging.WARNING):
        rig.put(range(10))
        rig.copied(10)
        with Mirror(config) as standby:
            eventually(lambda: "standing by" in reason(standby))
            assert f"(process {leader.pid} on " in reason(standby)
            assert standby.supervisor.snapshots()[0].state == "STANDBY"

            def said() -> int:
                return sum("standing by" in one.getMessage() for one in caplog.records)

            eventually(said)
            assert said() == 1, "once, not every five seconds"
            assert not standby.leases.pids()
            leader.kill()
            with Stopwatch() as since:
                rig.put(range(10, 20))
                eventually(lambda: (standby.supervisor.snapshots()[0].generation or 0) >= 1)
            assert since.seconds < 15
            rig.copied(20)
            standby.stop()
    rig.same()


class Process:
    """A mirror of the flow that has its own configuration file and can be reloaded."""

    def __init__(self, rig: Rig, folder: Path, **keys: str) -> None:
        self.rig = rig
        self.path = folder / f"{secrets.token_hex(4)}.properties"
        self.write(**keys)
        self.mirror = Mirror(self.path)

    def write(self, **keys: str) -> None:
        lines = [f"{key.replace('_', '.')} = {value}" for key, value in keys.items()]
        self.path.write_text("\n".join([self.rig.config().read_text(), *lines]) + "\n")

    def reload(self, **keys: str) -> None:
        self.write(**keys)
        assert self.mirror.reload()

    def __enter__(self) -> Process:
        self.mirror.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.mirror.__exit__(None, None, None)


@pytest.mark.witness("processes with different files report the difference")
def test_another_configuration_is_reported_until_both_have_reloaded(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Process(rig, tmp_path) as leader:
        rig.put(range(10))
        rig.copied(10)
        with Process(rig, tmp_path) as standby:
            eventually(lambda: reason(standby.mirror).endswith("[STANDBY]"))

            leader.reload(tasks_max="3", topics_exclude="hidden")
            eventually(lambda: "[CONFIG_MISMATCH]" in reason(standby.mirror))
            assert "different values of tasks.max, topics.exclude;" in reason(standby.mirror)
            assert f"process {os.getpid()}" in reason(standby.mirror)
            assert standby.mirror.supervisor.snapshots()[0].state == "STANDBY"
            (copying,) = leader.mirror.eventually(lambda parts: parts[0].state == "AT_END")
            generation = leader.mirror.supervisor.snapshots()[0].generation

            standby.reload(tasks_max="3", topics_exclude="hidden")
            eventually(lambda: reason(standby.mirror).endswith("[STANDBY]"))
            (flow,) = leader.mirror.supervisor.snapshots()
            assert (flow.state, flow.generation) == ("RUNNING", generation)
            rig.put(range(10, 20))
            rig.copied(20)
    said = [r.getMessage() for r in caplog.records if "[CONFIG_MISMATCH]" in r.getMessage()]
    assert len(said) == 1
    assert copying.code == ""
    rig.same()


def test_a_standby_that_is_stopped_has_left_its_group_before_its_process_ends(rig: Rig) -> None:
    """A standby is stopped while it waits for the lead. It must stop waiting and leave the group
    within the time that its process has for this. It must not lead afterwards.
    """
    (flow,) = load(rig.config(), environment={}).flows
    leader, standby = flow_setup(flow), flow_setup(flow)
    leader.prepare(once=False)
    claim, led = rig.claim(), leader.membership
    assert led is not None
    refused: list[TwinlogError] = []

    def waits() -> None:
        with pytest.raises(StandingBy) as caught:
            standby.prepare(once=False)
        refused.append(caught.value)

    waiting = threading.Thread(target=waits)
    waiting.start()
    try:
        eventually(lambda: standby.membership)
        assert standby.membership is not None
        assert standby.membership.wait_for(
            lambda now: now.role is MemberRole.STANDBY, within_s=PATIENCE_S
        )
        leaving = leave(standby)
        leaving.join(LEAVE_WITHIN_S)
        assert not leaving.is_alive()
        assert led.wait_for(lambda now: not now.others, within_s=SESSION_TIMEOUT_MS / 2000)
        with pytest.raises(StandingBy):
            standby.prepare(once=False)
        assert rig.claim() == claim, "nor does it lead any more"
        assert led.is_leading
    finally:
        waiting.join()
        leave(standby).join()
        leave(leader).join()
    assert "has left the flow's group" in str(refused[0])
