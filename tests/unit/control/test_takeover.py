"""Errors that a new leader finds while lanes of the earlier process may still write."""

from __future__ import annotations

import secrets
from typing import cast

import pytest

from tests.support.driver import work_of
from twinlog.channel.server import Peer
from twinlog.codes import Trait, with_trait
from twinlog.config.flow.start import Starts, TopicStart
from twinlog.control.lanes.lanes import Lane
from twinlog.control.lanes.partitions import LaneKey, Partition, Placement
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.running.giving import ReadMap
from twinlog.control.running.run_leases import StartLease
from twinlog.lane.messages import Troubled
from twinlog.mirror.plan import PartitionPlan
from twinlog.model import EARLIEST, TopicId, TopicPartition

HERE = TopicPartition("orders", 0)
PLAN = PartitionPlan(
    source=HERE,
    target=TopicPartition("A.orders", 0),
    source_topic_id=TopicId(secrets.token_hex(16)),
    target_topic_id=TopicId(secrets.token_hex(16)),
    limit_bytes=1_000_000,
    has_log_append_time=False,
    may_reject_records=False,
)


def after(code: str, *, clean: bool) -> Partition:
    """Return the partition after its lane has reported this code, directly after the start of the
    run. `clean`: True if the earlier process was shut down cleanly.
    """
    run = FlowRun(
        name="A->B",
        start_lease=cast("StartLease", None),  # not needed, because nothing is started
        has_spark=lambda: False,
        read_map=cast("ReadMap", None),
        work=work_of(),
        generation=1,
        plans=[PLAN],
        lane_count=lambda _partitions, _is_light: 1,
        lease_s=300.0,
        first_change_s=300.0,
        start=Starts(otherwise=TopicStart(text="earliest", rest=EARLIEST)),
        once=False,
        clean=clean,
    )
    lane = Lane(key=LaneKey(1, 0, 0), peer=cast("Peer", None), work=run.work)
    partition = lane.partitions[HERE] = run.partitions[HERE]
    finding = Troubled(source=HERE, code=code, message="", is_retriable=False, wait_ms=0)
    run.on_message(lane, finding)
    return partition


@pytest.mark.parametrize("code", sorted(with_trait(Trait.LOG_FINDING)))
def test_a_log_that_grows_is_checked_again(code: str) -> None:
    partition = after(code, clean=False)
    assert partition.placement is Placement.PENDING
    assert partition.failure is not None
    assert partition.failure.code == "OTHER_WRITER"


@pytest.mark.parametrize("code", sorted(with_trait(Trait.LOG_FINDING)))
def test_a_log_without_another_writer_is_damaged(code: str) -> None:
    partition = after(code, clean=True)
    assert partition.placement is Placement.FAILED
    assert partition.failure is not None
    assert partition.failure.code == code


def test_a_finding_that_late_requests_do_not_explain_is_reported_immediately() -> None:
    partition = after("TOPIC_UNAUTHORIZED", clean=False)
    assert partition.placement is Placement.FAILED
