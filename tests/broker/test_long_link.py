"""A source that is far away is read in sections: all records once and in order, with little memory,
also while the target is slow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.client import Outgoing, eventually, produce
from tests.support.forwarder import Forwarder
from tests.support.rig import Rig
from tests.support.topics import create_topic, end_offsets
from twinlog.sandbox import QUICK_JVM, LocalCluster
from twinlog.sandbox.layout import CONTROLLER, HOST, Listeners, free_ports

pytestmark = pytest.mark.broker

MB: Final = 1 << 20
DELAY_S: Final = 0.02
MEMORY: Final = 8 * MB
RECORD: Final = 20_000
RECORDS: Final = 2_000
"""40 MB: five times a lane's memory."""

FETCH: Final = 512 * 1024
RESPONSES: Final = 16 * MB
"""Responses that are being received or are acknowledged in part, and what Python keeps of them."""

NOTES_SECTIONS: Final = """
from twinlog.lane.sides.sections import SectionedRead
learn = SectionedRead.learn
def noting(self, *args):
    learn(self, *args)
    with open({notes!r}, "a") as out:
        out.write("s")
SectionedRead.learn = noting
"""


@pytest.fixture
def far() -> Iterator[LocalCluster]:
    """A broker that names a port behind which it is far away."""
    plain, behind, controller, port = free_ports(4)
    cluster = LocalCluster(
        "far",
        jvm_flags=QUICK_JVM,
        config={"advertised.listeners": f"PLAINTEXT://{HOST}:{plain},FAR://{HOST}:{port}"},
    )
    cluster.listeners = Listeners(
        names=("PLAINTEXT", "FAR"),
        protocols={"PLAINTEXT": "PLAINTEXT", "FAR": "PLAINTEXT", CONTROLLER: "PLAINTEXT"},
    )
    cluster.ports = {1: {"PLAINTEXT": plain, "FAR": behind, CONTROLLER: controller}}
    link = Forwarder(port, delay_s=DELAY_S)
    with cluster, link.open_to(f"{HOST}:{cluster.ports[1]['FAR']}"):
        yield cluster


def test_far_backlog_is_copied_in_sections_within_the_memory(
    far: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    notes = tmp_path / "sections"
    with Rig(far, target_cluster, tmp_path) as rig:
        create_topic(far, rig.topic)
        produce(far, rig.topic, [Outgoing(value=b"first", partition=0)])
        keys = {
            f"{rig.alias}.bootstrap.servers": far.bootstrap_for("FAR"),
            f"{rig.alias}.consumer.max.partition.fetch.bytes": str(FETCH),
            "twinlog.lane.memory.bytes": str(MEMORY),
        }

        def arrived() -> int:
            return sum(end_offsets(target_cluster, rig.remote).values())

        with rig.mirror(keys=keys, prelude=NOTES_SECTIONS.format(notes=str(notes))) as mirror:
            mirror.eventually(lambda parts: sum(p.records for p in parts) == 1)
            (pid,) = mirror.leases.pids()
            lane = psutil.Process(pid)
            before = most = lane.memory_info().rss
            target_cluster.freeze(1)
            try:
                value = bytes(range(250)) * (RECORD // 250)
                backlog = [Outgoing(value=value + b"%d" % n, partition=0) for n in range(RECORDS)]
                produce(far, rig.topic, backlog)
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    most = max(most, lane.memory_info().rss)
                    time.sleep(0.05)
            finally:
                target_cluster.thaw(1)
            assert most - before < MEMORY + RESPONSES, f"{(most - before) / MB:.0f} MB more"

            def all_there() -> bool:
                nonlocal most
                most = max(most, lane.memory_info().rss)
                return arrived() == RECORDS + 1

            eventually(all_there, what="the whole backlog")
            assert most - before < MEMORY + RESPONSES, f"{(most - before) / MB:.0f} MB more"
            mirror.stop()
        rig.same()
        rig.offsets_are_exact()
    read = len(notes.read_text()) if notes.exists() else 0
    assert read > RECORDS * RECORD / FETCH / 2, "most of it was read in sections"
