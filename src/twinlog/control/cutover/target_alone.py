"""Reads the state of a flow from the target alone if the source does not respond: up to which
offset and time each partition was copied, and the groups' offsets. How many records were not copied
yet is unknown then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from twinlog.codes import PartitionState
from twinlog.config.flow.schema import FlowConfig
from twinlog.control.cutover.copies import Copy, copies
from twinlog.control.cutover.groups import CutoverGroups, GroupPlan
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.flow.wiring import flow_setup
from twinlog.control.watch.snapshot import FlowSnapshot, GroupPosition, PartitionSnapshot
from twinlog.errors import TwinlogError
from twinlog.mirror.state.state_row import BEYOND


def with_copies(config: FlowConfig, snapshot: FlowSnapshot) -> FlowSnapshot:
    """Return `snapshot`, whose source does not respond, with the partitions and groups that the
    target shows. If the target cannot be read, the error is added to the snapshot's reason.
    """
    problem = TwinlogError(snapshot.source_problem, code=snapshot.code)
    setup = flow_setup(config)
    try:
        with CutoverScope(setup, source_problem=problem) as scope:
            current = copies(scope, scope.copies)
            parts = tuple(_partition(copy, is_shared=setup.is_identity) for copy in current)
            groups = tuple(_positions(CutoverGroups(scope).plan(current), current))
    except TwinlogError as error:
        reason = "; ".join(filter(None, (snapshot.reason, str(error.without_flow()))))
        return replace(snapshot, reason=reason)
    known = {(part.topic, part.partition): part for part in snapshot.partitions}
    kept = tuple(_with_trouble(part, known.get((part.topic, part.partition))) for part in parts)
    promoted = (part for part in snapshot.partitions if part.state is PartitionState.PROMOTED)
    return replace(snapshot, partitions=(*kept, *promoted), groups=groups)


def _partition(copy: Copy, *, is_shared: bool) -> PartitionSnapshot:
    copied = None
    if copy.replica is not None and copy.is_translated and not is_shared:
        copied = copy.replica.copied.ordinal
    return PartitionSnapshot(
        topic=copy.source.topic,
        partition=copy.source.partition,
        target_topic=copy.target.topic,
        state=PartitionState.SOURCE_AWAY,
        records=copied or 0,
        copied=copied,
        upstream=copy.upstream,
        # a timestamp that is no time, such as one in microseconds, is not shown
        newest_ms=copy.newest_ms if abs(copy.newest_ms or 0) < BEYOND else None,
        message=copy.problem,
    )


def _with_trouble(
    partition: PartitionSnapshot, reported: PartitionSnapshot | None
) -> PartitionSnapshot:
    """Return the partition with the state, code and message that the leader reported for it, or
    unchanged if the leader reported no problem.
    """
    if reported is None or not (reported.code or reported.message):
        return partition
    return replace(partition, state=reported.state, code=reported.code, message=reported.message)


def _positions(plans: Iterable[GroupPlan], current: Iterable[Copy]) -> Iterator[GroupPosition]:
    ends = {copy.target: copy.log[1] for copy in current if copy.is_copied}
    for plan in plans:
        for partition in plan.partitions:
            yield GroupPosition(
                group=plan.group,
                topic=partition.target.topic,
                partition=partition.target.partition,
                at=partition.now,
                resumes_at=partition.to,
                end=ends.get(partition.target),
                why_not_exact=plan.problem or partition.why_not_exact,
            )
