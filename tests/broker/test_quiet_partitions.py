"""A lane with a thousand idle partitions costs little, because brokers remember its fetch session
(KIP-227).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.support.client import Outgoing, produce
from tests.support.mirror import Mirror
from tests.support.topics import create_topic, delete_topic, end_offsets
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.broker]

PARTITIONS = 1000
QUIET_S = 4.0
NOTED = """
import twinlog.wire.fetch as f
note = open({path!r}, "w", buffering=1)
request, parse = f.FetchSession.request, f.FetchSession.parse
def noted_request(self, **more):
    parts = request(self, **more)
    print("out", len(self), sum(map(len, parts)), file=note)
    return parts
def noted_parse(self, view):
    print("in", len(self), len(view), file=note)
    return parse(self, view)
f.FetchSession.request, f.FetchSession.parse = noted_request, noted_parse
"""
"""Prelude of a lane that writes the size of every fetch to a file."""


class Fetch(NamedTuple):
    """One line of the file: a fetch request or its response."""

    direction: str
    partitions: int
    size: int


@pytest.fixture
def wide(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str
) -> Iterator[tuple[str, str]]:
    """A topic with a thousand partitions, and the source alias under which it is mirrored."""
    alias = f"A{uuid.uuid4().hex[:8]}"
    create_topic(source_cluster, fresh_topic, PARTITIONS)
    yield fresh_topic, alias
    delete_topic(source_cluster, fresh_topic)
    delete_topic(target_cluster, f"{alias}.{fresh_topic}")


def test_a_thousand_quiet_partitions(
    wide: tuple[str, str],
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    tmp_path: Path,
) -> None:
    topic, alias = wide
    config, notes = tmp_path / "mm2.properties", tmp_path / "fetches"
    config.write_text(
        f"clusters = {alias}, B\n{alias}.bootstrap.servers = {source_cluster.bootstrap}\n"
        f"B.bootstrap.servers = {target_cluster.bootstrap}\n"
        f"{alias}->B.enabled = true\ntopics = {topic}\nreplication.factor = 1\n"
    )

    def fetches() -> list[Fetch]:
        lines = [line.split() for line in notes.read_text().splitlines()]
        return [Fetch(direction, int(n), int(size)) for direction, n, size in lines]

    mirror = Mirror(config, lanes=1)
    mirror.leases.prelude = NOTED.format(path=str(notes))
    with mirror:
        mirror.eventually(lambda parts: sum(p.state == "AT_END" for p in parts) == PARTITIONS)
        time.sleep(1.5)  # brokers respond early to fetches for a moment after a start
        (lane,) = (psutil.Process(pid) for pid in mirror.leases.pids())
        begun, used = len(fetches()), sum(lane.cpu_times()[:2])
        time.sleep(QUIET_S)  # fetches and CPU time are measured in this time
        used = sum(lane.cpu_times()[:2]) - used
        quiet = fetches()[begun:]
        # the lane does fetch: one record of one partition is copied, and only this partition is in
        # the request
        produce(source_cluster, topic, [Outgoing(value=b"x", partition=777)])
        mirror.eventually(lambda parts: sum(p.records for p in parts) == 1)
        loud = fetches()[begun + len(quiet) :]
        mirror.stop()
    assert {one.partitions for one in quiet} == {PARTITIONS}
    # on a busy machine, the first fetches contain the partitions in several steps
    named = sum(one.size for one in fetches()[:begun] if one.direction == "out")
    assert named > PARTITIONS * 30, "the first ones name them all"
    assert len(quiet) <= 2 * QUIET_S * 3, "a fetch waits at the broker for half a second"
    assert max(one.size for one in quiet) < 100, "a quiet one names none, and neither its answer"
    assert max(one.size for one in loud) < 400
    assert used < 0.1 * QUIET_S, f"{used:.2f} s of CPU in {QUIET_S:.0f} s"
    assert end_offsets(target_cluster, f"{alias}.{topic}")[777] == 1
