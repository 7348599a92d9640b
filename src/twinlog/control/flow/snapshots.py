"""Takes the snapshot of a running flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from twinlog.codes import NOT_MIRRORED, FlowState, PartitionState
from twinlog.control.flow.trouble import Trouble
from twinlog.control.lanes.partitions import Partition, Placement
from twinlog.control.lanes.wanted import vanished_text
from twinlog.control.risk.loss import (
    excess,
    loss_ms_of,
    loss_of,
    loss_records_of,
    outlook_of,
    throttle_of,
    warnings,
)
from twinlog.control.risk.running_flow import NO_LIMITS, RiskLimits
from twinlog.control.running.flow_run import FlowRun
from twinlog.control.watch.snapshot import FlowSince, FlowSnapshot, PartitionSnapshot
from twinlog.lane.messages import LaneLoad
from twinlog.mirror.state.intents import FlowIntents, IntentKind, promoted, topic_promoted
from twinlog.survey.discovery import TopicProblem

STATE_OF: Final = {
    Placement.PENDING: PartitionState.PENDING,
    Placement.ASSIGNED: PartitionState.STARTING,
    Placement.FAILED: PartitionState.FAILED,
    Placement.DONE: PartitionState.DONE,
    Placement.RELEASED: PartitionState.RELEASED,
}
"""The state of a partition whose lane has not reported a state, by placement."""

AT_REST: Final = NOT_MIRRORED | {
    PartitionState.DONE,
    PartitionState.PAUSED,
    PartitionState.TAKEN_OVER,
}
NOTHING_SELECTED: Final = "no topic of the source is selected"


def partition_snapshot(
    partition: Partition, now_ms: int, limits: RiskLimits = NO_LIMITS
) -> PartitionSnapshot:
    """Return the snapshot of a partition as the driver knows it."""
    progress, failure = partition.progress, partition.failure or partition.held_back
    now = partition.clock.monotonic()
    lag: int | None = None
    lag_ms: int | None = None
    source_end, reached = partition.source_end, partition.recovery.upstream
    if partition.held_back is not None and partition.recovery.end is not None:
        # the held-back records are waiting, so they count as lag
        source_end = max(source_end or 0, partition.recovery.end)
    if source_end is not None and reached is not None:
        lag = max(0, source_end - reached)
    if progress is not None and lag is not None:
        # The lag in time counts from the moment when the end was last reached. After an hour
        # without records the last record is an hour old, but no record has waited that long.
        begin_ms = max(progress.last_timestamp, partition.at_end_ms or 0)
        waits = begin_ms > 0 and lag > 0
        # the lag at the last report, up to a second ago; it grows if no more reports arrive
        at_ms = partition.reported_ms if partition.is_fresh else None
        lag_ms = max(0, (at_ms or now_ms) - begin_ms) if waits else 0
    state = partition_state(partition, lag)
    if state is PartitionState.DONE and lag is None:
        lag = lag_ms = 0  # the lane found nothing to copy, so it has not reported
    since_ms = partition.since.began_ms(state, now_ms)
    if state is PartitionState.AT_END:
        partition.at_end_ms = now_ms  # set here, as the lane sends no report while nothing changes
    outlook = outlook_of(partition, limits.retentions, now_ms)
    return PartitionSnapshot(
        topic=partition.plan.source.topic,
        partition=partition.plan.source.partition,
        target_topic=partition.plan.target.topic,
        state=state,
        lag=lag,
        lag_ms=lag_ms,
        records=partition.total_records,
        bytes=partition.total_bytes,
        code="" if failure is None else failure.code,
        message=failure.message if failure else vanished_text(partition) or partition.why_put_off,
        since_ms=since_ms if failure is None else failure.since_ms,
        loss_records=loss_records_of(partition),
        loss_ms=loss_ms_of(partition, now_ms),
        left_ms=outlook.left_ms,
        is_left_known=outlook.is_known,
        needs_ms=outlook.needs_ms,
        is_near_deletion=outlook.is_near,
        batches=0 if progress is None else progress.batches,
        recoded=0 if progress is None else progress.recoded,
        poison=partition.poison,
        upstream=None if progress is None else progress.upstream,
        lane=None if partition.lane is None else partition.lane.lane,
        copied=None if progress is None or progress.ordinal < 0 else progress.ordinal,
        age=partition.age.view(now),
        latency=partition.latency.view(now),
    )


def partition_state(partition: Partition, lag: int | None) -> PartitionState:
    if partition.placement is Placement.ASSIGNED and partition.progress is not None:
        at_end = lag == 0 and partition.progress.sees_end
        state = PartitionState(partition.progress.state)
        if state is PartitionState.COPYING and at_end:
            return PartitionState.AT_END
        return state
    if partition.is_paused and partition.lane is None:
        return PartitionState.PAUSED
    if partition.placement is Placement.PENDING and partition.failure is not None:
        return PartitionState.RETRYING
    return _state_of_ended(partition) or STATE_OF[partition.placement]


def _state_of_ended(partition: Partition) -> PartitionState | None:
    """Return the state of an ended copy, or None if its placement determines the state."""
    if partition.placement is Placement.RELEASED and partition.vanished_ms:
        return PartitionState.SOURCE_DELETED
    # even without a lane, the clients that took over the topic still own it
    if partition.placement in (Placement.DONE, Placement.PENDING) and partition.is_taken_over:
        return PartitionState.TAKEN_OVER
    return None


def problem_snapshots(
    problems: Iterable[TopicProblem], since: FlowSince, now_ms: int
) -> Iterator[PartitionSnapshot]:
    """Yield partitions that were never given to a lane, because of a problem with their topic."""
    problems = list(problems)
    since.keep_only(problem.topic for problem in problems)
    for problem in problems:
        since_ms = since.see_topic(problem.topic, problem.error.code, now_ms)
        for partition in range(problem.first, problem.partitions):
            yield PartitionSnapshot(
                topic=problem.topic,
                partition=partition,
                state=PartitionState.FAILED,
                code=problem.error.code,
                message=problem.error.what,
                since_ms=since_ms,
            )


def flow_snapshot(
    flow: FlowRun,
    guarantee: str,
    trouble: Trouble | None,
    problems: Iterable[TopicProblem],
    earlier_errors: Counter[str],
    since: FlowSince,
    limits: RiskLimits = NO_LIMITS,
) -> FlowSnapshot:
    """Return the snapshot of a flow with all its partitions."""
    now_ms = flow.clock.wall_ms()
    lanes = [lane for lease in flow.leases for lane in lease.lanes.values()]
    away = next((str(lane.unreachable) for lane in lanes if lane.unreachable), "")
    reason = (away if trouble is None else trouble.reason) or flow.hold_reason
    parts = tuple(
        _with_intent(partition_snapshot(p, now_ms, limits), flow.intents)
        for p in sorted(flow.partitions.values(), key=lambda p: p.plan.source)
    ) + tuple(problem_snapshots(problems, since, now_ms))
    if trouble is not None and (flow.is_stopping or trouble.is_of_all):
        parts = tuple(_waiting(part, trouble) for part in parts)
    loss = loss_of(() if limits is NO_LIMITS else parts)
    too_much = excess(flow, loss, limits.rpo_seconds)
    risks = "; ".join(filter(None, (too_much, *warnings(parts).values())))
    throttle = throttle_of(flow)
    is_held_up = trouble is not None or (bool(reason or risks) and not flow.is_stopping)
    state = _flow_state(flow, parts, is_held_up=is_held_up, throttled=bool(throttle))
    if trouble is not None and trouble.state is FlowState.WAITING_FOR_SPARK:
        state = trouble.state
    reason = reason or (throttle if state is FlowState.THROTTLED else "")
    reason = reason or ("" if flow.has_work or parts else NOTHING_SELECTED)
    paused = flow.intents.paused() if state is FlowState.PAUSED else ""
    promotion = flow.intents.promotion
    over = "" if promotion is None else promoted(flow.name, promotion)
    return FlowSnapshot(
        flow=flow.name,
        state=state,
        reason="; ".join(filter(None, (over, paused, reason, risks))),
        guarantee=guarantee,
        generation=flow.generation,
        lanes=len(lanes),
        since_ms=since.flow.began_ms(state, now_ms),
        partitions=parts,
        code="" if trouble is None else trouble.error.code,
        error=None if trouble is None else trouble.error,
        errors=dict(flow.errors + earlier_errors),
        loss_records=loss.records,
        loss_ms=loss.ms,
        loss_unknown=loss.unknown,
        rpo_ms=None if limits.rpo_seconds is None else limits.rpo_seconds * 1000,
        rpo_excess=too_much,
        lane_cpu_ms=flow.lane_cpu_ms,
        load=LaneLoad(
            waiting_records=sum(lane.load.waiting_records for lane in lanes),
            free_bytes=sum(lane.load.free_bytes for lane in lanes),
            received_bytes=flow.received_bytes,
            sent_bytes=flow.sent_bytes,
        ),
        latency=flow.spread.view(flow.clock.monotonic()),
        latencies=flow.spread.histogram(),
    )


def _with_intent(partition: PartitionSnapshot, intents: FlowIntents) -> PartitionSnapshot:
    """Return the partition with the text of the intent if its topic was paused or promoted."""
    if partition.state is PartitionState.PAUSED and not partition.code:
        return replace(partition, message=intents.paused(partition.topic))
    promotion = intents.get(IntentKind.PROMOTE, partition.topic)
    if promotion is None or partition.state not in NOT_MIRRORED:
        return partition
    message = topic_promoted(promotion)
    return replace(
        partition,
        state=PartitionState.PROMOTED,
        message=message,
        since_ms=promotion.at_ms,
        lag=None,
    )


def promoted_snapshots(
    intents: FlowIntents,
    shown: Iterable[PartitionSnapshot],
    partitions: Mapping[str, int],
    remote: Callable[[str], str],
) -> Iterator[PartitionSnapshot]:
    """Yield the partitions of topics that were promoted by name, except topics that are `shown`.

    `partitions`: partition counts by topic; a topic that the source does not list gets one row.
    """
    topics = intents.topics(IntentKind.PROMOTE)
    known = {part.topic for part in shown} if topics else set()
    for topic in topics:
        for number in range(0 if topic in known else partitions.get(topic, 1)):
            part = PartitionSnapshot(
                topic=topic,
                partition=number,
                target_topic=remote(topic),
                state=PartitionState.RELEASED,
            )
            yield _with_intent(part, intents)


def kept_rows(
    former: Iterable[Partition], trouble: Trouble | None, now_ms: int
) -> tuple[PartitionSnapshot, ...]:
    """Return the last known partitions of the previous run, which are shown between two runs."""
    if trouble is None:
        return ()
    known = sorted(former, key=lambda p: p.plan.source)
    return tuple(_waiting(partition_snapshot(p, now_ms), trouble) for p in known)


def _waiting(partition: PartitionSnapshot, trouble: Trouble) -> PartitionSnapshot:
    """Return the partition with the flow's problem, unless the partition is idle or has failed. If
    the partition has its own code, only the state is replaced.
    """
    if partition.state in AT_REST or partition.state is PartitionState.FAILED:
        return partition
    if partition.code:
        return replace(partition, state=PartitionState.RETRYING)
    return replace(
        partition,
        state=PartitionState.RETRYING,
        code=trouble.error.code,
        message=trouble.error.message,
        since_ms=trouble.since_ms,
    )


def _flow_state(
    flow: FlowRun, partitions: tuple[PartitionSnapshot, ...], *, is_held_up: bool, throttled: bool
) -> FlowState:
    """Return the state of the flow. If several states apply, the order of the checks decides."""
    if flow.is_stopping and not is_held_up:
        return FlowState.STOPPED if flow.is_finished else FlowState.STOPPING
    if flow.intents.pause is not None:
        return FlowState.PAUSED
    if is_held_up:
        return FlowState.DEGRADED
    if flow.current is None and flow.has_work:
        return FlowState.STARTING
    if any(part.state is PartitionState.FAILED for part in partitions):
        return FlowState.PARTLY_FAILED
    return FlowState.THROTTLED if throttled else FlowState.RUNNING
