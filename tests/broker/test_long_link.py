"""A distant source is read in sections. All records arrive once and in order, with little memory,
also while the target is slow.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.client import Outgoing, await_markers, eventually, produce, producer
from tests.support.eventually import PATIENCE_S
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
"""Number of records, 40 MB in total: five times a lane's memory."""

FETCH: Final = 512 * 1024
RESPONSES: Final = 16 * MB
"""Bytes for responses that are being received or partly acknowledged, and for Python's overhead."""

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
    """A broker with an additional advertised port, whose connections have a delay."""
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


SECTION: Final = 32 * 1024
CHUNKS: Final = 1_000
"""Number of batches of one to four records, 4 MB in total: more than a hundred sections."""

END_SHARES: Final = (0.3, 0.3, 0.3, 0.01)
"""For each transactional producer, the probability that a batch ends its transaction."""

NOTES_MARKERS: Final = """
from twinlog.mirror.copy.intake import RolledBack
skip = RolledBack.skip
def noting_markers(self, header, batch):
    found = skip(self, header, batch)
    if found and header.is_control:
        with open({markers!r}, "a") as out:
            out.write(str(header.base_offset) + "\\n")
    return found
RolledBack.skip = noting_markers
"""


def write_transactions(cluster: LocalCluster, topic: str, chance: random.Random) -> list[bytes]:
    """Write interleaved transactions, about half of them aborted, and records outside of
    transactions.

    Return the values of all records that are not aborted.
    """
    names = [f"test-{uuid.uuid4()}" for _ in END_SHARES]
    clients = [producer(cluster, linger_ms=0, config={"transactional.id": one}) for one in names]
    clients.append(producer(cluster, linger_ms=0, codec="lz4"))
    for client in clients[:-1]:
        client.init_transactions(PATIENCE_S)
    written: dict[int, list[bytes]] = {}
    kept: list[bytes] = []

    def end(which: int) -> None:
        values = written.pop(which)
        if chance.random() < 0.5:
            clients[which].abort_transaction(PATIENCE_S)
        else:
            clients[which].commit_transaction(PATIENCE_S)
            kept.extend(values)

    for chunk in range(CHUNKS):
        which = chance.randrange(len(clients))
        is_transactional = which < len(names)
        if is_transactional and which not in written:
            clients[which].begin_transaction()
            written[which] = []
        values = [
            b"%d-%d " % (chunk, number) + chance.randbytes(chance.choice((100, 1_000, 3_000)))
            for number in range(chance.randint(1, 4))
        ]
        for value in values:
            clients[which].produce(topic, value, partition=0)
        assert not clients[which].flush(PATIENCE_S)
        (written[which] if is_transactional else kept).extend(values)
        if is_transactional and chance.random() < END_SHARES[which]:
            end(which)
    for which in list(written):
        end(which)
    for name in names:
        await_markers(cluster, name)
    return kept


def test_transactions_of_a_far_backlog_are_exact_in_sections(
    far: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> None:
    """A backlog is read in sections (`lane.sides.sections`), which begin within transactions. So
    several sections read the same transaction markers. Nevertheless exactly the committed records
    must arrive.
    """
    notes, markers = tmp_path / "sections", tmp_path / "markers"
    with Rig(far, target_cluster, tmp_path) as rig:
        create_topic(far, rig.topic)
        kept = write_transactions(far, rig.topic, random.Random(1))
        keys = {
            f"{rig.alias}.bootstrap.servers": far.bootstrap_for("FAR"),
            f"{rig.alias}.consumer.isolation.level": "read_committed",
            f"{rig.alias}.consumer.max.partition.fetch.bytes": str(SECTION),
        }
        preludes = NOTES_SECTIONS.format(notes=str(notes))
        preludes += NOTES_MARKERS.format(markers=str(markers))
        rig.copy_once(keys, prelude=preludes)
        assert sorted(one.value or b"" for one in rig.on_target()) == sorted(kept)
        rig.same()
        rig.offsets_are_exact()
    assert len(notes.read_text()) > 50, "most of it was read in sections"
    repeated = [one for one, n in Counter(markers.read_text().split()).items() if n > 1]
    assert len(repeated) > 3, "sections repeated markers of aborted transactions"
