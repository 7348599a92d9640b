"""An adoption is killed with `kill -9`. Running the same command again loses no record and copies
none twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from tests.support.client import await_markers, produce, producer
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.left_by_mirror_maker import STORAGE_PARTITIONS, Left, outgoing, values
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.cluster.client import ClusterClient
from twinlog.control.adopt import adoption
from twinlog.mirror.names.naming import DefaultReplicationPolicy
from twinlog.mirror.start.tail_check import TAIL_RECORDS
from twinlog.model import Flow, TopicPartition
from twinlog.sandbox import LocalCluster
from twinlog.survey.exact_map import ExactMap

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PARTITIONS = range(3)


@pytest.fixture(autouse=True)
def no_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "QUIET_S", 0.2)


@pytest.fixture
def left(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Left:
    alias = f"A{uuid.uuid4().hex[:6]}"
    made = Left(source_cluster, target_cluster, fresh_topic, tmp_path / "mm2.properties", alias)
    made.write_file()
    create_topic(source_cluster, fresh_topic, len(PARTITIONS))
    create_topic(target_cluster, made.remote, len(PARTITIONS))
    create_topic(target_cluster, made.storage, STORAGE_PARTITIONS)
    return made


def mirror_maker_copies(left: Left, numbers: range, noted: int) -> None:
    """Simulate a MirrorMaker 2 that copies records and is killed before it has stored its last
    positions.
    """
    for partition in PARTITIONS:
        produce(left.target, left.remote, outgoing(numbers, partition))
        left.note(noted, partition=partition)


def is_killed(left: Left, point: str) -> None:
    command = [sys.executable, "-m", "tests.support.killed_adoption", str(left.file), point]
    assert (
        subprocess.run(command, cwd=ROOT, check=False, timeout=PATIENCE_S).returncode
        == -signal.SIGKILL
    )


@pytest.mark.witness("after a killed take-over the same command completes it", case="copying")
@pytest.mark.parametrize("point", ["some rows", "copying"])
def test_the_same_command_again_finishes_what_was_begun(left: Left, point: str) -> None:
    for partition in PARTITIONS:
        produce(left.source, left.topic, outgoing(range(60), partition))
    mirror_maker_copies(left, range(20), noted=11)
    is_killed(left, point)
    assert [one.code for one in left.adopt_all()] == [""] * len(PARTITIONS)
    for partition in PARTITIONS:
        assert left.values(partition) == values(range(60))


def put_transactions(left: Left, numbers: range) -> None:
    """Write each record in its own transaction, so that a marker follows it."""
    client = producer(left.source, config={"transactional.id": f"test-{left.topic}"})
    client.init_transactions(30)
    for one in outgoing(numbers):
        client.begin_transaction()
        client.produce(left.topic, one.value, one.key, partition=0, timestamp=one.timestamp or 0)
        client.commit_transaction(30)
    await_markers(left.source, f"test-{left.topic}")


def test_process_frozen_during_a_takeover_removes_no_row_of_the_new_leader(
    left: Left,
) -> None:
    # more records than a start compares, so that no start could correct a wrong row
    end = 20 + TAIL_RECORDS + 50
    for partition in PARTITIONS:
        produce(left.source, left.topic, outgoing(range(20), partition))
    put_transactions(left, range(20, end))
    mirror_maker_copies(left, range(20), noted=11)
    command = [sys.executable, "-m", "tests.support.killed_adoption", str(left.file), "looked"]
    with subprocess.Popen(command, cwd=ROOT) as frozen:
        try:
            eventually(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED)
            assert [one.code for one in left.adopt_all()] == [""] * len(PARTITIONS)
            frozen.send_signal(signal.SIGCONT)
            put_transactions(left, range(end, end + 5))
            eventually(lambda: len(left.values()) >= end + 5)
        finally:
            frozen.kill()
    assert left.values() == values(range(end + 5))
    here = TopicPartition(left.remote, 0)
    with ClusterClient(settings_for(left.target.bootstrap)) as client:
        exact = ExactMap(client, DefaultReplicationPolicy(), Flow(left.alias, "B"))
        for number in range(20, end + 5, 10):
            found = exact.downstream({here: number + (number - 20)})[here]
            assert (found.offset, found.is_exact) == (number, True)
