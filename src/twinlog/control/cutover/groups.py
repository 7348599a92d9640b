"""Plans the offset at which each group resumes on the target, sets it, and checks it afterwards.

A group's commits are read from the source, and its newest checkpoints from the target. If the
source is lost, only the checkpoints count. A failover from a source that responds uses the higher
of the two offsets, because the source may have lost its groups. A switchover uses a checkpoint only
if the source does not list the topic, or hides the group from this user.

Offsets are only moved forward. Offsets of a group that is in use on the target are never set: the
group's coordinator refuses that, even if the members joined a moment ago. So if a command dies
while it sets offsets, it can be repeated with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_offsets import (
    Committed,
    GroupOffsets,
    commit_offsets,
    fetch_offsets,
    is_refused_as_active,
)
from twinlog.cluster.net.metadata import Operation
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.control.cutover.copies import Copy, FlowUpstreams, first_uncopied
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.control.groups.checkpoint_rows import CheckpointRow
from twinlog.errors import TwinlogError, Unauthorized, or_raise
from twinlog.mirror.findings import Span
from twinlog.model import NO_TOPIC_ID, TopicPartition, is_own_group
from twinlog.quantities import count, first_few, plural
from twinlog.survey.rights import denied_error
from twinlog.wire.error_codes import TOPIC_AUTHORIZATION_FAILED

SHOWN = 10
"""Maximum number of partitions per group in the text output."""

Commits: TypeAlias = Mapping[str, Mapping[TopicPartition, Committed]]
"""Committed offset at which each group resumes on the source, by group and partition."""


class GroupOutcome(StrEnum):
    """What a cutover does, or has done, with the offset of a group in one partition."""

    BEHIND = "to be set"
    ALREADY_SET = "already set"
    AHEAD = "further on the target, not changed"
    LEFT = "translated offset unknown, not changed"
    NO_COUNTERPART = "translated offset unknown, none on the target"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """One group in one partition: its offsets on the source and the target, and the planned one."""

    FIELDS = (
        "topic=source.topic partition=source.partition committed target_topic=target.topic to "
        "is_exact why_not_exact? now outcome"
    )

    source: TopicPartition
    committed: int
    metadata: str = ""
    target: TopicPartition
    to: int | None = None
    """The target offset at which the group resumes, or None if unknown."""
    why_not_exact: str = ""
    waits_for_copy: bool = False
    """True if `to` is not exact because the copy has not reached the committed offset."""
    now: int | None = None
    """The group's current offset on the target, or None if it has none."""

    @property
    def outcome(self) -> GroupOutcome:
        if self.to is None:
            return GroupOutcome.NO_COUNTERPART if self.now is None else GroupOutcome.LEFT
        if self.offsets_ahead:
            return GroupOutcome.AHEAD
        return GroupOutcome.ALREADY_SET if self.now == self.to else GroupOutcome.BEHIND

    @property
    def offsets_ahead(self) -> int:
        """Return by how much the group's offset on the target exceeds the planned one, or 0."""
        return 0 if self.now is None or self.to is None else max(0, self.now - self.to)

    @property
    def is_exact(self) -> bool:
        return not self.why_not_exact

    def __str__(self) -> str:
        text = f"{self.source} {self.committed} -> {self.target} {self.to}, {self.outcome}"
        if self.to is None:
            text = f"{self.source} {self.committed}: {self.outcome}"
        if self.outcome is GroupOutcome.AHEAD:
            text = f"{text}: at {self.now}, {count(self.offsets_ahead)} records further"
        return f"{text} (not exact: {self.why_not_exact})" if self.why_not_exact else text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The offsets of one group in all partitions of the scope."""

    FIELDS = (
        "group is_exact is_done from_checkpoints in_use_on_source "
        "in_use_on_target problem? places=partitions"
    )

    group: str
    partitions: tuple[GroupPartition, ...]
    from_checkpoints: bool = False
    """True if offsets are from the group's newest checkpoints. Later commits are unknown."""
    in_use_on_target: bool = False
    """True if the group has members on the target, so that none of its offsets is set."""
    in_use_on_source: bool = False
    problem: str = ""
    """Why the group's offsets on the target are unknown or were not set; else empty."""

    @property
    def is_exact(self) -> bool:
        """Return True if the group resumes at exactly the next record in every partition."""
        return not self.problem and all(partition.is_exact for partition in self.partitions)

    @property
    def is_done(self) -> bool:
        """Return True if the group has an offset on the target in each partition, at or after the
        planned offset if that is known.
        """
        done = (GroupOutcome.ALREADY_SET, GroupOutcome.AHEAD, GroupOutcome.LEFT)
        return not self.problem and all(partition.outcome in done for partition in self.partitions)

    @property
    def to_set(self) -> dict[TopicPartition, Committed]:
        """Return the offsets to commit on the target. Empty if the group is in use there or has a
        problem, because its coordinator would reject the offsets.
        """
        if self.in_use_on_target or self.problem:
            return {}
        return {
            partition.target: Committed(offset=partition.to, metadata=partition.metadata)
            for partition in self.partitions
            if partition.to is not None and partition.outcome is GroupOutcome.BEHIND
        }

    def skipping_lines(self) -> Iterator[str]:
        """Yield a line for each partition in which the group would skip records on the target,
        unless the group is in use there.
        """
        for partition in () if self.in_use_on_target else self.partitions:
            if partition.outcome is GroupOutcome.AHEAD and partition.is_exact:
                yield (
                    f"group {self.group} is at {partition.now} of {partition.target}, but its "
                    f"offset on the source corresponds to {partition.to}, so it would skip "
                    f"{count(partition.offsets_ahead)} records. Set the group back with twinlog "
                    f"offsets reset --to-offset {partition.to}"
                )

    def unset_lines(self) -> Iterator[str]:
        """If the group is in use on the target, yield a line for each partition without an offset
        there. Members start such partitions by auto.offset.reset, which may be the end of the log.
        """
        for partition in self.partitions if self.in_use_on_target else ():
            if partition.now is None and partition.to:
                yield (
                    f"group {self.group} is in use on the target and has no offset in "
                    f"{partition.target}: stop its consumers there, so that its offset is set to "
                    f"{partition.to}"
                )

    def lines(self) -> Iterator[str]:
        """Yield a line on the group, then one for each partition; inexact partitions come first."""
        notes = []
        if self.in_use_on_target:
            notes.append("in use on the target: its offsets are not changed")
        if self.from_checkpoints:
            notes.append("by its newest checkpoints")
        if self.problem:
            notes.append(self.problem)
        yield f"group {self.group}" + "".join(f", {note}" for note in notes)
        odd_first = sorted(self.partitions, key=lambda partition: partition.is_exact)
        yield from (f"  {partition}" for partition in odd_first[:SHOWN])
        if left := Counter(partition.outcome for partition in odd_first[SHOWN:]):
            more = ", ".join(f"{outcome}: {number}" for outcome, number in left.most_common())
            yield f"  and {plural(left.total(), 'partition')} more: {more} (--format json: all)"


class CutoverGroups:
    """The groups of a scope on both clusters; not thread-safe."""

    def __init__(self, scope: CutoverScope, *, is_failover: bool = False) -> None:
        self._scope = scope
        self._is_failover = is_failover
        self._source_groups = Coordinators(scope.source)
        self._target_groups = Coordinators(scope.target)
        self._rows: dict[tuple[str, TopicPartition], CheckpointRow] = {}
        """Newest checkpoints by group and target partition. Each plan adds the checkpoints that
        were written since the previous plan.
        """
        self._next = 0

    def plan(self, copies: Sequence[Copy], *, settled: bool = False) -> list[GroupPlan]:
        """Return a plan for every selected group that has committed offsets in the scope's topics.

        `settled`: the drain is over. Wait for pending transactional offset commits, and raise if
        they stay pending.
        """
        copies_by_source = {copy.source: copy for copy in copies}
        listed_groups = (
            {} if self._scope.source_problem is not None else list_groups(self._source_groups)
        )
        checkpoints = self._checkpoints(copies_by_source)
        selects = self._scope.config.groups.selects
        names = {name for name, group in listed_groups.items() if group.has_offsets} | {
            *checkpoints
        }
        names = {name for name in names if selects(name)}
        target_groups = list_groups(self._target_groups)
        # read target offsets before the source's commits. If a group sync ran between the two
        # reads, newer target offsets would seem to be ahead of older commits
        now = fetch_offsets(self._target_groups, names)
        commits: Commits = {}
        hidden: frozenset[str] = frozenset()
        if self._scope.source_problem is None:
            commits, hidden = self._commits(names, listed_groups, settled=settled)
        wanted = {
            group: self._source_offsets(
                copies_by_source,
                commits.get(group, {}),
                checkpoints.get(group, {}),
                is_listed=group in listed_groups,
                is_hidden=group in hidden,
            )
            for group in sorted(names)
        }
        offsets = {
            (commit.source, commit.offset) for commits in wanted.values() for commit in commits
        }
        alone = _offsets_missing_records(self._scope, copies_by_source, offsets)
        whole = _without_records(self._scope, copies_by_source, offsets, settled=settled)
        return [
            GroupPlan(
                group=group,
                partitions=tuple(
                    _position(
                        self._scope,
                        commit,
                        copies_by_source.get(commit.source),
                        now[group],
                        alone,
                        whole,
                    )
                    for commit in commits
                ),
                from_checkpoints=any(commit.is_checkpoint for commit in commits),
                in_use_on_target=group in target_groups and target_groups[group].is_active,
                in_use_on_source=group in listed_groups and listed_groups[group].is_active,
                problem=str(answer) if isinstance(answer := now[group], TwinlogError) else "",
            )
            for group, commits in wanted.items()
            if commits
        ]

    def problem(self) -> str:
        """Return why groups of a lost source may be missing from the plan, or an empty text."""
        scope = self._scope
        topic = scope.policy.checkpoints_topic(scope.config.source_alias)
        if scope.source_problem is None or not scope.config.groups.include.entries:
            return ""
        if not scope.target.metadata([topic]).topics[topic].error:
            return ""
        return (
            f"{scope.target.alias} has no topic {topic}, so the groups of the source are unknown: "
            "set their offsets before their consumers start, with twinlog offsets reset"
        )

    def excluded(self) -> list[str]:
        """Return the groups with offsets in the scope's topics that `groups` includes and
        `groups.exclude` excludes again.
        """
        config = self._scope.config.groups
        names = [
            name
            for name, group in list_groups(self._source_groups).items()
            if group.has_offsets and not is_own_group(name)
            if config.include.matches(name) and config.exclude.matches(name)
        ]
        return sorted(
            name
            for name, answer in fetch_offsets(self._source_groups, names).items()
            if not isinstance(answer, TwinlogError)
            and any(self._scope.covers(tp.topic) for tp in answer)
        )

    def set(self, plans: Iterable[GroupPlan]) -> dict[str, str]:
        """Set offsets that are behind the planned ones. Return a reason for each rejected group."""
        wanted: dict[str, GroupOffsets] = {plan.group: plan.to_set for plan in plans if plan.to_set}
        refused: dict[str, str] = {}
        for group, answer in commit_offsets(self._target_groups, wanted).items():
            problems = [answer] if isinstance(answer, TwinlogError) else answer.values()
            problem = next((problem for problem in problems if problem is not None), None)
            if problem is not None:
                in_use = is_refused_as_active(problem)
                refused[group] = "it has become active on the target" if in_use else str(problem)
        return refused

    def set_all(self, plans: Sequence[GroupPlan], say: Say, why: str = "") -> None:
        """Set the offsets that are behind the planned ones. Report each group that was set or
        rejected.

        `why`: a phrase for the report, such as "had no offset on the target".
        """
        wanted = [plan.group for plan in plans if plan.to_set]
        refused = self.set(plans)
        because = f", which {why}," if why else ""
        for group, problem in refused.items():
            say(f"groups: offsets of {group}{because} were rejected: {problem}")
        if done := [group for group in wanted if group not in refused]:
            because = f" ({why})" if why else ""
            say(f"groups: {plural(len(done), 'group')} set{because}: {first_few(done)}")

    def _commits(
        self, names: Iterable[str], listed_groups: Mapping[str, Group], *, settled: bool
    ) -> tuple[Commits, frozenset[str]]:
        """Return (commits, hidden). `commits`: the committed offsets on the source. `hidden`: the
        groups that the source hides from this user.
        """
        answers = fetch_offsets(self._source_groups, names, settled=settled)
        hidden = frozenset(
            group
            for group, offsets in answers.items()
            if isinstance(offsets, Unauthorized) and group not in listed_groups
        )
        # other errors are raised, because a group without a plan would have no offset to resume at
        return {group: or_raise(answers[group]) for group in answers if group not in hidden}, hidden

    def _checkpoints(self, copies: Mapping[TopicPartition, Copy]) -> Commits:
        """Return the newest checkpoints by group and partition of the source. Checkpoints of an
        earlier topic of the same name are left out.

        Raises Unauthorized if this user is not permitted to see the checkpoints topic, because
        otherwise groups would be silently missing from the plan.
        """
        scope, out = self._scope, dict[str, dict[TopicPartition, Committed]]()
        topic = scope.policy.checkpoints_topic(scope.config.source_alias)
        target_topics = scope.target.metadata(None).topics
        if topic not in target_topics:
            error = scope.target.metadata([topic]).topics[topic].error
            if error == TOPIC_AUTHORIZATION_FAILED:
                raise denied_error(scope.target.alias, Operation.READ.name, topic)
            if error:
                return out
        records = [*read_to_end(scope.target, topic, 0, self._next)]
        self._next = records[-1].offset + 1 if records else self._next
        self._rows |= {row.key: row for row in CheckpointRow.decode_all(records)}
        upstreams = FlowUpstreams.of(scope.config, scope.rows().copies.values())
        for (group, tp), row in self._rows.items():
            topic_id = (
                NO_TOPIC_ID if tp.topic not in target_topics else target_topics[tp.topic].topic_id
            )
            upstream = upstreams.name(tp.topic, topic_id)
            if upstream is None or not scope.covers(upstream):
                continue
            source = TopicPartition(upstream, tp.partition)
            copy = copies.get(source)
            if copy is None or row.is_of(copy.source_topic_id, copy.target_topic_id):
                committed = Committed(row.checkpoint.upstream_offset, row.checkpoint.metadata)
                out.setdefault(group, {})[source] = committed
        return out

    def _source_offsets(
        self,
        copies: Mapping[TopicPartition, Copy],
        commits: Mapping[TopicPartition, Committed],
        checkpoints: Mapping[TopicPartition, Committed],
        *,
        is_listed: bool,
        is_hidden: bool,
    ) -> list[_SourceOffset]:
        """Return the offset at which a group resumes on the source, for each partition."""
        is_unseen = not is_listed or self._is_failover or self._scope.source_problem is not None
        out = []
        for tp in sorted({*commits, *checkpoints}):
            copy = copies.get(tp)
            resume_points = [_SourceOffset(tp, *commits[tp])] if tp in commits else []
            if tp in checkpoints and (is_unseen or (copy is not None and copy.unlisted)):
                commit = _SourceOffset(
                    tp, *checkpoints[tp], is_checkpoint=True, is_hidden=is_hidden
                )
                resume_points.append(commit)
            if resume_points and self._scope.covers(tp.topic):
                out.append(max(resume_points, key=lambda commit: commit.offset))
        return out


class _SourceOffset(NamedTuple):
    """The offset at which a group resumes in one partition of the source."""

    source: TopicPartition
    offset: int
    metadata: str
    is_checkpoint: bool = False
    is_hidden: bool = False
    """True if the source responds but hides the group from this user."""


def _position(
    scope: CutoverScope,
    position: _SourceOffset,
    copy: Copy | None,
    now: GroupOffsets | TwinlogError,
    alone: Mapping[tuple[TopicPartition, int], str],
    complete: Collection[tuple[TopicPartition, int]],
) -> GroupPartition:
    tp, offset = position.source, position.offset
    remote = TopicPartition(scope.remote(tp.topic), tp.partition)
    target = remote if copy is None else copy.target
    translation = None if copy is None else copy.translate(offset)
    why, is_ahead = "", False
    if translation is None:
        why = "nothing of it was copied, or its records are partitioned by key"
        if copy is not None and copy.problem:
            why = copy.problem
    elif copy is not None and (translation.is_exact or (tp, offset) in complete):
        why = alone.get((tp, offset), "")
        if not why and position.is_hidden:
            why = "this user may not see the group on the source, so its checkpoint is used"
    elif copy is not None:
        why = "MirrorMaker 2 copied the records at this offset"
        is_ahead = offset > copy.copied_to
        if is_ahead:
            why = f"the copy ends at {copy.copied_to}, {offset - copy.copied_to} before this offset"
    committed = None if isinstance(now, TwinlogError) else now.get(target)
    return GroupPartition(
        source=tp,
        committed=offset,
        metadata=position.metadata,
        target=target,
        to=None if translation is None else translation.offset,
        why_not_exact=why,
        waits_for_copy=is_ahead,
        now=None if committed is None else committed.offset,
    )


def _without_records(
    scope: CutoverScope,
    copies: Mapping[TopicPartition, Copy],
    offsets: Iterable[tuple[TopicPartition, int]],
    *,
    settled: bool,
) -> set[tuple[TopicPartition, int]]:
    """Return the committed offsets that are after the end of a copy, if no record is between that
    end and the offset.

    Consumers commit such offsets after transaction markers, and after aborted and compacted
    records. `settled`: the drain has shown that no record was deleted before it was copied.
    """
    past = [
        (tp, offset)
        for tp, offset in offsets
        if tp in copies and copies[tp].is_translated
        if copies[tp].copied_to < offset <= (copies[tp].source_end or 0)
        if settled or copies[tp].deleted is None
    ]
    spans: dict[TopicPartition, Span] = {}
    for tp, offset in sorted(past):
        # ascending, so that `spans` has the highest offset of each partition
        spans[tp] = Span(copies[tp].copied_to, offset)
    records = first_uncopied(scope, spans) if spans else {}
    return {(tp, offset) for tp, offset in past if tp not in records or offset <= records[tp]}


def _offsets_missing_records(
    scope: CutoverScope,
    copies: Mapping[TopicPartition, Copy],
    offsets: Iterable[tuple[TopicPartition, int]],
) -> dict[tuple[TopicPartition, int], str]:
    """Return the offsets from which a group would miss records on the target, with the reason. Only
    the source has these records: they were never copied, or the target has deleted them. If the
    source is lost, every offset before the target's first record is returned, because it is unknown
    which records the source had.
    """
    out: dict[tuple[TopicPartition, int], str] = {}
    left = []
    for tp, offset in sorted(offsets):
        first = copies[tp].first_on_target if tp in copies else 0
        if offset < first and copies[tp].source_start is None:
            out[tp, offset] = f"records below {first} are not on the target"
        elif offset < first:
            left.append((tp, offset))
    while left:
        spans: dict[TopicPartition, Span] = {}
        for tp, offset in left:
            copy = copies[tp]
            spans.setdefault(tp, Span(max(offset, copy.source_start or 0), copy.first_on_target))
        records, asked = first_uncopied(scope, spans), left
        left = []
        for tp, offset in asked:
            if tp in records and offset <= records[tp]:
                first = copies[tp].first_on_target
                out[tp, offset] = f"records below {first} are on the source alone"
            elif tp in records:
                left.append((tp, offset))  # search again: the record found is before this offset
    return out
