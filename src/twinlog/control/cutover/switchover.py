"""Switchover: clients move to the target while both clusters run, without losing records.

    gates -> fence -> proof of the fence -> drain -> groups -> promote -> hook

The table of `control.cutover` has the phases. Gates are checked only before the fence is set. After
the fence, lag no longer grows, and each step checks its own conditions. Before the promotion,
`abort` can remove the fence, and the flow continues unchanged.

A zombie is a run that was frozen and resumes after another run or after `abort`. A zombie can only
do what the rows of the state topic still permit. Right before its promotion, it checks that its
fence is still wanted and that no log has grown since its proof.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from twinlog.control.cutover.copies import FORGOTTEN, Copy, copies, first_uncopied, incomplete
from twinlog.control.cutover.drain import Drain, Ends, FenceProof
from twinlog.control.cutover.failover import promoted_error
from twinlog.control.cutover.fence import AclFence
from twinlog.control.cutover.gates import Gate, Gates, require_open
from twinlog.control.cutover.groups import CutoverGroups, GroupOutcome, GroupPlan
from twinlog.control.cutover.newest_status import newest_status, other_config
from twinlog.control.cutover.promotion import (
    has_promoted,
    is_promoted,
    promote,
    require_promoted,
    wait_until_over,
)
from twinlog.control.cutover.scope import CutoverScope, Say
from twinlog.errors import FlowError, TwinlogError
from twinlog.mirror.findings import Span
from twinlog.mirror.names.renaming import unkept_names
from twinlog.quantities import count, duration, first_few, plural, total

POLL_S = 0.5


class FenceKind(StrEnum):
    """The means of keeping producers from writing to the source."""

    ACL = "acl"
    HOOK = "hook"
    NONE = "none"

    @property
    def still_s(self) -> float:
        """Return for how many seconds the source's logs must not grow before the fence counts as
        proven. With ACLs the time is shorter, because brokers reject writers.
        """
        return 2.0 if self is FenceKind.ACL else 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverOptions:
    """Options of one switchover: the fence, hooks, accepted gates and limits."""

    fence: FenceKind = FenceKind.ACL
    fence_hook: str = ""
    hook: str = ""
    accepted: tuple[str, ...] = ()
    """Names of gates that the operator accepts although they are closed."""
    most_lag: int = 1000
    within_s: float = 120.0
    """Time limit of each step, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverPlan:
    """The current state of both clusters for a switchover: gates, copies, groups and fences."""

    FIELDS = "flow is_open promoted? fenced notes gates partitions=copies groups"

    flow: str
    gates: tuple[Gate, ...]
    copies: tuple[Copy, ...]
    groups: tuple[GroupPlan, ...]
    fenced: tuple[str, ...]
    """Source topics that have a fence of this flow."""
    is_begun: bool
    """True if an earlier run passed all gates: every topic has this flow's fence, and the fence is
    newer than any promotion.
    """
    promoted: str
    notes: tuple[str, ...] = ()
    """Facts that operators need before clients move to the target."""

    @property
    def topics(self) -> list[str]:
        return sorted({copy.source.topic for copy in self.copies})

    @property
    def is_open(self) -> bool:
        return all(gate.is_open for gate in self.gates)

    def lines(self) -> Iterator[str]:
        """Yield the plan as text."""
        if self.promoted:
            yield f"{self.flow}: {self.promoted}; the remote topics are the originals"
            return
        if self.fenced:
            yield (
                f"{self.flow}: producers of {plural(len(self.fenced), 'topic')} are fenced off "
                f"({first_few(self.fenced)}); undo this with twinlog switchover abort"
            )
        yield from self.notes
        for gate in self.gates:
            yield from gate.lines()
        left = total(copy.left for copy in self.copies) or 0
        yield f"{count(left)} offsets of {plural(len(self.copies), 'partition')} to be drained"
        for group in self.groups:
            yield from group.lines()
        closed = [gate.name for gate in self.gates if not gate.is_open]
        which = f"closed gates: {', '.join(closed)}" if closed else "all gates are open"
        yield f"{self.flow}: {which}"


@dataclass(slots=True)
class Switchover:
    """Runs one switchover command; not thread-safe."""

    scope: CutoverScope
    say: Say = lambda _: None
    options: SwitchoverOptions = SwitchoverOptions()
    before_groups: Callable[[], None] = lambda: None
    """Called between the drain and the setting of group offsets, for example to stop consumers."""
    groups: CutoverGroups = field(init=False)
    fence: AclFence = field(init=False)

    def __post_init__(self) -> None:
        self.groups = CutoverGroups(self.scope)
        self.fence = AclFence(self.scope)

    def plan(self) -> SwitchoverPlan:
        """Return the plan, changing nothing."""
        scope = self.scope
        scope.require_source()
        intents = scope.intents()
        current = copies(scope)
        groups = self.groups.plan(current)
        topics = sorted({copy.source.topic for copy in current})
        gates: list[Gate] = []
        promotion = intents.promotion
        is_over = is_promoted(scope, intents, topics)
        if not is_over:
            excluded = self.groups.excluded()
            gates = Gates(scope, current, groups, newest_status(scope), excluded).check_all(
                most_lag=self.options.most_lag
            )
        standing = self.fence.fenced_topics(intents)
        who = "promoted" if promotion is None else f"promoted {promotion}"
        return SwitchoverPlan(
            flow=scope.name,
            gates=tuple(gates),
            copies=tuple(current),
            groups=tuple(groups),
            fenced=tuple(standing),
            is_begun=bool(topics) and {*topics} <= {*standing} & scope.rows().fenced(scope.name),
            promoted=who if is_over else "",
            notes=tuple(unkept_names(scope.config, topics)),
        )

    def run(self, plan: SwitchoverPlan) -> Sequence[GroupPlan]:
        """Run all steps that are not done. Return an empty sequence, because a switchover leaves no
        group at a wrong offset. Raises FlowError if a step fails. Completed steps remain, and the
        same command continues after them.
        """
        began = time.monotonic()
        if plan.promoted:
            self.say("promote: already done")
        else:
            began = self._run_until_promoted(plan)
        remotes = {copy.target.topic for copy in plan.copies}
        wait_until_over(
            self.scope,
            remotes,
            lambda line: self.say(f"promote: {line}"),
            is_fenced=not plan.promoted,
        )
        if not plan.promoted:
            self._fence_again(plan.topics)
            # set offsets again, because a group that was inactive when they were set the first time
            # may have committed on the source since then
            plans = self.groups.plan(copies(self.scope), settled=True)
            self.groups.set_all(plans, self.say, "had moved on at the source")
        else:
            self._set_missing_offsets()
        self._require_all_copied()
        require_promoted(self.scope, plan.topics)
        took = f", {duration(time.monotonic() - began)} after the fence"
        self.say(f"promote: clients may move to the target{'' if plan.promoted else took};")
        self.say(f"  {self._fence_now(plan.topics)}")
        if self.options.hook:
            run_hook(self.scope, self.options.hook, "switch")
            self.say("hook: done")
        return ()

    def abort(self) -> None:
        """Remove the fence. Raises FlowError (PROMOTED) after the point of no return. This depends
        on as little as possible, so that producers can write again even if other parts fail.
        """
        self.scope.require_source()
        if has_promoted(self.scope, self.scope.intents()):
            raise promoted_error(self.scope)
        if self.options.fence is FenceKind.HOOK:
            run_hook(self.scope, self.options.fence_hook, "unfence")
            self.say("fence: removed by the hook")
        topics = self.fence.remove_own()
        if has_promoted(self.scope, self.scope.intents()):
            # another run promoted in the meantime
            self.fence.put_back(topics)
            if self.options.fence is FenceKind.HOOK:
                run_hook(self.scope, self.options.fence_hook, "fence")
                self.say("fence: set again by the hook")
            raise promoted_error(self.scope)
        self.say(
            f"fence: removed from {plural(len(topics), 'topic')}; the flow continues as before"
        )

    # -- steps

    def _run_until_promoted(self, plan: SwitchoverPlan) -> float:
        """Run the steps up to the promotion. Return the monotonic time when the fence was set."""
        self.scope.require_copied()
        if plan.is_begun:
            self.say("gates: an earlier run passed them, before it set the fence")
        else:
            require_open(self.scope, plan.gates, self.options.accepted)
        if not self.scope.is_led():
            raise self.scope.error(
                "no mirror runs to copy the remaining records: start one with twinlog "
                "mirror FILE, and run the same command again",
                code="NOT_DRAINED",
            )
        began = time.monotonic()
        self._fence(plan.topics)
        proof = FenceProof(self.scope, plan.topics)
        ends = proof.wait(
            lambda line: self.say(f"proof: {line}"),
            still_s=self.options.fence.still_s,
            within_s=self.options.within_s,
        )
        drain = Drain(self.scope, ends, accepts_loss="copy" in self.options.accepted)
        drain.wait(lambda line: self.say(f"drain: {line}"), within_s=self.options.within_s)
        self.before_groups()
        self._groups(ends)
        self._check_again(plan.topics, proof, ends, drain)
        self.say(
            "promote: the point of no return. switchover abort is refused after it. Only twinlog"
        )
        self.say(
            "  flow demote reverts the promotion, if no client has written to the remote topics"
        )
        promote(self.scope, plan.topics)
        return began

    def _fence(self, topics: Sequence[str]) -> None:
        match self.options.fence:
            case FenceKind.NONE:
                self.say("fence: none; the operator has stopped the producers")
            case FenceKind.HOOK:
                run_hook(self.scope, self.options.fence_hook, "fence")
                self.say("fence: by the hook")
            case FenceKind.ACL:
                others = self.fence.put_up(topics)
                self.say(f"fence: DENY WRITE for everybody on {plural(len(topics), 'topic')}")
                if others:
                    self.say(f"fence: existed before, and stays: {first_few(others)}")
                self._wait_until_enforced(topics)

    def _wait_until_enforced(self, topics: Sequence[str]) -> None:
        deadline = time.monotonic() + self.options.within_s
        while open_ := self.fence.open_brokers(topics):
            if time.monotonic() > deadline:
                raise self.scope.error(
                    f"brokers {open_} of the source do not enforce the fence "
                    "yet; run the same command again, or remove the fence with twinlog switchover "
                    "abort",
                    code="FENCE_LEAKS",
                )
            time.sleep(POLL_S)
        self.say("fence: every broker of the source enforces it")

    def _groups(self, ends: Ends) -> None:
        """Set all group offsets. Wait until each is set and no group still reads on the source."""
        deadline = time.monotonic() + self.options.within_s
        waits = False
        while True:
            # read once for both plans, because complete copies no longer change
            current = copies(self.scope)
            refused = self.groups.set(self.groups.plan(current, settled=True))
            plans = self.groups.plan(current, settled=True)
            left = [*self._remaining_problems(plans, refused), *self._unread_lines(plans, ends)]
            if not left:
                break
            if time.monotonic() > deadline:
                raise self.scope.error(
                    f"{first_few(left, joint='; ')}; run the same command again, or remove "
                    "the fence with twinlog switchover abort",
                    code="GROUPS_LEFT",
                )
            if not waits:
                waits = True
                self.say(f"groups: waiting: {first_few(left, joint='; ')}")
            time.sleep(POLL_S)
        for line in _overlaps(plans):
            self.say(f"groups: {line}")
        compared = plural(len(plans), "group")
        self.say(f"groups: {compared} compared, all at or after their translated offsets")

    def _remaining_problems(
        self, plans: Iterable[GroupPlan], refused: Mapping[str, str]
    ) -> Iterator[str]:
        taken = "groups" in self.options.accepted
        for plan in plans:
            if not taken:
                yield from plan.unset_lines()
            if plan.in_use_on_target or (taken and not plan.problem):
                continue
            if not (plan.is_done and plan.is_exact) or any(plan.skipping_lines()):
                why = refused.get(plan.group) or next(plan.lines())
                wrong = next((p for p in plan.partitions if not p.is_exact or p.now != p.to), None)
                yield f"group {plan.group} is not at its translated offset: {wrong or why}"

    def _unread_lines(self, plans: Iterable[GroupPlan], ends: Ends) -> Iterator[str]:
        """Yield a line for each group that has members on the source and has not read to `ends`.
        Records that the group still reads and commits there would be read again on the target.
        """
        for plan in plans:
            spans = {
                position.source: Span(position.committed, ends[position.source])
                for position in plan.partitions
                if plan.in_use_on_source and not plan.in_use_on_target and position.source in ends
            }
            for tp in first_uncopied(self.scope, spans):
                yield (
                    f"group {plan.group} still reads {tp} on the source, at {spans[tp].first} of "
                    f"{spans[tp].next}: let the group read to the end, or stop its consumers"
                )

    def _check_again(
        self, topics: Sequence[str], proof: FenceProof, ends: Ends, drain: Drain
    ) -> None:
        """Check again, right before the promotion, that all conditions still hold."""
        scope = self.scope
        if again := scope.joined():
            raise self._changed_error(
                f"{first_few(again)} was left out of this run, and is copied again, because "
                "another operator resumed or demoted it",
                "GATE_CLOSED",
            )
        current = copies(scope)
        new = sorted({copy.source for copy in current if not copy.unlisted} - {*ends})
        if new:
            named = first_few(map(str, new))
            raise self._changed_error(f"{named} was created on the source after the fence was set")
        unlisted = {f"{copy.source.topic}: {copy.unlisted}": 0 for copy in current if copy.unlisted}
        stopped = newest_status(scope).codes(scope.covers)
        other = other_config(scope)
        for gate, problems in (("mirror", other), ("topics", unlisted), ("copy", stopped)):
            if gate not in self.options.accepted and (reasons := first_few(problems, joint="; ")):
                raise self._changed_error(f"gate {gate} is closed now: {reasons}", "GATE_CLOSED")
        if self.options.fence is FenceKind.ACL and (open_ := self.fence.missing(topics)):
            raise self._changed_error(f"the fence was removed from {first_few(open_)}")
        if writers := proof.writers_since(ends):
            raise self._changed_error(
                f"producers wrote to the source: {first_few(map(str, writers))}"
            )
        if not drain.is_complete():
            raise self._changed_error("the copy is not complete any more")

    def _fence_again(self, topics: Sequence[str]) -> None:
        """Put the fence up again if `abort` has removed it in the meantime. `abort` removes the
        fence and then checks for a promotion. A run promotes and then checks the fence. So at least
        one of the two commands detects the other.
        """
        if self.options.fence is FenceKind.ACL and (open_ := self.fence.missing(topics)):
            self.say(f"fence: was removed from {first_few(open_)}, and is set again")
            self.fence.put_back(open_)
            self._wait_until_enforced(topics)

    def _fence_now(self, topics: Sequence[str]) -> str:
        """Return a line that reports whether ACLs still keep producers off the source."""
        if self.options.fence is not FenceKind.ACL:
            return "keep producers off the source yourself, because no ACL does"
        try:
            open_ = self.fence.missing(topics)
        except TwinlogError as error:
            return f"keep producers off the source yourself, because its ACLs are unknown: {error}"
        if open_:
            names = first_few(open_)
            return f"keep producers off the source yourself, because {names} has no fence"
        return "producers on the source stay fenced off"

    def _set_missing_offsets(self) -> None:
        """Set the offsets that groups lack on the target, because a command that sets no offsets
        (`flow promote`) may have promoted the flow. Existing offsets are not changed, because
        clients may already have moved to the target.
        """
        plans = [
            replace(plan, partitions=tuple(part for part in plan.partitions if part.now is None))
            for plan in self.groups.plan(copies(self.scope), settled=True)
        ]
        self.groups.set_all(plans, self.say, "had no offset on the target")

    def _require_all_copied(self) -> None:
        """Check again that every record is copied, because a producer that no fence stops may have
        written after the last check. Until clients move, the promotion can still be undone.
        """
        scope = self.scope
        current = [copy for copy in copies(scope) if copy.problem != FORGOTTEN]
        unseen = [
            f"{copy.source}: log end unknown"
            for copy in current
            if copy.source_end is None and not copy.unlisted
        ]
        late = unseen + [
            f"{copy.source} [{copy.copied_to}, {copy.source_end})"
            for copy in incomplete(scope, current)
        ]
        if not late:
            return
        what = f"records were written to the source after the copy ({first_few(late)})"
        if "copy" in self.options.accepted:
            self.say(f"promote: {what}: these records stay there, and are not on the target")
            return
        demote = "flow demote" if scope.is_whole else "topic demote"
        raise scope.error(
            f"its topics were promoted, but {what}. Do not move clients. To copy these records, "
            f"stop the producers on the source, undo the promotion with twinlog {demote}, and run "
            "the same command again. To leave them on the source, run it with --accept copy",
            code="FENCE_LEAKS",
        )

    def _changed_error(self, what: str, code: str = "FENCE_LEAKS") -> FlowError:
        return self.scope.error(
            f"{what}, so nothing was promoted. Run the same command again, or remove the fence "
            "with twinlog switchover abort",
            code=code,
        )


def _overlaps(plans: Iterable[GroupPlan]) -> Iterator[str]:
    """Compare groups that are already in use on the target. Yield a line for each partition in
    which the group's offset there differs from the translation of its commit on the source.
    """
    for plan in plans:
        for position in plan.partitions if plan.in_use_on_target else ():
            if position.outcome is GroupOutcome.BEHIND:
                at, risk = f"at {position.now}", "records in between may be read twice"
                if position.now is None:
                    at = "without an offset"
                    risk = "its members start according to their auto.offset.reset"
                yield (
                    f"{plan.group} is in use on the target, so its offset is not changed: "
                    f"{position.target} {at}, expected {position.to} according to its offset on "
                    f"the source; {risk}"
                )
            elif position.outcome is GroupOutcome.AHEAD:
                yield (
                    f"{plan.group} is in use on the target, so its offset is not changed: "
                    f"{position.target} at {position.now}, expected {position.to} according to its "
                    "offset on the source"
                )


# Hooks: commands of the operator that switch DNS, a secret or a proxy, or stop producers. `/bin/sh`
# runs them; a hook fails if its exit code is not 0. A repeated command runs its hook again, so
# hooks must be safe to repeat. A hook's output goes to stderr unchanged, and never into a message.

STDERR: Final = 2


def run_hook(scope: CutoverScope, command: str, step: str) -> None:
    """Run the hook's command in a shell and wait until it ends. The environment contains the step,
    the flow, and both clusters' aliases and addresses.

    Raises FlowError (HOOK_FAILED) if the shell's exit code is not 0 or the shell cannot be started.
    """
    environment = {
        **os.environ,
        "TWINLOG_STEP": step,
        "TWINLOG_FLOW": scope.name,
        "TWINLOG_SOURCE": scope.config.flow.source,
        "TWINLOG_TARGET": scope.config.flow.target,
    }
    for side, settings in (("SOURCE", scope.setup.source), ("TARGET", scope.setup.target)):
        servers = ",".join(f"{host}:{port}" for host, port in settings.bootstrap)
        environment[f"TWINLOG_{side}_BOOTSTRAP"] = servers
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=environment, stdout=STDERR, check=False
        )
        why = f"its exit code is {done.returncode}" if done.returncode else ""
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        raise FlowError(
            f"{scope.name}: the hook for the step {step} failed: {why}; fix the hook, and run the "
            "same command again",
            code="HOOK_FAILED",
        )
