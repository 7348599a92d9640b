"""After a lane was killed, partitions that must wait for its late requests are looked at together,
however many they are: brokers may be far away. One whose end is searched behind much that others
wrote holds up none of them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.mirror_process import Driver
from tests.support.rig import OLD, Rig, arrived, kill
from tests.support.topics import create_topic
from twinlog.mirror.map.offset_map import Mark

pytestmark = [pytest.mark.faults, pytest.mark.broker]

MUCH_BYTES: Final = 64 << 20
"""Of others, behind the mark: 64 reads of the usual size."""

FAR_AND_COUNTED: Final = """
import json, threading, time
from twinlog.cluster.client import ClusterClient
from twinlog.lane.cold_starts import ColdStarts
asked, near, find = threading.local(), ClusterClient._asking, ColdStarts._find
def far(self, node, timeout_s):
    time.sleep({trip_s})
    asked.requests = getattr(asked, "requests", 0) + 1
    return near(self, node, timeout_s)
def count(self, takes, *more):
    asked.requests = 0
    try:
        return find(self, takes, *more)
    finally:
        with open({path!r}, "a") as file:
            file.write(json.dumps([len(takes), asked.requests]) + chr(10))
ClusterClient._asking, ColdStarts._find = far, count
"""
"""Each request of a job takes a round trip; each look writes its partitions and requests down."""


def looks_of(written: str) -> list[tuple[int, int]]:
    """Partitions and requests of each look."""
    return [(count, requests) for count, requests in map(json.loads, written.splitlines())]


def looked_at(file: Path) -> int:
    """How many partitions were looked at, those that were twice counted twice."""
    return sum(count for count, _ in looks_of(file.read_text() if file.exists() else ""))


@pytest.mark.witness("starts that wait for late requests are one look", case="40-0.05")
@pytest.mark.parametrize(
    ("partitions", "trip_s"),
    [(40, 0.05), pytest.param(1_000, 0.1, marks=pytest.mark.long)],
)
def test_idle_partitions_of_a_killed_lane_are_looked_at_together(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, trip_s: float
) -> None:
    if partitions < 1_000:  # 3 s, instead of 20, until what the lane sent has surely arrived
        monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", -7_000)
    create_topic(rig.source, rig.topic, partitions=partitions)
    old_ms = int(time.time() * 1000) - OLD
    produce(
        rig.source,
        rig.topic,
        [Outgoing(value=b"%d" % n, timestamp=old_ms, partition=n) for n in range(partitions)],
    )
    written = tmp_path / "looks"
    prelude = FAR_AND_COUNTED.format(trip_s=trip_s, path=str(written))
    with rig.mirror(prelude=prelude) as mirror:
        mirror.eventually(lambda parts: all(one.state == "AT_END" for one in parts), 120)
        eventually(lambda: looked_at(written) == partitions, what="the end of the first look")
        before = written.stat().st_size
        (killed,) = mirror.leases.pids()
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in mirror.leases.pids(), what="the end of the lane")
        mirror.eventually(lambda parts: any(one.state != "AT_END" for one in parts))
        mirror.eventually(lambda parts: all(one.state == "AT_END" for one in parts), 120)
        # at once, and again when the wait is over; on a busy machine it is over before
        eventually(lambda: looked_at(written) >= 2 * partitions, what="the end of the last look")
        mirror.stop()
    looks = looks_of(written.read_text()[before:])
    assert len(looks) <= 6, looks
    assert all(requests <= 20 + 2 * (count // 32 + 1) for count, requests in looks), looks


def test_end_that_is_searched_behind_much_of_others_holds_up_nobody(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", -7_000)
    rig.prefixed, partitions = False, 20
    for cluster in (rig.source, rig.target):
        create_topic(cluster, rig.topic, partitions=partitions)
    old_ms = int(time.time() * 1000) - OLD
    ours = [Outgoing(value=b"%d" % n, timestamp=old_ms, partition=n) for n in range(partitions)]
    produce(rig.source, rig.topic, ours)
    with Driver(rig.config(), lanes=1) as driver:
        eventually(lambda: arrived(rig) == partitions, what="the copy")
        eventually(lambda: rig.map().mark == Mark(1, 1), what="its mark")
        lanes = driver.state.lanes
        driver.kill()
        kill(lanes)
    theirs = Outgoing(key=b"f", value=bytes(60_000), partition=0)
    produce(rig.target, rig.topic, [theirs] * (MUCH_BYTES // 60_000))
    written = tmp_path / "looks"
    prelude = FAR_AND_COUNTED.format(trip_s=0.05, path=str(written))
    with rig.target_forgets_after(1000):
        rig.forgotten()
        with rig.mirror(prelude=prelude) as mirror:
            parts = mirror.eventually(
                lambda parts: {one.state for one in parts} == {"AT_END", "TAKEN_OVER"}
            )
            mirror.stop()
    assert [one.partition for one in parts if one.state == "TAKEN_OVER"] == [0]
    looks = looks_of(written.read_text())
    assert all(requests <= 25 for _, requests in looks), looks
    searches = [requests for count, requests in looks if count == 1 and requests > 15]
    assert searches, "the search had looks of its own"
