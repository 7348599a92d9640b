"""Failover: the source is lost or given up, and the copy on the target becomes the original.

A source counts as lost if its cluster ID is not that of the cluster from which the flow copied.
Then it was restored with empty disks, or the file names the wrong cluster. A source that responds
may also have lost topics or groups, so the plan is made from both clusters.

    groups -> promote -> wait until the copy has ended -> groups again

The table of `control.cutover` has the phases. Groups are set from their last known commits. If a
mirror is still running, it copies until the promotion. Only `flow demote` undoes the promotion, and
only before other clients have written to the remote topics. Groups are set again after the copy has
ended, and these offsets are final. The copy may have advanced since the first time, so a group that
was ahead of the copy may resume at a later offset.

Every step reads the current state and does what is missing. So a run that dies at any step, or that
loses a response, can be repeated and ends the same way. Two concurrent runs do the same work twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from twinlog.control.cutover.copies import NOTHING, Copy, copies, incomplete
from twinlog.control.cutover.groups import CutoverGroups, GroupOutcome, GroupPlan
from twinlog.control.cutover.newest_status import NewestStatus, newest_status, other_config
from twinlog.control.cutover.promotion import (
    has_promoted,
    is_promoted,
    promote,
    require_promoted,
    wait_until_over,
)
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.encoded import encoded
from twinlog.errors import FlowError, TwinlogError
from twinlog.mirror.names.renaming import unkept_names
from twinlog.model import TopicPartition
from twinlog.quantities import count, duration, plural

MOST_LINES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverPlan:
    """The result of a failover if it ran now: which records would be lost, where groups resume."""

    FIELDS = (
        "flow is_clear=is_open promoted? source_problem? notes told=newest groups_problem? "
        "partitions groups"
    )

    flow: str
    source_problem: str
    """Why the source cannot be used; empty if it can be used."""
    newest: NewestStatus
    copies: tuple[Copy, ...]
    groups: tuple[GroupPlan, ...]
    promoted: str
    """Who promoted the flow and when, or empty if the flow is not promoted."""
    lacking: frozenset[TopicPartition] = frozenset()
    """Partitions whose source has records that the target lacks; empty if the source is lost."""
    notes: tuple[str, ...] = ()
    """Facts that operators need before clients move to the target."""
    is_whole_flow: bool = True
    """False if a mirror with another configuration leads the flow, and may copy other topics than
    the plan has.
    """
    groups_problem: str = ""
    """Why `groups` might lack some selected groups; empty if no reason is known."""

    @property
    def topics(self) -> list[str]:
        """The source topics that fail over."""
        return sorted({copy.source.topic for copy in self.copies})

    def missing(self, copy: Copy) -> int | None:
        """Return the number of source offsets that are known to be missing on the target, or None
        if unknown. Markers and compacted records are included, unless nothing else is missing.
        """
        reported = self.newest.missing(copy.source, copy.copied_to)
        if self.source_problem or (copy.deleted and copy.is_copied and reported == 0):
            return reported
        if not copy.left or copy.source in self.lacking or (copy.deleted and copy.is_copied):
            return copy.left
        # only markers are missing, or records that were compacted away or expired before the copy
        return 0

    @property
    def is_open(self) -> bool:
        """Return True if no record would be lost, and every group would resume exactly."""
        if not self.copies or any(not self._is_whole(copy) for copy in self.copies):
            return False
        if self.groups_problem or not self.is_whole_flow:
            return False
        exact = (group.is_exact and not group.in_use_on_target for group in self.groups)
        return all(exact) and not any(
            line for group in self.groups for line in group.skipping_lines()
        )

    def _is_whole(self, copy: Copy) -> bool:
        is_known = copy.is_copied or copy.problem == NOTHING
        is_odd = copy.unlisted or copy.problem not in ("", NOTHING)
        return is_known and not is_odd and self.missing(copy) == 0

    def lines(self) -> Iterator[str]:
        """Yield the plan as text."""
        if self.promoted:
            yield f"{self.flow}: {self.promoted}; the remote topics are the originals"
        if self.source_problem:
            yield f"the source cannot be used: {self.source_problem}"
            yield self.newest.line()
        yield from self.notes
        yield from self._copied()
        if self.groups_problem:
            yield f"groups: {self.groups_problem}"
        elif not self.groups:
            where = "the checkpoints have" if self.source_problem else "the source has"
            yield (
                f"{where} no group of this flow: consumers start according to their "
                "auto.offset.reset"
            )
        for group in self.groups:
            yield from group.lines()
            yield from group.skipping_lines()

    def _copied(self) -> Iterator[str]:
        late = [copy for copy in self.copies if not self._is_whole(copy)]
        whole = len(self.copies) - len(late)
        yield f"{plural(whole, 'partition')} of {len(self.copies)} complete, as far as is known"
        for copy in late[:MOST_LINES]:
            yield f"  {copy.source}: {self._copy_line(copy)}"
        if len(late) > MOST_LINES:
            yield f"  and {plural(len(late) - MOST_LINES, 'more partition')}: --format json"

    def _copy_line(self, copy: Copy) -> str:
        missing = self.missing(copy)
        if copy.problem or not copy.is_copied:
            return copy.problem or NOTHING
        if copy.unlisted or missing is None:
            why = copy.unlisted or "records after it are unknown"
            return f"copied up to offset {copy.copied_to}; {why}"
        span = f"[{copy.copied_to}, {copy.copied_to + missing})"
        text = f"copied up to offset {copy.copied_to}; {span} is missing, up to {count(missing)}"
        ago = "" if not copy.behind_ms else f" of the last {duration(copy.behind_ms / 1000)}"
        return f"{text} records{ago}"

    @property
    def partitions(self) -> list[dict[str, Any]]:
        return [{**encoded(copy), "missing": self.missing(copy)} for copy in self.copies]


class Failover:
    """Runs one failover command; not thread-safe."""

    def __init__(self, scope: CutoverScope, say: Say = lambda _: None) -> None:
        self._scope, self.say = scope, say
        self._groups = CutoverGroups(scope, is_failover=True)

    def plan(self) -> FailoverPlan:
        """Return the plan, changing nothing."""
        scope = self._scope
        current, groups = self._survey()
        promotion = scope.intents().promotion
        lacking: Iterable[Copy] = ()
        other = other_config(scope)
        notes = [*unkept_names(scope.config, {copy.source.topic for copy in current})]
        if scope.source_problem is None:
            lacking = incomplete(scope, current)
        return FailoverPlan(
            flow=scope.name,
            source_problem="" if scope.source_problem is None else str(scope.source_problem),
            newest=newest_status(scope),
            copies=tuple(current),
            groups=tuple(groups),
            promoted="" if promotion is None else f"promoted {promotion}",
            lacking=frozenset(copy.source for copy in lacking),
            notes=(*notes, *other),
            is_whole_flow=not other,
            groups_problem=self._groups.problem(),
        )

    def _survey(self) -> tuple[list[Copy], list[GroupPlan]]:
        """Return the copies, and the groups' plans.

        If reading both clusters fails twice, this command treats the source as lost and reads only
        from the target, even if some brokers of the source respond. The first error may be the
        target's. Topics that another operator has resumed since the command began are included.
        """
        self._scope.joined()
        for is_last in (False, True):
            if self._scope.source_problem is not None:
                break
            try:
                current = copies(self._scope)
                return current, self._groups.plan(current)
            except TwinlogError as error:
                if is_last:
                    self._scope.source_problem = error
        current = copies(self._scope)
        return current, self._groups.plan(current)

    def run(self, plan: FailoverPlan) -> list[GroupPlan]:
        """Run the remaining steps. Return the groups that would resume at the wrong offset."""
        scope, say, topics = self._scope, self.say, plan.topics
        scope.require_copied()
        if not scope.is_whole and not topics:
            raise scope.error(
                "no topic that matches --topics was copied: `twinlog status FILE` lists the copied "
                "topics",
                code="NOT_COPIED",
            )
        if is_promoted(scope, scope.intents(), topics):
            say("promote: already done")
        else:
            self._groups.set_all(self._survey()[1], say)  # read again: the plan may be outdated
            say("promote: the point of no return. Only twinlog flow demote reverts the promotion,")
            say("  if no client has written to the remote topics")
            promote(scope, topics)
            say(f"promote: {'the flow' if scope.is_whole else plural(len(topics), 'topic')}")
        remotes = {copy.target.topic for copy in plan.copies}
        wait_until_over(scope, remotes, lambda line: say(f"promote: {line}"))
        left = self._set_offsets()
        require_promoted(scope, topics)
        for left_plan in left:
            say(f"groups: {left_plan.group} is not set: {_why_not_set(left_plan)}")
        after = "the flow copies nothing more to the target, even if its source is available again"
        if left:
            say(f"done, but {plural(len(left), 'group')} would resume at the wrong offset: set the")
            say(f"  offset before the clients start on the target; {after}")
        else:
            say(f"done: clients may move to the target; {after}")
        return left

    def abort(self) -> None:
        """Report that there is nothing to undo. After the promotion, raise FlowError (PROMOTED)."""
        if has_promoted(self._scope, self._scope.intents()):
            raise promoted_error(self._scope)
        self.say("nothing was promoted, so there is nothing to undo; groups that were set keep")
        self.say("  their offsets, as after a group sync")

    def _set_offsets(self) -> list[GroupPlan]:
        self._groups.set_all(self._survey()[1], self.say)
        after = self._survey()[1]
        done = sum(plan.is_done for plan in after)
        self.say(
            f"groups: {done} of {plural(len(after), 'group')} at or after their translated offsets"
        )
        return [plan for plan in after if not plan.is_done]


def _why_not_set(plan: GroupPlan) -> str:
    if plan.problem:
        return plan.problem
    if plan.in_use_on_target:
        return (
            "it is in use on the target, before its translated offset: stop its consumers and run "
            "the command again"
        )
    nowhere = [
        position for position in plan.partitions if position.outcome is GroupOutcome.NO_COUNTERPART
    ]
    return str(nowhere[0]) if nowhere else "its offsets were rejected: run the command again"


def promoted_error(scope: CutoverScope) -> FlowError:
    """Return the error for an abort after the promotion."""
    return scope.error(
        "its topics were promoted, and producers may have written to the remote topics since. "
        "Nothing was changed. If no producer has, undo the promotion with twinlog flow demote",
        code="PROMOTED",
    )
