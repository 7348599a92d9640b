"""Starts of many partitions after a lane or a mirror was killed.

Idle partitions are at their end immediately, however many there are. Partitions that must wait for
late requests are searched together, because brokers may be far away. A partition with many foreign
records at its end does not delay other partitions.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support import raw
from tests.support.client import Outgoing, eventually, produce
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.rig import OLD, Rig, arrived, kill
from tests.support.settings import settings_for
from tests.support.topics import create_topic, topic_names
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.logs.offsets import log_ends
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.errors import TwinlogError
from twinlog.mirror.map.offset_map import Mark
from twinlog.model import TopicPartition
from twinlog.wire.record_batch import Codec
from twinlog.wire.records import Record, encode_batch

pytestmark = [pytest.mark.faults, pytest.mark.broker]

BATCH_BYTES: Final = 1_000_000
"""Size of a batch in bytes: the largest that brokers accept by default."""

FAR_AND_COUNTED: Final = """
import json, threading, time
from twinlog.cluster.client import ClusterClient
from twinlog.lane.cold_starts import ColdStarts
asked, near, find = threading.local(), ClusterClient._connection_for, ColdStarts._find
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
ClusterClient._connection_for, ColdStarts._find = far, count
"""
"""Prelude of a lane for which each request takes a round trip. Each search writes its number of
partitions and of requests to a file.
"""


def looks_of(written: str) -> list[tuple[int, int]]:
    """Return the number of partitions and the number of requests of each search."""
    return [(count, requests) for count, requests in map(json.loads, written.splitlines())]


def looked_at(file: Path) -> int:
    """Return the number of searched partitions. A partition is counted once for each search."""
    return sum(count for count, _ in looks_of(file.read_text() if file.exists() else ""))


@pytest.mark.witness("starts that wait for late requests share their reads", case="40-0.05")
@pytest.mark.parametrize(
    ("partitions", "trip_s"),
    [(40, 0.05), pytest.param(1_000, 0.1, marks=pytest.mark.alone)],
)
def test_partitions_that_wait_for_a_killed_lane_are_checked_together(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, trip_s: float
) -> None:
    """The target stamps records with its own time, so after a lane was killed, all partitions must
    wait for late requests. Then the positions of all partitions must be searched together, with few
    requests for many partitions.
    """
    if partitions < 1_000:  # late requests are over after 3 s instead of 20 s
        monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", -7_000)
    stamps = {"message.timestamp.type": "LogAppendTime"}
    create_topic(rig.source, rig.topic, partitions=partitions)
    create_topic(rig.target, rig.remote, partitions=partitions, configs=stamps)
    one_each(rig, partitions)
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
        # All partitions are searched immediately and again after the wait. On a busy machine the
        # wait may already be over at the first search.
        eventually(lambda: looked_at(written) >= 2 * partitions, what="the end of the last look")
        mirror.stop()
    looks = looks_of(written.read_text()[before:])
    assert len(looks) <= 6, looks
    assert all(requests <= 20 + 2 * (count // 32 + 1) for count, requests in looks), looks


def one_each(rig: Rig, partitions: int) -> None:
    """Write an old record to each partition of the source topic."""
    old_ms = int(time.time() * 1000) - OLD
    old = [Outgoing(value=b"%d" % n, timestamp=old_ms, partition=n) for n in range(partitions)]
    produce(rig.source, rig.topic, old)


@pytest.mark.witness("an idle partition does not wait for late requests of a killed lane")
def test_idle_partitions_of_a_killed_lane_are_at_their_end_before_its_requests_are_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.lane.late_requests.USER_TIMEOUT_MS", 600_000)
    create_topic(rig.source, rig.topic, partitions=10)
    one_each(rig, 10)
    with rig.mirror() as mirror:
        mirror.eventually(lambda parts: are_copied(parts, 10))
        kill(mirror.leases.pids())
        mirror.eventually(lambda parts: not are_copied(parts, 10))
        mirror.eventually(lambda parts: are_copied(parts, 10))
        mirror.stop()


@pytest.mark.alone
def test_thousand_idle_partitions_of_a_killed_mirror_are_copied_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror and its lanes are killed. Each round trip takes 100 ms, also for the next driver.
    The next mirror must copy all partitions within 30 s, although the killed lanes count as alive
    for the first 10 s.
    """
    partitions = 1_000
    create_topic(rig.source, rig.topic, partitions=partitions)
    one_each(rig, partitions)
    with Driver(rig.config(), lanes=1) as driver:
        eventually(lambda: rig.remote in topic_names(rig.target), what="the remote topic")
        eventually(lambda: arrived(rig) == partitions, 120, what="the copy")
        lanes, began = driver.state.lanes, time.monotonic()
        driver.kill()
        kill(lanes)
    near = ClusterClient._connection_for

    def asking(client: ClusterClient, *at: Any) -> Any:
        time.sleep(0.1)  # the time of a round trip
        return near(client, *at)

    monkeypatch.setattr(ClusterClient, "_connection_for", asking)
    prelude = FAR_AND_COUNTED.format(trip_s=0.1, path=str(tmp_path / "looks"))
    with rig.mirror(prelude=prelude) as mirror:
        mirror.eventually(lambda parts: are_copied(parts, partitions), 120)
        took_s = time.monotonic() - began
        produce(rig.source, rig.topic, [Outgoing(b"k", b"fresh", partition=n) for n in range(10)])
        eventually(lambda: arrived(rig) == partitions + 10, what="fresh records of idle partitions")
        fresh_s = time.monotonic() - began
        mirror.stop()
    assert took_s <= 30, took_s
    assert fresh_s <= 30, fresh_s


@pytest.mark.alone
def test_thousand_idle_partitions_of_a_killed_lane_do_not_delay_a_busy_one(
    rig: Rig, tmp_path: Path
) -> None:
    """A lane with 1,000 idle partitions and a busy one is killed. Each round trip takes 100 ms, and
    the killed lane's requests may still arrive for 20 s. The pause of the busy partition must not
    grow with the number of idle ones.
    """
    busy, partitions = f"{rig.topic}-busy", 1_000
    create_topic(rig.source, busy)
    prelude = FAR_AND_COUNTED.format(trip_s=0.1, path=str(tmp_path / "looks"))
    old_ms = int(time.time() * 1000) - OLD
    old = [Outgoing(value=b"%d" % n, timestamp=old_ms, partition=n) for n in range(partitions)]
    keys = {f"{rig.flow}.topics": f"{rig.topic}.*"}
    with Load(rig.source, busy, per_second=50), rig.mirror(prelude=prelude, keys=keys) as mirror:
        mirror.eventually(lambda parts: are_copied(parts, 1))
        alone = killed_lane(rig, mirror, busy, 1)
        create_topic(rig.source, rig.topic, partitions=partitions)
        produce(rig.source, rig.topic, old)
        mirror.discover_topics()
        mirror.eventually(lambda parts: are_copied(parts, partitions + 1), 120)
        beside = killed_lane(rig, mirror, busy, partitions + 1)
        mirror.stop()
    assert beside.longest_pause_s <= alone.longest_pause_s + 1, (alone, beside)
    assert beside.until_all_s <= 30, (alone, beside)


class AfterKill(NamedTuple):
    """Durations after a lane was killed."""

    until_all_s: float
    """Seconds until all partitions were copied again."""
    longest_pause_s: float
    """Longest time in seconds during which the busy partition got no record."""


def killed_lane(rig: Rig, mirror: Mirror, busy: str, count: int) -> AfterKill:
    tp, over, pauses = TopicPartition(f"{rig.alias}.{busy}", 0), threading.Event(), [0.0]
    began = time.monotonic()

    def watch() -> None:
        end, since = -1, began
        with ClusterClient(settings_for(rig.target.bootstrap)) as client:
            while not over.wait(0.02):
                found, now = log_ends(client, [tp])[tp], time.monotonic()
                assert not isinstance(found, TwinlogError), found
                if found.end_offset != end:
                    pauses.append(now - since)
                    end, since = found.end_offset, now

    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch)
        try:
            (killed,) = mirror.leases.pids()
            os.kill(killed, signal.SIGKILL)
            mirror.eventually(lambda parts: not are_copied(parts, count))
            mirror.eventually(lambda parts: are_copied(parts, count), 120)
            took_s = time.monotonic() - began
        finally:
            over.set()
        watched.result()
    return AfterKill(took_s, max(pauses))


def are_copied(parts: Sequence[PartitionSnapshot], count: int) -> bool:
    """Return True if there are `count` partitions and each of them has found its position."""
    return len(parts) == count and all(one.state in {"AT_END", "COPYING"} for one in parts)


@pytest.mark.parametrize(
    ("behind_bytes", "trip_s", "most_requests"),
    [(64 << 20, 0.05, 25), pytest.param(1 << 30, 0.1, 100, marks=pytest.mark.alone)],
    ids=["64 MB", "1 GB"],
)
def test_a_search_behind_many_foreign_records_delays_no_other_partition(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    behind_bytes: int,
    trip_s: float,
    most_requests: int,
) -> None:
    """In one partition, up to 1 GB of foreign records follow this flow's last record. So with 100
    ms per round trip, the search for this record takes seconds. Other partitions must not wait for
    this search.
    """
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
    theirs = encode_batch([Record(0, rig.began_ms, b"f", bytes(BATCH_BYTES))], codec=Codec.NONE)
    for _ in range(behind_bytes // BATCH_BYTES):
        raw.send(rig.target_client, rig.there, theirs).expect_ok()
    written = tmp_path / "looks"
    prelude = FAR_AND_COUNTED.format(trip_s=trip_s, path=str(written))
    with rig.target_forgets_after(1000):
        rig.forgotten()
        with rig.mirror(prelude=prelude) as mirror:
            others = mirror.eventually(
                lambda parts: sum(one.state == "AT_END" for one in parts) == partitions - 1
            )
            began = time.monotonic()
            parts = mirror.eventually(
                lambda parts: {one.state for one in parts} == {"AT_END", "TAKEN_OVER"}
            )
            took_s = time.monotonic() - began
            mirror.stop()
    assert all(one.partition for one in others if one.state == "AT_END")
    assert [one.partition for one in parts if one.state == "TAKEN_OVER"] == [0]
    assert took_s < 20, "seconds, however much there is"
    looks = looks_of(written.read_text())
    searches = [requests for count, requests in looks if count == 1 and requests > 15]
    assert searches, "the search had looks of its own"
    assert max(searches) <= most_requests, looks
    assert all(requests <= 25 for count, requests in looks if count > 1), looks
