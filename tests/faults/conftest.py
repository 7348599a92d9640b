"""A source and a target broker for the fault tests. They expire producer IDs and clean their logs
immediately.

A test may restart both brokers, and the fixture restores them afterwards.
`TWINLOG_FAULT_VERSIONS=2.8.2:3.4.1` runs the tests with other versions (source:target); this is the
oldest pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.clusters import LENT
from tests.support.eventually import PATIENCE_S
from tests.support.kafka_versions import FAULT_SOURCE, FAULT_TARGET, cluster_of
from tests.support.rig import Rig
from twinlog.sandbox import LocalCluster

CONFIG: Final = {
    # by default a broker checks only every 10 minutes which producer IDs have expired
    "producer.id.expiration.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "250",
    "log.cleaner.threads": "1",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.min.session.timeout.ms": "1000",
}
SOON_BACK: Final = {"broker.session.timeout.ms": "2500", "broker.heartbeat.interval.ms": "300"}
"""Config with which a killed broker can restart as soon as its session has expired. It is for
sources only: tests freeze targets for longer, and the controller must not fence them.
"""
HEAP_MB: Final = 256


@pytest.fixture
def fault_source() -> LocalCluster:
    """The source broker. Its cleaner compacts within a second."""
    return LENT.lend(
        "fault_source",
        lambda: cluster_of(
            "fault-source", FAULT_SOURCE, config=CONFIG | SOON_BACK, heap_mb=HEAP_MB
        ),
    )


@pytest.fixture
def fault_target() -> LocalCluster:
    """The target broker. It expires a producer ID within half a second if the ID's records are
    older than a day.
    """
    return LENT.lend(
        "fault_target",
        lambda: cluster_of("fault-target", FAULT_TARGET, config=CONFIG, heap_mb=HEAP_MB),
    )


@pytest.fixture
def rig(fault_source: LocalCluster, fault_target: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    """A flow between the two brokers, and a topic name for the test."""
    with Rig(fault_source, fault_target, tmp_path) as made:
        yield made


@pytest.fixture
def patient_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not give up lanes that a test freezes, however long they are frozen. The
    driver does not give up dead lanes either, and the next lane waits equally long for late
    requests.
    """
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", int(PATIENCE_S * 1000))
