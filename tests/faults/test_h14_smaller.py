"""H14: a target with too few in-sync replicas, and a source with batches of old formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import eventually, read_all
from tests.support.records import message
from tests.support.rig import Rig
from tests.support.surgery import log_file
from tests.support.topics import alter_topic_configs
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

TWO = {"replication.factor": "2", "twinlog.state.topic.replication.factor": "3"}
UNDER = "TARGET_UNDER_MIN_ISR"
HURRY = {"t.producer.request.timeout.ms": "4000"}
"""How long the leader waits for missing replicas before it responds with an error."""


@pytest.fixture
def wide(source_cluster: LocalCluster, target3: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    with Rig(source_cluster, target3, tmp_path) as rig:
        rig.create()
        yield rig


@pytest.mark.witness("H14: the copy waits while too few replicas are in sync")
def test_target_with_too_few_replicas_is_waited_for(
    wide: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)
    wide.put(range(10))
    with wide.mirror(keys=TWO | HURRY) as mirror:
        wide.copied(10)
        alter_topic_configs(wide.target, wide.remote, {"min.insync.replicas": "2"})
        part = wide.target_client.metadata([wide.remote]).topics[wide.remote].partitions[0]
        (follower,) = set(part.replicas) - {part.leader}
        wide.target.kill(follower)
        try:
            wide.put(range(10, 20))
            (told,) = mirror.eventually(
                lambda parts: (parts[0].state, parts[0].code) == ("RETRYING", UNDER)
            )
            assert told.message.startswith(f"{wide.remote}")
        finally:
            wide.target.restart(follower)
        wide.copied(20)
        mirror.eventually(lambda parts: not parts[0].code)
        mirror.stop()
    wide.same()
    wide.offsets_are_exact()


@pytest.mark.witness("H14: batches of the old message formats are copied")
def test_source_with_batches_of_the_old_formats(rig: Rig) -> None:
    """No supported broker writes the formats 0 and 1 any more, but a source may still have such
    batches on disk. The mirror copies them.
    """
    rig.create()
    now = rig.began_ms
    old = [message(magic=0, offset=n, key=b"k%d" % n, value=b"u%d" % n) for n in range(5)]
    old += [
        message(magic=1, offset=n, key=b"k%d" % n, value=b"u%d" % n, timestamp=now + n)
        for n in range(5, 10)
    ]
    # a broker that restarts deletes a log as stray unless the log has its topic ID on disk
    folder = log_file(rig.source, rig.here).parent
    eventually((folder / "partition.metadata").exists)
    eventually(lambda: log_file(rig.source, rig.here).exists())
    rig.source.kill(1)
    log_file(rig.source, rig.here).write_bytes(b"".join(old))
    rig.source.restart(1)
    eventually(lambda: len(read_all(rig.source, rig.topic)) == 10)
    rig.copy_once()
    assert rig.numbers() == list(range(10))
    assert [r.timestamp for r in rig.on_target()][5:] == [now + n for n in range(5, 10)]
    rig.copy_once()
