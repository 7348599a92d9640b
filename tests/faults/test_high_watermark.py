"""Records above the high watermark of a topic to which other clients may write. A follower of the
target is frozen, so the leader's log has these records, but consumers cannot read them.
`unit/mirror/test_our_end.py` tests the same in memory.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.rig import Rig, kill, send_signals
from tests.support.topics import alter_topic_configs
from twinlog.cluster.logs.offsets import LATEST, list_offsets
from twinlog.cluster.topics.configs import TOPIC, WITH_SOURCE, _request
from twinlog.control.watch.snapshot import PartitionSnapshot
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.faults, pytest.mark.broker]

TWO = {
    "replication.factor": "2",
    "twinlog.state.topic.replication.factor": "3",
    # how long the leader waits for the follower before it responds with an error
    "t.producer.request.timeout.ms": "4000",
}
UNDER = "TARGET_UNDER_MIN_ISR"


@pytest.fixture
def two(
    source_cluster: LocalCluster, fault_source: LocalCluster, target3: LocalCluster, tmp_path: Path
) -> Iterator[tuple[Rig, Rig]]:
    """Two flows from different sources into one topic. Each has copied ten records."""
    (tmp_path / "other").mkdir()
    with (
        Rig(source_cluster, target3, tmp_path) as one,
        Rig(fault_source, target3, tmp_path / "other") as other,
    ):
        other.topic = one.topic
        for rig, numbers in ((one, range(10)), (other, range(1000, 1010))):
            rig.prefixed = False
            rig.create()
            rig.put(numbers)
        yield one, other


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlog.control.lanes.partitions.RETRY_FAILED_S", 1.0)


def high_watermark(rig: Rig) -> int:
    found = list_offsets(rig.target_client, [rig.there], LATEST)[rig.there]
    assert not isinstance(found, TwinlogError), found
    return found.offset


@contextmanager
def frozen_follower(rig: Rig) -> Iterator[None]:
    """Freeze a follower, so that the high watermark no longer moves.

    The high watermark must not move even if the controller removes the follower from the in-sync
    replicas, so `min.insync.replicas` is set to 2. The leader must learn this setting before the
    removal: if both arrive together, it handles the removal first (BrokerMetadataPublisher), and
    the high watermark moves.
    """
    alter_topic_configs(rig.target, rig.remote, {"min.insync.replicas": "2"})
    part = rig.target_client.metadata([rig.remote]).topics[rig.remote].partitions[0]
    asked = _request(TOPIC, [rig.remote], ["min.insync.replicas"])

    def is_known() -> bool:
        (found,) = rig.target_client.attempt(part.leader, asked, minimum=WITH_SOURCE).results
        return [one.value for one in found.configs] == ["2"]

    eventually(is_known)
    (follower,) = {*part.replicas} - {part.leader}
    pid = rig.target.broker_pids[follower]
    send_signals([pid], signal.SIGSTOP)
    try:
        yield
    finally:
        send_signals([pid], signal.SIGCONT)


def are_copied(parts: list[PartitionSnapshot]) -> bool:
    return [(one.state, one.code, one.lag) for one in parts] == [("AT_END", "", 0)]


def all_are_there(one: Rig, count: int) -> None:
    """Check that all records of both sources are in the topic once and in order."""
    numbers = one.numbers()
    assert [number for number in numbers if number < 1000] == list(range(count))
    assert [number for number in numbers if number >= 1000] == list(range(1000, 1020))


def test_own_records_above_the_high_watermark_are_waited_for(two: tuple[Rig, Rig]) -> None:
    one, other = two
    with one.mirror(keys=TWO) as first, other.mirror(keys=TWO) as second:
        one.copied(20)
        for mirror in (first, second):
            mirror.eventually(are_copied)
        with frozen_follower(one):
            one.put(range(10, 20))
            other.put(range(1010, 1020))
            one.copied(40)  # the leader's log has all of them
            assert high_watermark(one) == 20
            for mirror in (first, second):
                kill(mirror.leases.pids())
            for mirror in (first, second):
                (told,) = mirror.eventually(lambda parts: parts[0].code == UNDER)
                assert "20 records are not on enough replicas" in told.message, "not a refused one"
            assert one.end() == 40
        for mirror in (first, second):
            mirror.eventually(are_copied)
            mirror.stop()
    all_are_there(one, 20)


def test_foreign_records_above_the_high_watermark_delay_no_start(two: tuple[Rig, Rig]) -> None:
    one, other = two
    with one.mirror(keys=TWO) as first, other.mirror(keys=TWO) as second:
        one.copied(20)
        for mirror in (first, second):
            mirror.eventually(are_copied)
        with frozen_follower(one):
            other.put(range(1010, 1020))
            one.copied(30)
            before = first.leases.pids()
            kill(before)
            first.eventually(lambda parts: parts[0].state != "AT_END")
            first.eventually(are_copied)
            assert high_watermark(one) == 20
            one.put(range(10, 20))
        for mirror in (first, second):
            mirror.eventually(are_copied)
        one.copied(40)
        for mirror in (first, second):
            mirror.stop()
    all_are_there(one, 20)
