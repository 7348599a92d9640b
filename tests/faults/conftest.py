"""A pair of brokers for the fault tests: they forget producer ids and clean their logs at once.

Both may be restarted by a test, and are back before it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.faults.rig import Rig
from twinlog.sandbox import QUICK_JVM, LocalCluster

CONFIG: Final = {
    # a broker looks every 10 minutes for producer ids to forget; nobody waits that long here
    "producer.id.expiration.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "1",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
HEAP_MB: Final = 256


@pytest.fixture(scope="session")
def fault_source() -> Iterator[LocalCluster]:
    """The source; its cleaner compacts within a second."""
    with LocalCluster(
        "fault-source", config=CONFIG, heap_mb=HEAP_MB, jvm_flags=QUICK_JVM
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def fault_target() -> Iterator[LocalCluster]:
    """The target; it forgets the producer id of records older than a day within half a second."""
    with LocalCluster(
        "fault-target", config=CONFIG, heap_mb=HEAP_MB, jvm_flags=QUICK_JVM
    ) as cluster:
        yield cluster


@pytest.fixture
def rig(fault_source: LocalCluster, fault_target: LocalCluster, tmp_path: Path) -> Iterator[Rig]:
    """One flow of its own between the two, with a topic."""
    with Rig(fault_source, fault_target, tmp_path) as made:
        yield made
