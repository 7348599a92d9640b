"""Flows are distributed over the processes that run them. A process that starts later gets its
share, and no record is lost or duplicated when a flow moves.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import read_all
from tests.support.eventually import eventually
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, end_offsets
from twinlog.control.flow.managed_flow import ManagedFlow
from twinlog.control.flow.phases import Phase, Step
from twinlog.control.process.sharing import Sharing
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("several-processes")]

SETTLE_S: Final = 1.0
HEARTBEAT_MS: Final = 200
"""Interval in milliseconds at which processes announce themselves. It is shortened, like the settle
time.
"""

FLOWS: Final = 4
HALF: Final = ["RUNNING"] * 2 + ["STANDBY"] * 2


class Site:
    """Flows with different source aliases, for processes that share one configuration file."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        self.source, self.target = source, target
        mark = secrets.token_hex(3)
        self.aliases = [f"S{mark}{number}" for number in range(FLOWS)]
        # all aliases are one cluster, and each flow has its own topic with the same records
        self.topics = {alias: f"orders-{alias}" for alias in self.aliases}
        for topic in self.topics.values():
            create_topic(source, topic)
        lines = [f"clusters = {', '.join(self.aliases)}, T{mark}"]
        lines += [f"{alias}.bootstrap.servers = {source.bootstrap}" for alias in self.aliases]
        lines += [f"T{mark}.bootstrap.servers = {target.bootstrap}"]
        lines += [f"{alias}->T{mark}.enabled = true" for alias in self.aliases]
        lines += [f"{a}->T{mark}.topics = {topic}" for a, topic in self.topics.items()]
        lines += ["replication.factor = 1", "tasks.max = 1"]
        lines += ["twinlog.state.topic.replication.factor = 1", "emit.checkpoints.enabled = false"]
        self.path = folder / "mm2.properties"
        self.path.write_text("\n".join(lines) + "\n")

    def load(self) -> Load:
        first, *more = self.topics.values()
        return Load(self.source, first, per_second=100, more=more)

    def process(self) -> Mirror:
        mirror = self.real_process()
        mirror.supervisor.sharing = Sharing(SETTLE_S)
        return mirror

    def real_process(self) -> Mirror:
        """Return a mirror with its own process and the default pauses."""
        return Mirror(self.path, lanes=1)

    def same(self) -> None:
        """Check that every remote topic has the records of its source once and in order."""
        for alias, topic in self.topics.items():
            there = [record.value for record in read_all(self.source, topic)]
            here = [record.value for record in read_all(self.target, f"{alias}.{topic}")]
            assert here == there, alias

    def ended(self, count: int) -> bool:
        return all(
            sum(end_offsets(self.target, f"{alias}.{topic}").values()) >= count
            for alias, topic in self.topics.items()
        )


@pytest.fixture
def site(source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Site:
    return Site(source_cluster, target_cluster, tmp_path)


def leads(*mirrors: Mirror) -> list[int]:
    """Return the number of flows that each process leads, or -1 if the process has not reported
    yet.
    """
    return [
        sum(flow.generation is not None for flow in mirror.snapshots) if mirror.snapshots else -1
        for mirror in mirrors
    ]


def states(mirror: Mirror) -> list[str]:
    return sorted(flow.state for flow in mirror.snapshots)


def generations(*mirrors: Mirror) -> list[int]:
    return sorted(
        -1 if flow.generation is None else flow.generation
        for mirror in mirrors
        for flow in mirror.snapshots
    )


def until_settled(*mirrors: Mirror) -> None:
    """Wait until each flow has a leader, the last process leads some, and no flow has moved for a
    while.
    """
    last, since = generations(*mirrors), time.monotonic()

    def is_settled() -> bool:
        nonlocal last, since
        now = generations(*mirrors)
        if now != last or sum(leads(*mirrors)) != FLOWS or sum(leads(mirrors[-1])) == 0:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 6 * SETTLE_S

    eventually(is_settled)


@pytest.fixture
def prompt_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.cluster.groups.membership.HEARTBEAT_MS", HEARTBEAT_MS)


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return a list to which the reason is added whenever a run of a flow ends in any process.
    Snapshots would miss an end that lasts only for a short time.
    """
    found: list[Step] = []
    ends = ManagedFlow._end_run

    def record(flow: ManagedFlow, why: Step) -> None:
        ends(flow, why)
        if flow.phase is Phase.ENDING:
            found.append(why)

    monkeypatch.setattr(ManagedFlow, "_end_run", record)
    return found


@pytest.mark.witness("flows are distributed over processes")
@pytest.mark.usefixtures("prompt_heartbeats")
def test_flows_spread_over_processes_that_come_later_and_stay_there(
    site: Site, endings: list[Step]
) -> None:
    with site.load() as load, site.process() as first:
        eventually(lambda: states(first) == ["RUNNING"] * FLOWS)
        with site.process() as second:
            eventually(lambda: leads(first, second) == [2, 2], what="two flows each")
            eventually(lambda: states(first) == states(second) == HALF)
            with site.process() as third:
                # a difference of one is balanced, so of 2, 2 and 0 flows the new process gets one
                # or two
                before = len(endings)
                until_settled(first, second, third)
                assert sorted(leads(first, second, third)) == [1, 1, 2]
                assert set(endings[before:]) == {Step.HANDED_OVER}
            eventually(lambda: leads(first, second) == [2, 2], what="the third's flow")
        eventually(lambda: leads(first) == [FLOWS], what="all flows with the last process")
        count = load.stop()
        eventually(lambda: site.ended(count))
    site.same()


def test_flows_of_processes_that_are_started_together_are_spread_soon(site: Site) -> None:
    with site.load() as load, site.real_process() as first:
        eventually(lambda: leads(first) == [FLOWS])
        with site.real_process() as second, site.real_process() as third:
            # the limit is less than twice the time of imbalance after which an older process gives
            # up a flow
            eventually(
                lambda: sorted(leads(first, second, third)) == [1, 1, 2], 55, what="fair parts"
            )
            count = load.stop()
            eventually(lambda: site.ended(count))
    site.same()
