"""Quotas that mute a connection for longer than its kernel waits: nothing breaks, nothing starts
anew, the flow says THROTTLED and every record arrives once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.client import eventually
from tests.support.map_rows import rows
from tests.support.mirror import Mirror
from tests.support.quotas import quota
from tests.support.rig import Rig
from twinlog.cluster.client import ClusterClient

pytestmark = [
    pytest.mark.faults,
    pytest.mark.broker,
]

RECORD: Final = 400_000
SLOW: Final = 30_000.0
"""Bytes a second: a record mutes us for 13 s, and the kernel gives up after 10."""

RECORDS: Final = 24


@contextmanager
def limited(client: ClusterClient, rig: Rig, key: str) -> Iterator[None]:
    """A quota of our flow's client id on one cluster."""
    us = f"twinlog-{rig.flow}"
    quota(client, us, {key: SLOW})
    try:
        yield
    finally:
        quota(client, us, {key: None})


def put(rig: Rig, numbers: range) -> None:
    """Each in a transaction: a gap of the offset map, and so a row of it, behind every record."""
    for n in numbers:
        rig.put_at_once([rig.record(n, size=RECORD)])


def watch_until(rig: Rig, mirror: Mirror, count: int) -> set[str]:
    """The states that the flow shows until so many records are copied."""
    seen: set[str] = set()

    def copied() -> bool:
        seen.update(flow.state for flow in mirror.snapshots)
        return rig.end() >= count

    eventually(copied, what=f"{count} records under the quota")
    return seen


def has_rested(rig: Rig, mirror: Mirror) -> None:
    """Nothing was told to anybody, and the partition was never started anew."""
    assert dict(mirror.snapshots[0].errors) == {}
    assert len({row.term for row in rows(rig)}) == 1
    assert len(mirror.leases.jobs) == 1


@pytest.mark.long
def test_muted_for_longer_than_the_kernel_waits(rig: Rig) -> None:
    rig.create()
    put(rig, range(RECORDS))
    with rig.mirror(lease_s=3_000.0) as mirror:
        with limited(rig.target_client, rig, "producer_byte_rate"):
            # two minutes of it; the first records pass before a broker has anything to average
            seen = watch_until(rig, mirror, 10)
            assert "THROTTLED" in seen
            has_rested(rig, mirror)
        rig.copied(RECORDS, 180)
        has_rested(rig, mirror)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()


def test_quota_that_begins_to_bind_under_a_pipeline(rig: Rig) -> None:
    """Nothing is known of the quota before a first answer, and much could be on its way by then."""
    rig.create()
    for at in range(0, 4 * RECORDS, 4):
        rig.put(range(at, at + 4), size=RECORD // 8)
    with (
        limited(rig.target_client, rig, "producer_byte_rate"),
        rig.mirror(lease_s=3_000.0) as mirror,
    ):
        watch_until(rig, mirror, 16)
        has_rested(rig, mirror)
        quota(rig.target_client, f"twinlog-{rig.flow}", {"producer_byte_rate": None})
        rig.copied(4 * RECORDS, 180)
        has_rested(rig, mirror)
        mirror.stop()
    rig.same()


@pytest.mark.long
def test_source_that_mutes_us(rig: Rig) -> None:
    """A broker sends nothing that is larger than what the quota lets pass in ten seconds."""
    rig.create()
    for n in range(2 * RECORDS):
        rig.put([n], size=RECORD // 8)
    with rig.mirror(lease_s=3_000.0) as mirror:
        with limited(rig.source_client, rig, "consumer_byte_rate"):
            assert "THROTTLED" in watch_until(rig, mirror, RECORDS)
            has_rested(rig, mirror)
        rig.copied(2 * RECORDS, 180)
        has_rested(rig, mirror)
        mirror.stop()
    rig.same()
