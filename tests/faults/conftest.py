"""A pair of brokers for the fault tests, which expire producer IDs and clean their logs
immediately.

Both may be restarted by a test, and are back before it ends. Their versions may be others:
`TWINLOG_FAULT_VERSIONS=2.8.2:3.4.1` is the oldest pair (source:target).
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
    # a broker looks every 10 minutes for producer ids to forget; nobody waits that long here
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
"""Lets a killed broker restart as soon as its session has expired. For sources only: targets are
frozen for longer, and must not be fenced because of that.
"""
HEAP_MB: Final = 256


@pytest.fixture
def fault_source() -> LocalCluster:
    """The source; its cleaner compacts within a second."""
    return LENT.lend(
        "fault_source",
        lambda: cluster_of(
            "fault-source", FAULT_SOURCE, config=CONFIG | SOON_BACK, heap_mb=HEAP_MB
        ),
    )


@pytest.fixture
def fault_target() -> LocalCluster:
    """The target. It expires the producer IDs of records older than a day within half a second."""
    return LENT.lend(
        "fault_target",
        lambda: cluster_of("fault-target", FAULT_TARGET, config=CONFIG, heap_mb=HEAP_MB),
    )


@pytest.fixture
def rig(fault_source: LocalCluster, fault_target: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    """A flow between the two, with a topic."""
    with Rig(fault_source, fault_target, tmp_path) as made:
        yield made


@pytest.fixture
def patient_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver does not give up lanes that a test freezes, however long that takes. It also does
    not give up dead lanes, and the next lane waits as long for late requests.
    """
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", int(PATIENCE_S * 1000))
