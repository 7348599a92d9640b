"""Snapshots take only a small share of the time, however many partitions there are."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.driver import Driver, plan_of
from tests.support.eventually import eventually
from tests.support.snapshots import flow, partition
from twinlog.cli.commands.mirror import COLLECTED_AFTER
from twinlog.control.flow.snapshots import flow_snapshot
from twinlog.control.process import supervisor
from twinlog.control.process.supervisor import SnapshotLoop
from twinlog.control.risk.running_flow import RiskLimits
from twinlog.control.watch import status_file
from twinlog.control.watch.monitor import Monitor
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot
from twinlog.control.watch.status_file import StatusFile, running_mirrors

PARTITIONS = 100_000
MOST = 0.05
"""Maximum share of a core for showing `PARTITIONS` partitions."""


class Times:
    """A supervisor that runs ten turns per second. Its checks have the given cost."""

    def __init__(self, cost_s: float) -> None:
        self.now = self.cpu = 0.0
        self.checks: list[float] = []
        self.turns: list[float] = []
        self._cost_s = cost_s
        self._showing = SnapshotLoop(
            check=self._check,
            on_snapshot=lambda _: self.checks.append(self.now),
            on_turn=lambda: self.turns.append(self.now),
            clock=lambda: self.now,
            cpu_clock=lambda: self.cpu,
        )

    def _check(self) -> list[FlowSnapshot]:
        self.cpu += self._cost_s
        return []

    def pass_s(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self._showing.turn()
            self.now += 0.1


@pytest.fixture
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield


def test_few_partitions_are_checked_every_second() -> None:
    times = Times(0.001)
    times.pass_s(60)
    assert len(times.checks) >= 54  # some turns are a tenth of a second late
    assert times.turns == []


def test_many_partitions_are_checked_for_a_small_part_of_the_time() -> None:
    times = Times(0.2)
    times.pass_s(300)
    assert times.cpu <= 300 * supervisor.SHARE_OF_TIME + 0.2
    assert len(times.checks) > 30
    heard = sorted(times.checks + times.turns)
    assert max(b - a for a, b in pairwise(heard)) < 1.2, "it is heard of"


def test_however_many_they_are_they_are_checked() -> None:
    times = Times(60.0)
    times.pass_s(300)
    assert len(times.checks) >= 9


@pytest.mark.usefixtures("_own_folder")
def test_the_status_file_is_written_by_its_own_thread_and_removed(tmp_path: Path) -> None:
    status = StatusFile(tmp_path / "mm2.properties")
    with status.writing():
        for records in (1, 2, 3):
            status.update([flow(partition(records=records))])

        def newest() -> bool:
            found = [one.flows[0].partitions[0].records for one in running_mirrors()]
            return found == [3]

        eventually(newest)
        status.update([flow(partition(records=4))])
    assert list(running_mirrors()) == []


@pytest.mark.usefixtures("_own_folder")
def test_a_large_status_file_is_written_seldom_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_file, "SHARE_OF_TIME", 1e-9)  # write as seldom as a very large file
    status = StatusFile(tmp_path / "mm2.properties")
    many = [partition(number=number) for number in range(2 * status_file.AT_ONCE + 1)]
    with status.writing():
        status.update([flow(*many)])
        eventually(lambda: list(running_mirrors()))
        (mirror,) = running_mirrors()
        assert len(mirror.flows[0].partitions) == len(many)
        assert mirror.every_ms == 1000 * status_file.LONGEST_PAUSE_S
        assert mirror.late_ms == 0
        status.update([flow(state="PAUSED")])
        status.update([flow(state="PAUSED")])
    assert list(running_mirrors()) == [], "the end does not wait for the next time"


@pytest.mark.alone
@pytest.mark.usefixtures("_own_folder")
def test_ten_thousand_topics_are_shown_for_a_twentieth_of_a_core(tmp_path: Path) -> None:
    """With 10,000 topics of 10 partitions each, showing the state of a flow costs at most a
    twentieth of a core. This includes the check, the data for monitoring, and the file for
    `status`.
    """
    gc.freeze()  # objects that other tests left do not belong to a mirror's memory
    driver = Driver([plan_of(one % 10, f"t-{one // 10:05d}") for one in range(PARTITIONS)])
    driver.run.tick()
    for lane in driver.lanes_of(1):
        lane.progress(*(() if lane.lane is None else lane.lane.partitions), ordinal=100, end=100)
    for one in driver.run.partitions.values():
        one.recovery.note_end(100, driver.clock.boot(), 100)
    since, limits = FlowSince(), RiskLimits(rpo_seconds=60, retentions={})
    monitor, status = Monitor(), StatusFile(tmp_path / "mm2.properties")
    costs: list[tuple[float, float]] = []
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTED_AFTER)  # as `twinlog mirror` sets it
    try:
        # the first time fills caches, and other processes of the machine may disturb
        for _ in range(4):
            began = time.thread_time()
            seen = flow_snapshot(driver.run, "exact", None, (), Counter(), since, limits)
            monitor.update([seen])
            checked = time.thread_time()
            status.write([seen])
            costs.append((checked - began, time.thread_time() - checked))
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    check_s, file_s = (min(each) for each in zip(*costs[1:], strict=True))
    assert len(seen.partitions) == PARTITIONS
    (file,) = tmp_path.glob("twinlog/*.json")
    assert file.stat().st_size > 100 * PARTITIONS
    check_every_s = max(1.0, min(check_s / supervisor.SHARE_OF_TIME, supervisor.LONGEST_PAUSE_S))
    file_every_s = max(1.0, min(file_s / status_file.SHARE_OF_TIME, status_file.LONGEST_PAUSE_S))
    share = check_s / check_every_s + file_s / file_every_s
    assert share < MOST, f"check {check_s:.2f} s, file {file_s:.2f} s"
