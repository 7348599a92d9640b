"""Sets offsets of idle groups of one cluster: to a time, to a log end, to an offset, or by a number
of records. The semantics are those of Kafka's `kafka-consumer-groups.sh --reset-offsets`.

- An offset outside the log is set to the nearer end of the log, and this is reported. A time after
  the newest record means the log end. If timestamps are out of order, the result is the first
  record, by offset, at or after the time. Copies keep their timestamps, so a time means the same
  records on both clusters.
- A group with members is refused, and its members are reported.
- A group's offsets are set in one request, all or none, unless they are too large for one request
  (some thousand partitions). Everything that may fail for a single partition is checked before the
  request. If a partition fails nevertheless, the group's former offsets are restored in the other
  partitions.

Between the plan and its execution, the user may think for minutes. What may happen in that time,
and during the execution:

- The group got members: the coordinator itself rejects the commit.
- The group's offsets moved: they are read again, and the group is refused.
- Retention moved the log start, or the log was truncated: the offset is moved into the log, because
  otherwise consumers would resume according to `auto.offset.reset`.
- A topic was deleted or re-created: the group is refused.
- This process died, or a response was lost: each group has all of its new offsets or none. If the
  command is repeated, it sets the same offsets again. Only a shift is different: it starts at the
  new offsets, which its plan shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_members import group_members, members_text
from twinlog.cluster.groups.group_offsets import (
    CommitResult,
    Committed,
    GroupOffsets,
    commit_offsets,
    fetch_offsets,
    is_refused_as_active,
)
from twinlog.cluster.groups.share_groups import alter_start_offsets, fetch_share_offsets, offsets_of
from twinlog.cluster.logs.offsets import EARLIEST, LATEST, OffsetResult, list_offsets
from twinlog.cluster.net.metadata import ClusterMetadata, Operation
from twinlog.encoded import encoded_fields
from twinlog.errors import FlowError, TwinlogError, or_raise
from twinlog.model import TopicId, TopicPartition, is_own_group
from twinlog.quantities import first_few, plural
from twinlog.survey.rights import denied_error, is_permitted

Commit: TypeAlias = Callable[
    [Coordinators, Mapping[str, GroupOffsets]], Mapping[str, CommitResult | TwinlogError]
]


class GoalKind(StrEnum):
    """How the target of a reset is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The target of a reset. `value` is an offset, a number of records (negative for backwards),
    milliseconds since 1970, or 0 for a log end.
    """

    kind: GoalKind
    value: int = 0


class Fit(StrEnum):
    """Why a reset sets the offset that it sets."""

    AS_REQUESTED = ""
    AT_START = "the log begins there"
    AT_END = "the log ends there"
    NONE_SO_NEW = "the end: no record is at or after that time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetBounds:
    """The start and end offset of a partition's log, and the offset of the requested time."""

    start: int
    end: int
    at_time: int | None = None
    """Offset of the first record at or after the requested time, or None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    """The effect of a reset on one partition of a group."""

    topic: str
    partition: int
    before: int | None
    """The group's current offset, or None if it has none in this partition."""
    metadata: str = ""
    """Metadata of the current commit, needed to restore that commit. Kafka Streams stores its
    stream time in it.
    """
    after: int
    start: int
    end: int
    fit: Fit = Fit.AS_REQUESTED

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReset:
    """The effect of a reset on one group: all of `offsets` are set, or nothing if `refused` has an
    error.
    """

    FIELDS = "group is_share is_done refused=refusal offsets"

    group: str
    is_share: bool = False
    offsets: tuple[ResetOffset, ...] = ()
    topic_ids: Mapping[str, TopicId]
    refused: TwinlogError | None = None
    is_done: bool = False

    @property
    def goes_back(self) -> bool:
        """Return True if some records will be read again."""
        return any(
            offset.before is not None and offset.after < offset.before for offset in self.offsets
        )

    @property
    def refusal(self) -> Any:
        return encoded_fields(self.refused, "code message")


def fit_to_log(goal: Goal, before: int | None, log: ResetBounds) -> tuple[int, Fit] | None:
    """Return (new offset, why this offset) for one partition. `before`: the group's current offset,
    or None. If the goal is a shift and the group has no offset, return None.
    """
    match goal.kind:
        case GoalKind.EARLIEST:
            return log.start, Fit.AS_REQUESTED
        case GoalKind.LATEST:
            return log.end, Fit.AS_REQUESTED
        case GoalKind.TIMESTAMP:
            return (
                (log.end, Fit.NONE_SO_NEW)
                if log.at_time is None
                else (log.at_time, Fit.AS_REQUESTED)
            )
        case GoalKind.OFFSET:
            return _clamped(goal.value, log)
        case GoalKind.SHIFT:
            return None if before is None else _clamped(before + goal.value, log)


def _clamped(offset: int, log: ResetBounds) -> tuple[int, Fit]:
    if offset < log.start:
        return log.start, Fit.AT_START
    return (log.end, Fit.AT_END) if offset > log.end else (offset, Fit.AS_REQUESTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterState:
    """The state of the cluster, queried once for all groups of a plan."""

    listed: Mapping[str, Group]
    members: Mapping[str, tuple[Any, ...] | TwinlogError]
    before: Mapping[str, GroupOffsets | TwinlogError]
    seen: ClusterMetadata
    logs: Mapping[TopicPartition, ResetBounds | TwinlogError]


class OffsetReset:
    """Resets groups of one cluster: first `plan`, then `execute` the plan. Not thread-safe."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._coordinators = Coordinators(client)

    def names(self, matches: Callable[[str], bool]) -> list[str]:
        """Return the names of the groups whose offsets can be reset and whose names `matches`
        accepts.
        """
        groups = list_groups(self._coordinators).values()
        return sorted(g.name for g in groups if _can_be_reset(g) and matches(g.name))

    def plan(
        self,
        goal: Goal,
        groups: Sequence[str],
        *,
        topics: Collection[str] = (),
        matches: Callable[[str], bool] = lambda _: True,
    ) -> list[GroupReset]:
        """Return a plan for each group. If `topics` is given, all partitions of these topics are
        reset. Otherwise, all partitions are reset for which the group has offsets, and whose topic
        `matches` accepts. Raises FlowError or ClusterError if a topic of `topics` is missing, or
        the cluster does not respond.
        """
        listed_groups = list_groups(self._coordinators)
        named_topics = self._partitions(topics)
        before = self._committed(groups, listed_groups)
        wanted = {
            group: sorted(named_topics or (tp for tp in state if matches(tp.topic)))
            for group, state in before.items()
            if not isinstance(state, TwinlogError)
        }
        tps = sorted({tp for of_group in wanted.values() for tp in of_group})
        active = [
            listed_groups[g] for g in groups if g in listed_groups and listed_groups[g].is_active
        ]
        now = _ClusterState(
            listed=listed_groups,
            members=group_members(self._coordinators, active),
            before=before,
            seen=self._client.metadata(sorted({tp.topic for tp in tps})),
            logs=self._logs(goal, tps),
        )
        return [self._group(goal, group, wanted.get(group, ()), now) for group in groups]

    def execute(self, plan: GroupReset) -> GroupReset:
        """Set a group's offsets as planned. Return the plan with `is_done` set or, if that failed,
        with the error in `refused`.
        """
        if plan.refused is not None:
            return plan
        try:
            plan = self._within_current_logs(plan)
            self._set(plan)
        except TwinlogError as error:
            return replace(plan, refused=error)
        return replace(plan, is_done=True)

    # -- the plan

    def _group(
        self, goal: Goal, group: str, tps: Sequence[TopicPartition], now: _ClusterState
    ) -> GroupReset:
        listed = now.listed.get(group)
        ids = {tp.topic: now.seen.topics[tp.topic].topic_id for tp in tps}
        out = GroupReset(
            group=group, topic_ids=ids, is_share=listed is not None and listed.is_share
        )
        try:
            return replace(out, offsets=tuple(self._offsets(goal, group, tps, now)))
        except TwinlogError as error:
            return replace(out, refused=error)

    def _offsets(
        self, goal: Goal, group: str, tps: Sequence[TopicPartition], now: _ClusterState
    ) -> Iterator[ResetOffset]:
        listed = now.listed.get(group)
        if listed is not None and listed.is_active:
            raise self._active_error(group, now.members.get(group, ()))
        if listed is not None and not _can_be_reset(listed):
            raise self._kind_error(listed)
        before = or_raise(now.before[group])
        if not tps:
            raise FlowError(
                f"cluster {self._client.alias}: group {group} has no committed offsets of the "
                "selected topics: check the group's name, or name the topics with --topic",
                code="NO_OFFSETS",
            )
        for tp in tps:
            log = or_raise(now.logs[tp])
            if not is_permitted(now.seen, tp.topic, Operation.READ):
                raise denied_error(self._client.alias, "READ", tp.topic)
            commit = before.get(tp)
            then = None if commit is None else commit.offset
            goal_offset = fit_to_log(goal, then, log)
            if goal_offset is None:
                raise FlowError(
                    f"cluster {self._client.alias}: group {group} has no committed offset of {tp} "
                    f"that can be shifted: leave topic {tp.topic} out, or choose another kind of "
                    "reset",
                    code="NO_OFFSETS",
                )
            yield ResetOffset(
                topic=tp.topic,
                partition=tp.partition,
                before=then,
                metadata="" if commit is None else commit.metadata,
                after=goal_offset[0],
                start=log.start,
                end=log.end,
                fit=goal_offset[1],
            )

    def _logs(
        self, goal: Goal, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ResetBounds | TwinlogError]:
        starts = list_offsets(self._client, tps, EARLIEST)
        ends = list_offsets(self._client, tps, LATEST)
        times: Mapping[TopicPartition, OffsetResult | TwinlogError] = {}
        if goal.kind is GoalKind.TIMESTAMP:
            times = list_offsets(self._client, tps, goal.value)
        out: dict[TopicPartition, ResetBounds | TwinlogError] = {}
        for tp in tps:
            try:
                start, end = or_raise(starts[tp]).offset, or_raise(ends[tp]).offset
                at_time = or_raise(times[tp]).offset if tp in times else -1
                out[tp] = ResetBounds(
                    start=start, end=end, at_time=None if at_time < 0 else at_time
                )
            except TwinlogError as error:
                out[tp] = error
        return out

    def _partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        if not topics:
            return []
        known = self._client.metadata(sorted(topics), allow_missing=False).topics
        return [tp for topic in known.values() for tp in topic.tps]

    def _committed(
        self, groups: Sequence[str], listed_groups: Mapping[str, Group]
    ) -> dict[str, GroupOffsets | TwinlogError]:
        shares = [g for g in groups if g in listed_groups and listed_groups[g].is_share]
        others = [g for g in groups if g not in shares]
        return offsets_of(self._coordinators, others, shares)

    # -- its execution

    def _within_current_logs(self, plan: GroupReset) -> GroupReset:
        """Return the plan with offsets moved into the current logs. Raises FlowError if the group's
        offsets have changed since the plan, or a topic was deleted or re-created.
        """
        fetch = fetch_share_offsets if plan.is_share else fetch_offsets
        committed = or_raise(fetch(self._coordinators, [plan.group])[plan.group])
        now = {tp: before.offset for tp, before in committed.items()}
        moved = [offset.tp for offset in plan.offsets if now.get(offset.tp) != offset.before]
        where = f"cluster {self._client.alias}: group {plan.group}"
        if moved:
            raise FlowError(
                f"{where}: its offsets have changed since the check "
                f"({first_few(map(str, moved))}), so nothing is set. Stop the group's consumers, "
                "and run the command again",
                code="GROUP_ACTIVE",
            )
        seen = self._client.metadata(sorted(plan.topic_ids)).topics
        newer = [t for t, topic_id in plan.topic_ids.items() if seen[t].topic_id != topic_id]
        if newer:
            raise FlowError(
                f"{where} is not changed, because {first_few(newer)} was deleted or re-created "
                "after the check: run the command again",
                code="NO_OFFSETS",
            )
        logs = self._logs(Goal(kind=GoalKind.EARLIEST), [offset.tp for offset in plan.offsets])
        return replace(
            plan,
            offsets=tuple(_within_current_log(offset, logs[offset.tp]) for offset in plan.offsets),
        )

    def _set(self, plan: GroupReset) -> None:
        commit: Commit = alter_start_offsets if plan.is_share else commit_offsets
        offsets = {offset.tp: Committed(offset=offset.after) for offset in plan.offsets}
        answer = commit(self._coordinators, {plan.group: offsets})[plan.group]
        if isinstance(answer, TwinlogError):
            raise self._error_with_members(plan, answer)
        refused = {tp: error for tp, error in answer.items() if error is not None}
        if refused:
            raise self._set_back(plan, refused, commit)

    def _error_with_members(self, plan: GroupReset, error: TwinlogError) -> TwinlogError:
        """Return the error to report: `error` or, if the group has got members, an error that names
        them.
        """
        if not is_refused_as_active(error):
            return error
        listed = list_groups(self._coordinators).get(plan.group)
        members = {} if listed is None else group_members(self._coordinators, [listed])
        return self._active_error(plan.group, members.get(plan.group, ()))

    def _set_back(
        self, plan: GroupReset, refused: Mapping[TopicPartition, TwinlogError], commit: Commit
    ) -> TwinlogError:
        """Restore the group's former offsets in partitions that were set, because brokers refused
        the new offsets of other partitions (`refused`). Return the error to report.
        """
        tp, error = next(iter(refused.items()))
        if is_refused_as_active(error):
            return self._error_with_members(plan, error)
        done = [offset for offset in plan.offsets if offset.tp not in refused]
        before = {o.tp: Committed(o.before, o.metadata) for o in done if o.before is not None}
        answer: CommitResult | TwinlogError = {}
        if before:
            answer = commit(self._coordinators, {plan.group: before})[plan.group]
        if isinstance(answer, TwinlogError):
            left = [offset.tp for offset in done]
        else:
            left = [offset.tp for offset in done if offset.before is None or answer.get(offset.tp)]
        rest = "the former offsets of the other partitions were restored"
        if left:
            rest = (
                f"the former offsets of {plural(len(left), 'other partition')} could not be "
                f"restored ({first_few(map(str, left))})"
            )
        return FlowError(
            f"cluster {self._client.alias}: group {plan.group}: the coordinator refused the offset "
            f"of {tp}: {error}; {rest}",
            code=error.code,
        )

    def _active_error(self, group: str, members: Sequence[Any] | TwinlogError) -> FlowError:
        who = str(members) if isinstance(members, TwinlogError) else members_text(members)
        return FlowError(
            f"cluster {self._client.alias}: group {group} is active ({who}), so its offsets are "
            "not changed: stop its consumers first",
            code="GROUP_ACTIVE",
        )

    def _kind_error(self, group: Group) -> FlowError:
        why = f"its protocol is {group.protocol_type}"
        if is_own_group(group.name):
            why = "it is one of Twinlog's own groups"
        return FlowError(
            f"cluster {self._client.alias}: group {group.name} has no consumer offsets, because "
            f"{why}: check the group's name",
            code="NO_OFFSETS",
        )


def _can_be_reset(group: Group) -> bool:
    return (group.has_offsets or group.is_share) and not is_own_group(group.name)


def _within_current_log(offset: ResetOffset, log: ResetBounds | TwinlogError) -> ResetOffset:
    """Return the planned offset, moved into the current log if it is outside."""
    after, fit = _clamped(offset.after, or_raise(log))
    return offset if fit is Fit.AS_REQUESTED else replace(offset, after=after, fit=fit)
