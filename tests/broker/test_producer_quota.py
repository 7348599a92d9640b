"""`twinlog.rpo.enforce=quota` on brokers. Producers are throttled, and no longer throttled however
the mirror ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import ThrottleEvent

from tests.support.client import eventually, producer
from tests.support.mirror import Mirror
from tests.support.mirror_process import Driver
from tests.support.settings import settings_of
from tests.support.topics import create_topic, delete_topic
from twinlog.cli.main import run
from twinlog.client.producer_hold import ProducerHold, RemovalResult
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.quotas import producer_quota, set_producer_quota
from twinlog.control.watch.snapshot import FlowSnapshot
from twinlog.mirror.names.naming import STATE_TOPIC
from twinlog.sandbox import LocalCluster
from twinlog.sandbox.brokers import QUICK_JVM

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("producer-quota")]

LIMIT = 400_000
"""Limit of the flow in bytes per second."""


DAY_MS = 86_400_000


class Writer:
    """A producer that writes faster than the flow's limit until its block ends."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.throttled = threading.Event()
        self._topic = topic
        self._client = producer(cluster, config={"throttle_cb": self._told})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _told(self, event: ThrottleEvent) -> None:
        if event.throttle_time > 0:
            self.throttled.set()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            with contextlib.suppress(BufferError):  # a throttled producer's buffer is full
                self._client.produce(self._topic, b"." * (LIMIT // 8))
            self._client.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.purge()


class Flow:
    """A flow that is slower than its producers, and the default producer quota of its source."""

    def __init__(self, source: LocalCluster, target: LocalCluster, folder: Path) -> None:
        mark = f"{time.time_ns():x}"[-8:]
        self.source, self.target = source, target
        self.alias, self.topic = f"s{mark}", f"orders-{mark}"
        self.file = folder / "mm2.properties"
        self.lines = (
            f"clusters = {self.alias}, t\n"
            f"{self.alias}.bootstrap.servers = {source.bootstrap}\n"
            f"t.bootstrap.servers = {target.bootstrap}\n"
            f"{self.alias}->t.enabled = true\ntopics = {self.topic}\nreplication.factor = 1\n"
            f"twinlog.rpo.seconds = 2\ntwinlog.max.bytes.per.second = {LIMIT}\n"
            "emit.heartbeats.enabled = false\n"
        )
        self.write("twinlog.rpo.enforce = quota\n")
        create_topic(source, self.topic)
        self.client = ClusterClient(settings_of(source))

    def write(self, more: str) -> None:
        self.file.write_text(self.lines + more)

    @property
    def name(self) -> str:
        return f"{self.alias}->t"

    def quota(self) -> float | None:
        return producer_quota(self.client)

    def set(self, rate: float | None) -> None:
        """Set the quota as another client would."""
        set_producer_quota(self.client, rate)
        self.shows(rate)

    def shows(self, rate: float | None) -> None:
        """Wait until the brokers report this quota. The controller responds before the brokers have
        applied it.
        """
        eventually(lambda: self.quota() == rate, what=f"a quota of {rate}")

    def writer(self) -> Writer:
        return Writer(self.source, self.topic)


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    """A separate cluster, because the default quota throttles the producers of all tests."""
    with LocalCluster("quota-source", jvm_flags=QUICK_JVM) as started:
        yield started


@pytest.fixture
def flow(source: LocalCluster, target_cluster: LocalCluster, tmp_path: Path) -> Iterator[Flow]:
    made = Flow(source, target_cluster, tmp_path)
    try:
        yield made
    finally:
        set_producer_quota(made.client, None)
        made.client.close()


def state(mirror: Mirror) -> FlowSnapshot:
    (found,) = mirror.snapshots
    return found


def test_producers_are_held_back_until_the_flow_has_caught_up(
    flow: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    with Mirror(flow.file) as mirror:
        with flow.writer() as writer:
            eventually(flow.quota, what="the quota")
            eventually(lambda: state(mirror).held_rate is not None, what="the snapshot")
            held = state(mirror).held_rate
            assert held is not None
            assert held <= LIMIT
            eventually(writer.throttled.is_set, what="a producer's throttle time")
        eventually(lambda: flow.quota() is None, what="the flow has caught up")
        eventually(lambda: state(mirror).held_rate is None)
        with flow.writer():
            eventually(flow.quota)
        mirror.stop()
    flow.shows(None)  # removed, because the mirror was shut down cleanly
    lines = [one.getMessage() for one in caplog.records]
    assert any("PRODUCERS_HELD" in line and flow.alias in line for line in lines)
    assert any("limit for producers has ended" in line for line in lines)


@pytest.mark.witness("a quota that a killed mirror left is removed")
def test_a_quota_of_a_killed_mirror_is_removed_by_the_next_one(flow: Flow) -> None:
    with flow.writer(), Driver(flow.file) as driver:
        eventually(flow.quota, what="the quota")
        driver.kill()
    eventually(flow.quota, what="what brokers keep")
    flow.write("")
    with Mirror(flow.file) as mirror:
        eventually(lambda: flow.quota() is None, what="the next one's first look")
        mirror.stop()


def test_a_quota_of_a_killed_mirror_is_removed_by_a_command(
    flow: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    with Mirror(flow.file, once=True) as mirror:
        mirror.wait()  # so that the state topic exists
    with ClusterClient(settings_of(flow.target)) as target:
        hold = ProducerHold(flow.name, flow.client, target)
        assert hold.remove_quota_and_row() is RemovalResult.NOTHING
        assert hold.set_quota(50_000) is None
        flow.shows(50_000)
        assert hold.set_quota(40_000) is None
        flow.shows(40_000)
    assert run(["flow", "unthrottle", str(flow.file), "--dry-run"]) == 0
    assert "would be removed" in capsys.readouterr().out
    flow.shows(40_000)
    assert run(["flow", "unthrottle", str(flow.file)]) == 0
    assert "the quota was removed" in capsys.readouterr().out
    flow.shows(None)
    assert run(["flow", "unthrottle", str(flow.file), "--format", "json"]) == 0
    assert '"bytes_per_second": null' in capsys.readouterr().out


def test_a_quota_of_another_client_is_not_changed(flow: Flow) -> None:
    flow.set(1_000_000)
    with Mirror(flow.file, once=True) as mirror:
        mirror.wait()
    with ClusterClient(settings_of(flow.target)) as target:
        hold = ProducerHold(flow.name, flow.client, target)
        assert hold.set_quota(50_000) == 1_000_000, "theirs"
        assert flow.quota() == 1_000_000
        flow.set(None)
        assert hold.set_quota(50_000) is None
        flow.shows(50_000)
        flow.set(2_000_000)  # another client changes the flow's quota
        assert hold.remove_quota_and_row() is RemovalResult.CHANGED
        assert flow.quota() == 2_000_000
        assert hold.remove_quota_and_row() is RemovalResult.NOTHING


def copy_history(flow: Flow) -> set[float | None]:
    """Write records with timestamps of a day ago, whose copy takes seconds. Return the quotas that
    the source had during the copy.
    """
    client, then_ms = producer(flow.source), int(time.time() * 1000) - DAY_MS
    for _ in range(4 * 8):
        client.produce(flow.topic, b"." * (LIMIT // 8), timestamp=then_ms)
        client.poll(0)
    client.flush()
    seen: list[float | None] = []
    with Mirror(flow.file) as mirror:

        def is_copied() -> bool:
            seen.append(flow.quota())
            return bool(mirror.snapshots) and any(
                one.records >= 4 * 8 for one in state(mirror).partitions
            )

        eventually(is_copied)
        mirror.stop()
    return {*seen}


def test_copying_old_records_throttles_no_producer(flow: Flow) -> None:
    # Repeat the copy: if the machine delays it by a second, the backlog may justify a quota.
    seen = [copy_history(flow)]
    while seen[-1] != {None} and len(seen) < 4:
        seen.append(copy_history(flow))
    assert seen[-1] == {None}, seen


def test_a_quota_that_a_lagging_broker_does_not_show_yet_is_removed(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Mirror(flow.file, once=True) as mirror:
        mirror.wait()
    with ClusterClient(settings_of(flow.target)) as target:
        assert ProducerHold(flow.name, flow.client, target).set_quota(50_000) is None
        with monkeypatch.context() as lagging:
            lagging.setattr("twinlog.client.producer_hold.producer_quota", lambda _: None)
            assert (
                ProducerHold(flow.name, flow.client, target).remove_quota_and_row()
                is RemovalResult.REMOVED
            )
    flow.shows(None)


def test_an_outage_of_the_target_is_none_of_the_source(
    source: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster("quota-target", jvm_flags=QUICK_JVM) as target:
        flow = Flow(source, target, tmp_path)
        try:
            with Mirror(flow.file) as mirror, flow.writer():
                eventually(flow.quota, what="the quota")
                (node,) = target.broker_pids
                target.freeze(node)
                eventually(lambda: flow.quota() is None, what="the end of the quota")
                eventually(lambda: state(mirror).held_rate is None)
                target.thaw(node)
                eventually(flow.quota, what="the quota of the next generation")
                mirror.stop()
            flow.shows(None)
            with ClusterClient(settings_of(target)) as client:
                hold = ProducerHold(flow.name, flow.client, client)
                assert hold.set_quota(50_000) is None
                flow.shows(50_000)
                delete_topic(target, STATE_TOPIC)
                assert hold.set_quota(50_000) is None, "it is ours still"
                assert hold.remove_quota_and_row() is RemovalResult.REMOVED
            flow.shows(None)
        finally:
            set_producer_quota(flow.client, None)
            flow.client.close()
    assert any("limit for producers has ended" in one.getMessage() for one in caplog.records)
