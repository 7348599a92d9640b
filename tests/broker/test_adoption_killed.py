"""`kill -9` in the middle of taking over: the same command again loses and repeats nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from tests.support.client import produce
from tests.support.eventually import eventually
from tests.support.left import STORAGE_PARTITIONS, Left, outgoing, values
from tests.support.topics import create_topic
from twinlog.control.adopt import adoption
from twinlog.sandbox import LocalCluster

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
    """And is killed before it notes all of it."""
    for partition in PARTITIONS:
        produce(left.target, left.remote, outgoing(numbers, partition))
        left.note(noted, partition=partition)


def is_killed(left: Left, point: str) -> None:
    command = [sys.executable, "-m", "tests.broker.killed_adoption", str(left.file), point]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", ["some rows", "copying"])
def test_the_same_command_again_finishes_what_was_begun(left: Left, point: str) -> None:
    for partition in PARTITIONS:
        produce(left.source, left.topic, outgoing(range(60), partition))
    mirror_maker_copies(left, range(20), noted=11)
    is_killed(left, point)
    assert [one.code for one in left.adopt_all()] == [""] * len(PARTITIONS)
    for partition in PARTITIONS:
        assert left.values(partition) == values(range(60))


def test_process_that_was_frozen_while_another_took_over_begins_where_that_one_is(
    left: Left,
) -> None:
    for partition in PARTITIONS:
        produce(left.source, left.topic, outgoing(range(60), partition))
    mirror_maker_copies(left, range(20), noted=11)
    command = [sys.executable, "-m", "tests.broker.killed_adoption", str(left.file), "looked"]
    with subprocess.Popen(command, cwd=ROOT) as frozen:
        try:
            eventually(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED)
            assert [one.code for one in left.adopt_all()] == [""] * len(PARTITIONS)
            frozen.send_signal(signal.SIGCONT)
            for partition in PARTITIONS:
                produce(left.source, left.topic, outgoing(range(60, 80), partition))
            for partition in PARTITIONS:
                eventually(lambda n=partition: len(left.values(n)) >= 80)  # type: ignore[misc]
        finally:
            frozen.kill()
    for partition in PARTITIONS:
        assert left.values(partition) == values(range(80))
