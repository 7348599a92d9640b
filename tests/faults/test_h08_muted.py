"""H8: a target whose quota mutes a lane's connection still processes the requests in its socket
buffer after the lane has ended.
"""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from tests.support import raw
from tests.support.client import eventually
from tests.support.quotas import quota
from tests.support.rig import OLD, Rig, freeze, thaw
from tests.support.settings import settings_for
from tests.support.topics import create_topic
from twinlog.cluster.logs.producers import init_producer_id
from twinlog.cluster.net.connection import Connection
from twinlog.cluster.net.framing import FramePool
from twinlog.cluster.net.hot_connection import HotConnection
from twinlog.model import NO_TOPIC_ID
from twinlog.wire.produce import PRODUCE, VERSION_BY_NAME, produce_request

pytestmark = [pytest.mark.faults, pytest.mark.broker]

BATCH_BYTES = 20_000
SLOW = 20_000
"""Quota in bytes per second. One batch mutes the connection for about a second."""


def limit(rig: Rig, client_id: str, bytes_per_second: int | None) -> None:
    """Set the target's produce quota for a client ID, or remove it if `bytes_per_second` is
    None.
    """
    quota(rig.target_client, client_id, {"producer_byte_rate": bytes_per_second})


@pytest.mark.witness("H8: a delayed request is written after its lane froze")
def test_log_that_stood_still_grows_while_its_writer_is_frozen(rig: Rig) -> None:
    """The target's log grows again after it has not grown for a while, although its writer is
    frozen. So an unchanged log end does not permit the next lane to start.
    """
    create_topic(rig.target, rig.remote)
    us = init_producer_id(rig.target_client).producer_id
    lane = raw.Writer(rig.target_client, rig.there, us)
    client_id = f"muted-{rig.alias}"
    limit(rig, client_id, SLOW // 3)
    host, _, port = rig.target.bootstrap.rpartition(":")
    settings = settings_for(rig.target.bootstrap)
    connection = HotConnection(
        Connection.open(host, int(port), settings, timeout_s=10, user_timeout_ms=0),
        client_id,
        FramePool(0),
    )
    for at in range(8):
        batch = lane.batch([rig.record(at, age_ms=OLD, size=BATCH_BYTES)], at)
        parts = produce_request(
            VERSION_BY_NAME, {rig.there: batch}, {rig.remote: NO_TOPIC_ID}, 10_000
        )
        connection.submit(PRODUCE, VERSION_BY_NAME, parts, None)
    eventually(connection.flush)
    eventually(lambda: rig.end() > 0)
    grew = []  # the frozen writer does nothing, and its connection stays open
    end, last = rig.end(), time.monotonic()
    while time.monotonic() - last < 4 and end < 8:
        if rig.end() > end:
            end, now = rig.end(), time.monotonic()
            grew.append(now - last)
            last = now
    connection.close()
    assert grew
    assert max(grew) > 0.5, "a quiet while in between"


def test_lane_frozen_under_a_quota_writes_nothing_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlog.lane.late_requests.SILENCE_MS", 3_000)
    rig.create()
    for at in range(0, 100, 2):
        rig.put(range(at, at + 2), age_ms=OLD, size=BATCH_BYTES // 2)
    limit(rig, f"twinlog-{rig.flow}", SLOW)
    with rig.mirror() as mirror:
        rig.copied(6)
        eventually(lambda: mirror.snapshots[0].state == "THROTTLED")
        pids = mirror.leases.pids()
        freeze(pids)
        eventually(lambda: len(mirror.leases.jobs) > 1, what="another lane")
        limit(rig, f"twinlog-{rig.flow}", None)
        rig.copied(60)
        # the lease was cancelled, which may have ended its processes
        with suppress(ProcessLookupError):
            thaw(pids)
        rig.copied(100)
        mirror.stop()
    assert rig.numbers() == list(range(100))
    rig.same()
    rig.offsets_are_exact()
