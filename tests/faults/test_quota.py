"""Quotas that mute a connection for longer than its kernel waits.

No connection breaks, no partition restarts, the flow is THROTTLED, and every record arrives once.
Reads wait as well. The response to a throttled read has no topics, which does not mean that a topic
is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

import pytest

from tests.support.client import eventually
from tests.support.map_rows import rows
from tests.support.mirror import Mirror
from tests.support.quotas import quota
from tests.support.rig import Rig
from twinlog.client.export import Export
from twinlog.cluster.client import ClusterClient
from twinlog.cluster.topics.internal_log import append_rows, read_to_end

pytestmark = [
    pytest.mark.faults,
    pytest.mark.broker,
]

RECORD: Final = 400_000
SLOW: Final = 30_000.0
"""Quota in bytes per second. One record mutes the connection for 13 s, and the kernel gives it up
after 10 s.
"""

RECORDS: Final = 24


@contextmanager
def limited(
    client: ClusterClient, rig: Rig, key: str, rate: float = SLOW, who: str = ""
) -> Iterator[None]:
    """Set a quota on one cluster while the block runs. `who`: the client ID, by default this
    flow's.
    """
    us = who or f"twinlog-{rig.flow}"
    quota(client, us, {key: rate})
    try:
        yield
    finally:
        quota(client, us, {key: None})


def put(rig: Rig, numbers: range) -> None:
    """Write each record in its own transaction. The marker is a gap after the record, so each
    record has a row of the offset map.
    """
    for n in numbers:
        rig.put_at_once([rig.record(n, size=RECORD)])


def watch_until(rig: Rig, mirror: Mirror, count: int) -> set[str]:
    """Return the states that the flow shows until this many records are copied."""
    seen: set[str] = set()

    def copied() -> bool:
        seen.update(flow.state for flow in mirror.snapshots)
        return rig.end() >= count

    eventually(copied, what=f"{count} records under the quota")
    return seen


def has_rested(rig: Rig, mirror: Mirror) -> None:
    """Check that the flow reported no error, and that the partition was never restarted."""
    assert dict(mirror.snapshots[0].errors) == {}
    assert len({row.term for row in rows(rig)}) == 1
    assert len(mirror.leases.jobs) == 1


@pytest.mark.long
def test_muted_for_longer_than_the_kernel_waits(rig: Rig) -> None:
    rig.create()
    put(rig, range(RECORDS))
    with rig.mirror(lease_s=3_000.0) as mirror:
        with limited(rig.target_client, rig, "producer_byte_rate"):
            # copying these takes two minutes; the first records pass before the broker has a rate
            # to average
            seen = watch_until(rig, mirror, 10)
            assert "THROTTLED" in seen
            has_rested(rig, mirror)
        rig.copied(RECORDS, 180)
        has_rested(rig, mirror)
        mirror.stop()
    rig.same()
    rig.offsets_are_exact()


def test_quota_that_begins_to_bind_under_a_pipeline(rig: Rig) -> None:
    """A quota begins to apply while a pipeline of requests is in flight, before the first response
    shows the quota. No connection may break because of it.
    """
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
def test_source_that_mutes_the_lanes(rig: Rig) -> None:
    """The source's quota mutes the lanes. A broker returns at most as many bytes as the quota
    allows in ten seconds. The partition must be shown as THROTTLED, and everything must be copied.
    """
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


READ: Final = "consumer_byte_rate"
PIECE: Final = 100_000
"""Size of a record in bytes. A broker accepts ten seconds' worth of a quota before it mutes the
connection.
"""


@pytest.mark.witness("an export is complete under a quota", case="16-100000.0")
@pytest.mark.parametrize(
    ("records", "rate"),
    [(16, 100_000.0), pytest.param(400, 1_000_000.0, marks=pytest.mark.long)],
)
def test_export_under_a_quota(rig: Rig, records: int, rate: float) -> None:
    rig.create()
    for n in range(records):
        rig.put([n], size=PIECE)
    who = f"saver-{rig.alias}"
    with (
        limited(rig.source_client, rig, READ, rate, who),
        ClusterClient(replace(rig.source_client.settings, client_id=who)) as client,
    ):
        export = Export(client, rig.here, None, None)
        read = [one.record.key for one in export.records()]
        assert client.muted_until > 0, "the quota did not bind"
    assert read == [b"k%d" % n for n in range(records)]
    assert export.is_whole


def test_rows_are_read_under_a_quota(rig: Rig) -> None:
    """A quota throttles `read_to_end`, which reads the offset map and the state topic. All rows are
    read.
    """
    rig.create()
    rows = [(b"%d" % n, b"." * 2_000) for n in range(800)]
    append_rows(rig.source_client, rig.here, rows, rig.began_ms)
    who = f"reader-{rig.alias}"
    with (
        limited(rig.source_client, rig, READ, 100_000.0, who),
        ClusterClient(replace(rig.source_client.settings, client_id=who)) as client,
    ):
        read = [(row.key, row.value) for row in read_to_end(client, rig.topic, 0)]
        assert client.muted_until > 0, "the quota did not bind"
    assert read == rows


@pytest.mark.witness("a start waits for a quota", case="target")
@pytest.mark.parametrize("sides", ["target", pytest.param("both", marks=pytest.mark.long)])
def test_start_under_a_quota(rig: Rig, sides: str) -> None:
    rig.create()
    for n in range(16):
        rig.put([n], size=PIECE)
    rig.copy_once()
    rig.put([16])
    clients = [rig.target_client] + ([rig.source_client] if sides == "both" else [])
    with ExitStack() as stack:
        for client in clients:
            stack.enter_context(limited(client, rig, READ, 100_000.0))
        with rig.mirror() as mirror:
            assert "THROTTLED" in watch_until(rig, mirror, 17)
            assert dict(mirror.snapshots[0].errors) == {}
            mirror.stop()
    rig.same()
