"""Takes the snapshot of a running flow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from twinlog.control.flow.flow_run import FlowRun
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.watch.snapshot import FlowSnapshot, PartitionSnapshot
from twinlog.mirror.findings import with_flow
from twinlog.survey.discovery import TopicProblem

REPORT_IS_FRESH_MS: Final = 2_500
"""Lanes report what changed once a second."""


def partition_snapshot(partition: Partition, now_ms: int) -> PartitionSnapshot:
    """The partition as the driver knows it."""
    progress, failure = partition.progress, partition.failure
    now = time.monotonic()
    lag = lag_ms = -1
    if progress is not None and progress.source_end >= 0:
        lag = max(0, progress.source_end - progress.upstream)
        old = progress.last_timestamp > 0 and lag > 0
        # a report is up to a second old, and what it says was true then; silence is age
        fresh = now_ms - partition.reported_ms < REPORT_IS_FRESH_MS
        at_ms = partition.reported_ms if fresh else now_ms
        lag_ms = max(0, at_ms - progress.last_timestamp) if old else 0
    return PartitionSnapshot(
        topic=partition.plan.source.topic,
        partition=partition.plan.source.partition,
        target_topic=partition.plan.target.topic,
        state=partition_state(partition, lag),
        lag=lag,
        lag_ms=lag_ms,
        records=partition.total_records,
        bytes=partition.total_bytes,
        code="" if failure is None else failure.code,
        message="" if failure is None else failure.message,
        since_ms=0 if failure is None else failure.since_ms,
        upstream=-1 if progress is None else progress.upstream,
        age=partition.age.view(now),
        latency=partition.latency.view(now),
    )


def partition_state(partition: Partition, lag: int) -> str:
    """One word: what the partition is doing."""
    if partition.placement is Placement.ASSIGNED and partition.progress is not None:
        at_end = lag == 0 and partition.progress.sees_end
        if partition.progress.state == "COPYING" and at_end:
            return "AT_END"
        return partition.progress.state
    if partition.placement is Placement.PENDING and partition.failure is not None:
        return "RETRYING"
    if partition.placement is Placement.DONE and partition.progress is not None:
        return "TAKEN_OVER" if partition.progress.state == "TAKEN_OVER" else "DONE"
    return partition.placement.value


def problem_snapshots(problems: Iterable[TopicProblem]) -> Iterator[PartitionSnapshot]:
    """Partitions that never came so far as to be given to a lane."""
    for problem in problems:
        for partition in range(problem.first, problem.partitions):
            yield PartitionSnapshot(
                topic=problem.topic,
                partition=partition,
                target_topic="",
                state="FAILED",
                lag=-1,
                lag_ms=-1,
                records=0,
                bytes=0,
                code=problem.error.code,
                message=problem.error.message,
                since_ms=0,
            )


def flow_snapshot(
    flow: FlowRun,
    guarantee: str,
    degraded: str,
    problems: Iterable[TopicProblem],
    earlier_errors: Counter[str],
) -> FlowSnapshot:
    """The flow with all its partitions."""
    now_ms = int(time.time() * 1000)
    lanes = [lane for lease in flow.leases for lane in lease.lanes.values()]
    reason = degraded or next((lane.degraded for lane in lanes if lane.degraded), "")
    parts = tuple(
        _with_flow(partition_snapshot(p, now_ms), flow.name)
        for p in sorted(flow.partitions.values(), key=lambda p: p.plan.source)
    ) + tuple(problem_snapshots(problems))
    throttled = any(lane.throttle_ms for lane in lanes)
    throttled = throttled or (flow.pacer is not None and flow.pacer.is_binding)
    return FlowSnapshot(
        flow=flow.name,
        state=_flow_state(flow, parts, reason, throttled=throttled),
        reason=reason,
        guarantee=guarantee,
        generation=flow.generation,
        lanes=len(lanes),
        since_ms=now_ms - int((time.monotonic() - flow.started) * 1000),
        partitions=parts,
        errors=dict(flow.errors + earlier_errors),
    )


def _with_flow(part: PartitionSnapshot, flow: str) -> PartitionSnapshot:
    """Commands that its message names are complete."""
    return replace(part, message=with_flow(part.message, flow)) if part.message else part


def _flow_state(
    flow: FlowRun, parts: tuple[PartitionSnapshot, ...], reason: str, *, throttled: bool
) -> str:
    if flow.is_finished:
        return "STOPPED"
    if flow.is_stopping:
        return "STOPPING"
    if reason:
        return "DEGRADED"
    if flow.current is None:
        return "STARTING"
    failed = any(part.state == "FAILED" for part in parts)
    return "THROTTLED" if throttled else "PARTLY_FAILED" if failed else "RUNNING"
