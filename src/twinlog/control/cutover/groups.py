"""Where each group resumes on the target: planned, set, and compared with what was planned.

A group's commits are read from the source, or, where that does not answer, from its newest
checkpoints. Offsets are set forwards only, and never of a group that is in use on the target: its
coordinator itself refuses that, also where members came a moment ago. So to set them twice, or to
die in between and set them again, ends the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import Group, list_groups
from twinlog.cluster.groups.group_offsets import (
    Committed,
    GroupOffsets,
    commit_offsets,
    fetch_offsets,
    is_refused_as_active,
)
from twinlog.cluster.topics.internal_log import read_to_end
from twinlog.control.cutover.copies import Copy, has_records
from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import TwinlogError, or_raise
from twinlog.model import NO_TOPIC_ID, TopicPartition
from twinlog.quantities import plural
from twinlog.wire.mm2_records import Checkpoint

SHOWN = 10
"""Partitions of a group, for people."""

Commits: TypeAlias = Mapping[str, Mapping[TopicPartition, Committed]]
"""By group: where it resumes in partitions of the source."""


class GroupOutcome(StrEnum):
    """What is to be done with a group in one partition, or was."""

    BEHIND = "to be set"
    THERE = "is there"
    AHEAD = "is further there: left"
    LEFT = "its place is not known: left where it stands"
    NO_COUNTERPART = "has no place there: left"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """One group in one partition."""

    source: TopicPartition
    committed: int
    metadata: str = ""
    target: TopicPartition
    to: int = -1
    """Where it resumes on the target; -1: no offset is known."""
    why_not_exact: str = ""
    waits_for_copy: bool = False
    """It is not exact because the copy is not there yet."""
    now: int = -1
    """Where it stands there; -1: nowhere."""

    @property
    def outcome(self) -> GroupOutcome:
        if self.to < 0:
            return GroupOutcome.NO_COUNTERPART if self.now < 0 else GroupOutcome.LEFT
        if self.now > self.to:
            return GroupOutcome.AHEAD
        return GroupOutcome.THERE if self.now == self.to else GroupOutcome.BEHIND

    @property
    def is_exact(self) -> bool:
        return not self.why_not_exact

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "committed": self.committed,
            "target_topic": self.target.topic,
            "to": self.to,
            "is_exact": self.is_exact,
            "why_not_exact": self.why_not_exact or None,
            "now": self.now,
            "outcome": self.outcome.value,
        }

    def __str__(self) -> str:
        text = f"{self.source} {self.committed} -> {self.target} {self.to}, {self.outcome}"
        if self.to < 0:
            text = f"{self.source} {self.committed}: {self.outcome}"
        if self.outcome is GroupOutcome.AHEAD:
            text = f"{text} at {self.now}"
        return f"{text} (not exact: {self.why_not_exact})" if self.why_not_exact else text


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One group."""

    group: str
    partitions: tuple[GroupPartition, ...]
    from_checkpoints: bool = False
    """Its newest checkpoints are meant: what it committed after the last one is not known."""
    in_use_there: bool = False
    """It has members on the target: nothing of it is set."""
    in_use_here: bool = False
    problem: str = ""
    """Why its offsets on the target are not known, or were not set."""

    @property
    def is_exact(self) -> bool:
        """It resumes at exactly the next record everywhere."""
        return not self.problem and all(one.is_exact for one in self.partitions)

    @property
    def is_done(self) -> bool:
        """It stands on the target where it should, or further."""
        done = (GroupOutcome.THERE, GroupOutcome.AHEAD, GroupOutcome.LEFT)
        return not self.problem and all(one.outcome in done for one in self.partitions)

    @property
    def to_set(self) -> dict[TopicPartition, Committed]:
        """What is to be committed on the target; nothing where that would be refused."""
        if self.in_use_there or self.problem:
            return {}
        behind = (one for one in self.partitions if one.outcome is GroupOutcome.BEHIND)
        return {one.target: Committed(offset=one.to, metadata=one.metadata) for one in behind}

    def lines(self) -> Iterator[str]:
        """What is to be known of it, exact or not."""
        notes = []
        if self.in_use_there:
            notes.append("in use on the target: its offsets are left")
        if self.from_checkpoints:
            notes.append("by its newest checkpoints")
        if self.problem:
            notes.append(self.problem)
        yield f"group {self.group}" + "".join(f", {note}" for note in notes)
        odd_first = sorted(self.partitions, key=lambda one: one.is_exact)
        yield from (f"  {one}" for one in odd_first[:SHOWN])
        if left := Counter(one.outcome for one in odd_first[SHOWN:]):
            more = ", ".join(f"{outcome}: {number}" for outcome, number in left.most_common())
            yield f"  and {plural(left.total(), 'partition')} more: {more} (--format json: all)"

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "is_exact": self.is_exact,
            "is_done": self.is_done,
            "from_checkpoints": self.from_checkpoints,
            "in_use_on_source": self.in_use_here,
            "in_use_on_target": self.in_use_there,
            "problem": self.problem or None,
            "places": [one.as_json() for one in self.partitions],
        }


class CutoverGroups:
    """The groups of a scope on both clusters; for one thread."""

    def __init__(self, scope: CutoverScope) -> None:
        self._scope = scope
        self._here = Coordinators(scope.source)
        self._there = Coordinators(scope.target)

    def plan(self, copies: Sequence[Copy], *, settled: bool = False) -> list[GroupPlan]:
        """Every selected group that committed something in the scope's topics, as it is now.

        `settled`: one with offsets in an open transaction is waited for, and raises where it lasts.
        """
        known = {copy.source: copy for copy in copies}
        listed: Mapping[str, Group] = {}
        from_checkpoints = self._scope.source_problem is not None
        if from_checkpoints:
            commits = self._checkpoints()
        else:
            listed = list_groups(self._here)
            commits = self._commits(listed, settled=settled)
        wanted = {
            group: {tp: one for tp, one in offsets.items() if self._scope.covers(tp.topic)}
            for group, offsets in commits.items()
        }
        wanted = {group: offsets for group, offsets in wanted.items() if offsets}
        there = list_groups(self._there)
        now = fetch_offsets(self._there, wanted)
        return [
            _plan(
                self._scope,
                group,
                wanted[group],
                known,
                now[group],
                from_checkpoints=from_checkpoints,
                in_use_there=group in there and there[group].is_active,
                in_use_here=group in listed and listed[group].is_active,
            )
            for group in sorted(wanted)
        ]

    def set(self, plans: Iterable[GroupPlan]) -> dict[str, str]:
        """Set what is behind; groups that were refused, with the reason."""
        wanted: dict[str, GroupOffsets] = {one.group: one.to_set for one in plans if one.to_set}
        refused: dict[str, str] = {}
        for group, answer in commit_offsets(self._there, wanted).items():
            problems = [answer] if isinstance(answer, TwinlogError) else answer.values()
            problem = next((one for one in problems if one is not None), None)
            if problem is not None:
                in_use = is_refused_as_active(problem)
                refused[group] = "it came into use on the target" if in_use else str(problem)
        return refused

    def _commits(self, listed: Mapping[str, Group], *, settled: bool) -> Commits:
        selects = self._scope.config.groups.selects
        names = [name for name, one in listed.items() if one.has_offsets and selects(name)]
        found = fetch_offsets(self._here, names, settled=settled)
        # one that is left out by mistake would resume nowhere
        return {group: or_raise(offsets) for group, offsets in found.items()}

    def _checkpoints(self) -> Commits:
        scope, out = self._scope, dict[str, dict[TopicPartition, Committed]]()
        topic = scope.policy.checkpoints_topic(scope.config.source_alias)
        there = scope.target.metadata(None).topics
        found = there.get(topic)
        if found is None or found.error:
            return out
        upstreams = scope.upstreams()
        for one in Checkpoint.all_in(read_to_end(scope.target, topic, 0)):
            tp = one.topic_partition
            topic_id = NO_TOPIC_ID if tp.topic not in there else there[tp.topic].topic_id
            upstream = upstreams.name(tp.topic, topic_id)
            if upstream is not None and scope.config.groups.selects(one.group):
                source = TopicPartition(upstream, tp.partition)
                committed = Committed(offset=one.upstream_offset, metadata=one.metadata)
                out.setdefault(one.group, {})[source] = committed
        return out


def _plan(  # noqa: PLR0913 (all that was read)
    scope: CutoverScope,
    group: str,
    commits: Mapping[TopicPartition, Committed],
    known: Mapping[TopicPartition, Copy],
    now: GroupOffsets | TwinlogError,
    *,
    from_checkpoints: bool,
    in_use_there: bool,
    in_use_here: bool,
) -> GroupPlan:
    offsets: GroupOffsets = {} if isinstance(now, TwinlogError) else now
    positions = [
        _position(scope, tp, one, known.get(tp), offsets) for tp, one in sorted(commits.items())
    ]
    return GroupPlan(
        group=group,
        partitions=tuple(positions),
        from_checkpoints=from_checkpoints,
        in_use_there=in_use_there,
        in_use_here=in_use_here,
        problem=str(now) if isinstance(now, TwinlogError) else "",
    )


def _position(
    scope: CutoverScope,
    tp: TopicPartition,
    committed: Committed,
    copy: Copy | None,
    offsets: GroupOffsets,
) -> GroupPartition:
    remote = TopicPartition(scope.remote(tp.topic), tp.partition)
    target = remote if copy is None else copy.target
    found = None if copy is None else copy.translate(committed.offset)
    why, is_ahead = "", False
    if found is None:
        why = "nothing of it was copied, or its records are placed by key"
        if copy is not None and copy.problem:
            why = copy.problem
    elif copy is not None and found.is_exact:
        why = _alone_there(scope, copy, committed.offset)
    elif copy is not None:
        why = "a MirrorMaker 2 copied what is there"
        is_ahead = committed.offset > copy.upstream
        if is_ahead:
            why = f"the copy ends at {copy.upstream}, {committed.offset - copy.upstream} before it"
    there = offsets.get(target)
    return GroupPartition(
        source=tp,
        committed=committed.offset,
        metadata=committed.metadata,
        target=target,
        to=-1 if found is None else found.offset,
        why_not_exact=why,
        waits_for_copy=is_ahead,
        now=-1 if there is None else there.offset,
    )


def _alone_there(scope: CutoverScope, copy: Copy, committed: int) -> str:
    """Why a group that goes over would miss records: the source has them, and the target has not
    (any more). What a source that is gone had is not known.
    """
    first = copy.held_from
    if committed >= first:
        return ""
    if copy.source_start < 0:
        return f"what lay below {first} is not on the target"
    if not has_records(scope, copy.source, max(committed, copy.source_start), first):
        return ""
    return f"records below {first} are on the source alone"
