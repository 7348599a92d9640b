"""Byte rates of flows: a flow's own budget, the shares of its topics, and quotas on brokers."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.client import Outgoing, produce, read_all
from tests.support.eventually import eventually
from tests.support.mirror import Mirror
from tests.support.quotas import quota, user_quota
from tests.support.rig import Rig
from tests.support.rights import Grant, SecuredPair
from tests.support.settings import settings_of
from tests.support.topics import create_topic, end_offsets, topic_names
from twinlog.cluster.client import ClusterClient
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

MEGABYTE = 1_000_000
PARTITIONS = 4
WATCHED_S = 10.0
"""Duration of a measurement in seconds, long enough that the size of single fetches does not
matter.
"""

QUOTA_WINDOW_S = 10.0
"""Window in seconds over which a broker averages a quota (quota.window.num)."""


@pytest.fixture
def flow(
    source_cluster: LocalCluster, target_cluster: LocalCluster, tmp_path: Path
) -> Iterator[Rig]:
    with Rig(source_cluster, target_cluster, tmp_path) as rig:
        yield rig


def fill(rig: Rig, topic: str, megabytes: int, *, batch_bytes: int = 16_384) -> None:
    """Create a topic, and write a backlog of incompressible records in small batches."""
    create_topic(rig.source, topic, PARTITIONS)
    records = (
        Outgoing(value=os.urandom(RECORD_BYTES), partition=number % PARTITIONS)
        for number in range(megabytes * MEGABYTE // RECORD_BYTES)
    )
    produce(rig.source, topic, records, linger_ms=50, config={"batch.size": batch_bytes})


RECORD_BYTES = 5_000

STALLS_SOON = "import twinlog.lane.watches.stalls as stalls; stalls.STALLED_AFTER_S = 1.0"
"""Prelude of a lane that counts a source as stalled after one second. A source that a quota mutes
for longer must not count as stalled.
"""


def copied(rig: Rig, topics: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each topic's values on the target. Batches are 1 % larger than the values
    in them.
    """
    counts = {t: end_offsets(rig.target, f"{rig.alias}.{t}").values() for t in topics}
    return {topic: sum(ends) * RECORD_BYTES for topic, ends in counts.items()}


def states(mirror: Mirror) -> list[str]:
    return [flow.state for flow in mirror.snapshots]


def rates(
    rig: Rig, *topics: str, settle_s: float = 3.0, watched_s: float = WATCHED_S
) -> dict[str, float]:
    """Return the bytes per second that each topic gets on the target, measured over `watched_s`."""
    remote = {f"{rig.alias}.{topic}" for topic in topics}
    eventually(lambda: remote <= topic_names(rig.target), what="remote topics")
    eventually(lambda: any(copied(rig, topics).values()), what="first records")
    time.sleep(settle_s)  # until the budget's first burst is over
    began, before = time.monotonic(), copied(rig, topics)
    time.sleep(watched_s)  # the rate is measured over this time
    ended, after = time.monotonic(), copied(rig, topics)
    return {topic: (after[topic] - before[topic]) / (ended - began) for topic in topics}


def full_rates(rig: Rig, budget: float, *topics: str) -> dict[str, float]:
    """Return the rates of the first measurement that uses the whole budget. Check that no
    measurement exceeds it.

    Several measurements are tried, because a machine that is busy with other tests may be too slow
    during one.
    """
    for window in range(3):
        found = rates(rig, *topics, settle_s=0.5 if window else 3.0)
        assert sum(found.values()) <= 1.1 * budget
        if sum(found.values()) >= 0.9 * budget:
            return found
    raise AssertionError(f"never the budget of {budget:,.0f} bytes/s: {found}")


def test_flow_stays_within_its_budget(flow: Rig) -> None:
    fill(flow, flow.topic, 40)
    keys = {f"{flow.flow}.twinlog.max.bytes.per.second": str(MEGABYTE)}
    with flow.mirror(lanes=1, keys=keys) as mirror:
        full_rates(flow, MEGABYTE, flow.topic)
        (found,) = mirror.snapshots
        assert found.state == "THROTTLED"
        assert found.reason == "the flow is throttled by its limit of 1.0 MB/s"


def test_budget_is_shared_by_weights_and_a_quiet_topic_is_not_starved(flow: Rig) -> None:
    payments, quiet = f"payments-{flow.alias}", f"quiet-{flow.alias}"
    # each fetch of either topic returns a whole batch, and a fetch of `payments` also half of the
    # next batch
    fill(flow, flow.topic, 20, batch_bytes=36_500)
    fill(flow, payments, 40, batch_bytes=36_500)
    create_topic(flow.source, quiet, 1)
    keys = {
        f"{flow.flow}.topics": f"{flow.topic}, {payments}, {quiet}",
        f"{flow.flow}.twinlog.max.bytes.per.second": str(MEGABYTE),
        f"{flow.flow}.twinlog.priority": "payments.*:4, quiet.*:1",
    }
    with flow.mirror(lanes=2, keys=keys):
        rate = full_rates(flow, MEGABYTE, flow.topic, payments)
        assert rate[payments] / rate[flow.topic] == pytest.approx(4, rel=0.15)
        # a single record uses the budget of a whole batch
        produce(flow.source, quiet, [Outgoing(value=b"now")])
        eventually(lambda: copied(flow, [quiet])[quiet] > 0, what="the quiet topic's record")


def test_whole_machine_is_used_where_nothing_binds(flow: Rig) -> None:
    fill(flow, flow.topic, 20)
    keys = {f"{flow.flow}.twinlog.max.bytes.per.second": str(100 * MEGABYTE)}
    with flow.mirror(lanes=2, keys=keys) as mirror:
        mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
        eventually(lambda: states(mirror) == ["RUNNING"])


@pytest.mark.parametrize(
    ("side", "key"), [("source", "consumer_byte_rate"), ("target", "producer_byte_rate")]
)
def test_broker_quota_is_used_up_and_no_more(
    flow: Rig, caplog: pytest.LogCaptureFixture, side: str, key: str
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    fill(flow, flow.topic, 40)
    client = flow.source_client if side == "source" else flow.target_client
    quota(client, f"twinlog-{flow.flow}", {key: float(MEGABYTE)})
    try:
        with flow.mirror(lanes=1, prelude=STALLS_SOON) as mirror:
            reason = f"a quota of the {side}'s brokers (they mute"
            eventually(
                lambda: (
                    [(one.state, reason in one.reason) for one in mirror.snapshots]
                    == [("THROTTLED", True)]
                )
            )
            (rate,) = rates(flow, flow.topic, settle_s=4.0, watched_s=QUOTA_WINDOW_S).values()
            # Brokers enforce a quota only on average. Ten seconds may have half of the rate or 1.5
            # times as much, but never none.
            assert 0.5 * MEGABYTE < rate < 1.6 * MEGABYTE
            assert {p.code for p in mirror.snapshots[0].partitions} == {""}
    finally:
        quota(client, f"twinlog-{flow.flow}", {key: None})
    assert "TARGET_DISCONNECTED" not in caplog.text


@pytest.mark.witness("a quota of request time slows the copy down and causes no error")
def test_quota_of_request_time_slows_down_and_breaks_nothing(
    flow: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "twinlog.control")
    fill(flow, flow.topic, 4)
    quotas = {"request_percentage": 5.0}
    for client in (flow.source_client, flow.target_client):
        quota(client, f"twinlog-{flow.flow}", quotas)
    try:
        with flow.mirror(lanes=1) as mirror:
            mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
            assert {p.code for p in mirror.snapshots[0].partitions} == {""}
            mirror.stop()
        flow.same()
    finally:
        for client in (flow.source_client, flow.target_client):
            quota(client, f"twinlog-{flow.flow}", dict.fromkeys(quotas))
    assert "DISCONNECTED" not in caplog.text


def test_quotas_of_the_user_on_both_sides_slow_down_and_break_nothing(
    guarded_pair: SecuredPair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The users of the source and of the target have byte quotas and request quotas at the same
    time. The flow is THROTTLED, but no partition fails, and every record is copied once.
    """
    caplog.set_level(logging.INFO, "twinlog.control")
    pair, topic = guarded_pair, f"quotas-{uuid.uuid4()}"
    everything = [
        Grant(operation="ALL", kind="topic", name="*"),
        Grant(operation="ALL", kind="group", name="*"),
        Grant(operation="ALL", kind="cluster"),
    ]
    sides = [(pair.source, "consumer_byte_rate"), (pair.target, "producer_byte_rate")]
    users = [pair.user(cluster, everything) for cluster, _ in sides]
    create_topic(pair.source, topic, PARTITIONS)
    values = [os.urandom(RECORD_BYTES) for _ in range(24 * MEGABYTE // RECORD_BYTES)]
    produce(pair.source, topic, [Outgoing(value=value) for value in values], linger_ms=50)
    source, target = f"q{topic[-6:]}", "B"
    lines = [f"topics = {topic}", "emit.heartbeats.enabled = false"]
    file = pair.config(
        tmp_path / "mm2.properties", (users[0], users[1]), lines, aliases=(source, target)
    )
    with ExitStack() as ending:
        for (cluster, key), user in zip(sides, users, strict=True):
            client = ending.enter_context(ClusterClient(settings_of(cluster)))
            quotas = {key: float(MEGABYTE), "request_percentage": 20.0}
            user_quota(client, user, quotas)
            ending.callback(user_quota, client, user, dict.fromkeys(quotas))
        with Mirror(file, lanes=1) as mirror:
            eventually(lambda: states(mirror) == ["THROTTLED"])
            mirror.eventually(lambda parts: all(p.state == "AT_END" for p in parts))
            assert {p.code for p in mirror.snapshots[0].partitions} == {""}
            mirror.stop()
    copied = read_all(pair.target, f"{source}.{topic}")
    assert Counter(one.value for one in copied) == Counter(values)
    assert "DISCONNECTED" not in caplog.text
