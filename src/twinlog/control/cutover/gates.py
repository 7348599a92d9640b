"""The gates of a switchover: conditions that must hold before producers are stopped, with evidence.

They are checked only before the fence is set. After that, each step checks its own conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from twinlog.cluster.logs.producers import describe_producers
from twinlog.cluster.net.metadata import ClusterMetadata
from twinlog.cluster.topics.acls import SECURITY_DISABLED, topic_acls
from twinlog.control.compare import acls_off, configs_off
from twinlog.control.cutover.copies import NOTHING, Copy
from twinlog.control.cutover.fence import OTHER_FENCES, locked_out_topics
from twinlog.control.cutover.groups import GroupPlan
from twinlog.control.cutover.newest_status import NewestStatus, other_config
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.duties.acl_sync import AclChanges, find_acl_changes
from twinlog.control.duties.config_sync import find_drift
from twinlog.errors import BrokerRefused, TwinlogError, Unsupported
from twinlog.mirror.names.acl_rules import fenced_topics
from twinlog.quantities import count, first_few, plural, total
from twinlog.survey.copied_topics import copies_by_name
from twinlog.survey.open_transactions import open_transactions

HANGING_S: Final = 60.0
"""Age in seconds above which an open transaction closes the gate `transactions`. This is Kafka's
default transaction timeout of producers.
"""
FEW: Final = 5


class Gate(Struct, frozen=True, kw_only=True, rename={"name": "gate"}):
    """One condition of a switchover, with the evidence that it holds, or why it does not hold."""

    name: str
    is_open: bool
    evidence: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield a line with the gate's state and first evidence, then the rest of the evidence."""
        word = "open" if self.is_open else "CLOSED"
        first, *more = self.evidence or ("",)
        yield f"gate {self.name}: {word}: {first}"
        yield from (f"  {line}" for line in more)


class Gates:
    """Checks all gates of one scope once. Metadata of both clusters is read at creation."""

    def __init__(
        self,
        scope: CutoverScope,
        copies: Sequence[Copy],
        groups: Sequence[GroupPlan],
        newest: NewestStatus,
        excluded: Sequence[str] = (),
    ) -> None:
        """`excluded`: groups with offsets in the scope's topics, left out by `groups.exclude`."""
        self._scope = scope
        self._excluded = excluded
        self._copies = copies
        self._groups = groups
        self._newest = newest
        self._source_metadata = scope.source.metadata(None)
        self._target_metadata = scope.target.metadata(None)
        self._targets = targets = {copy.target.topic for copy in copies}
        by_name = copies_by_name(scope.config, scope.source, scope.target)
        self._remotes = {name: remote for name, remote in by_name.items() if remote in targets}

    def check_all(self, *, most_lag: int) -> list[Gate]:
        """Return all gates in the order of `GATES`. `most_lag`: maximum lag in records."""
        return [
            self._mirror(),
            self._topics(),
            self._copy(),
            self._lag(most_lag),
            self._replicas(),
            self._configs(),
            self._acls(),
            self._group_positions(),
            self._foreign(),
            self._transactions(),
        ]

    def _mirror(self) -> Gate:
        if self._scope.is_led():
            if other := other_config(self._scope):
                return _gate("mirror", other)
            status = self._newest.status
            where = f" on {status.where}" if status is not None and self._newest.is_of_now else ""
            return _gate("mirror", (), f"a mirror leads the flow{where}")
        todo = "no mirror leads the flow: start one with twinlog mirror FILE, and wait"
        return _gate("mirror", [todo])

    def _topics(self) -> Gate:
        missing = {copy.source.topic: copy.unlisted for copy in self._copies if copy.unlisted}
        problems = [f"{name}: {why}" for name, why in missing.items()]
        return _gate("topics", problems, "the source lists every partition that was copied")

    def _copy(self) -> Gate:
        problems = [
            f"{copy.source}: {copy.problem}"
            for copy in self._copies
            if copy.problem and not (copy.problem == NOTHING and copy.left == 0)
        ]
        problems += [
            f"{copy.source}: the source deleted {copy.deleted} before these offsets were copied"
            for copy in self._copies
            if copy.deleted and self._newest.missing(copy.source, copy.copied_to) != 0
        ]
        problems += self._newest.problems(self._scope.covers)
        if not self._copies:
            problems.append("the flow mirrors none of the selected topics")
        evidence = f"{plural(len(self._copies), 'partition')}, none has stopped"
        return _gate("copy", problems, evidence)

    def _lag(self, limit: int) -> Gate:
        late = [copy for copy in self._copies if copy.left]
        records = total(copy.left for copy in late) or 0
        unknown = [copy for copy in self._copies if copy.left is None and not copy.unlisted]
        evidence = f"{count(records)} records are not on the target yet (--max-lag {count(limit)})"
        if unknown:
            first = unknown[0].source
            return _gate("lag", [f"the number of missing records of {first} is unknown"])
        if records > limit:
            worst = max(late, key=lambda copy: copy.left or 0)
            return _gate(
                "lag", [evidence, f"the largest lag is {count(worst.left)}, of {worst.source}"]
            )
        return _gate("lag", (), evidence)

    def _replicas(self) -> Gate:
        problems = [*self._out_of_sync(), *self._fewer_replicas()]
        evidence = (
            "all replicas of the remote topics are in sync, and no remote topic has fewer replicas "
            "than its source topic"
        )
        return _gate("replicas", problems, evidence)

    def _out_of_sync(self) -> Iterator[str]:
        for copy in self._copies:
            partition = self._target_metadata.partition(copy.target)
            if partition is None:
                yield f"{copy.target} does not exist on the target"
            elif partition.leader < 0:
                yield f"{copy.target} has no leader"
            elif len(partition.isr) < len(partition.replicas):
                in_sync = f"{len(partition.isr)} of {len(partition.replicas)}"
                yield f"{copy.target} has {in_sync} replicas in sync"

    def _fewer_replicas(self) -> Iterator[str]:
        for source, target in sorted({(c.source.topic, c.target.topic) for c in self._copies}):
            fewer, more = (
                _replicas(self._target_metadata, target),
                _replicas(self._source_metadata, source),
            )
            if 0 < fewer < more:
                yield f"{target} has {plural(fewer, 'replica')}, but {source} has {more}"

    def _configs(self) -> Gate:
        config = self._scope.config
        if off := configs_off(config):
            evidence = f"the flow copies no configs ({off}), so none are compared"
            return _gate("configs", (), evidence)
        drift = find_drift(config, self._remotes, self._scope.source, self._scope.target)
        problems = [
            f"{remote}: {', '.join(map(str, diffs))}"
            for remote, diffs in sorted(drift.topics.items())
            if remote in self._targets
        ]
        problems += [
            f"configs of {name} cannot be read: {error}"
            for name, error in sorted(drift.unread.items())
            if self._scope.covers(name)
        ]
        evidence = f"configs of {plural(len(self._targets), 'remote topic')} are in sync"
        return _gate("configs", problems, evidence)

    def _acls(self) -> Gate:
        scope = self._scope
        why_off, changes = acls_off(scope.config), AclChanges(missing=(), leftover=())
        try:
            if not why_off:
                changes = find_acl_changes(scope.config, self._remotes, scope.source, scope.target)
            denied = fenced_topics(topic_acls(scope.target)).intersection(self._targets)
            sources = sorted({copy.source.topic for copy in self._copies})
            open_ = locked_out_topics(scope.source, sources, topic_acls(scope.source))
        except BrokerRefused as error:
            if error.code != SECURITY_DISABLED:
                raise
            return _gate("acls", (), f"no ACLs to compare: {error}", *self._fences())
        except TwinlogError as error:
            return _gate("acls", [f"ACLs cannot be compared: {error}"])
        problems = [
            f"ACL {what} on the target: {acl}"
            for what, acls in (("missing", changes.missing), ("only", changes.leftover))
            for acl in acls
            if acl.name in self._targets
        ]
        problems += [
            f"an ACL on the target denies every client WRITE on {name}" for name in sorted(denied)
        ]
        problems += [
            f"{name} on the source has no ACLs, so a fence by ACL would keep readers out as well"
            for name in open_
        ]
        evidence = "all ACLs that the flow copies are on the target"
        if why_off:
            evidence = f"the flow copies no ACLs ({why_off}), so none are compared"
        return _gate("acls", problems, evidence)

    def _fences(self) -> Iterator[str]:
        """If the source has no authorizer, yield a line with the kinds of fence that need none."""
        try:
            topic_acls(self._scope.source)
        except BrokerRefused as error:
            if error.code == SECURITY_DISABLED:
                yield OTHER_FENCES

    def _group_positions(self) -> Gate:
        problems = [
            f"group {group.group}: {position}"
            for group in self._groups
            for position in group.partitions
            if not (position.is_exact or position.waits_for_copy)
        ]
        problems += [
            line
            for group in self._groups
            for line in (*group.skipping_lines(), *group.unset_lines())
        ]
        problems += [
            f"group {group.group}: {group.problem}" for group in self._groups if group.problem
        ]
        used = [group.group for group in self._groups if group.in_use_on_target]
        notes = [f"groups already in use on the target: {first_few(used)}"] if used else []
        if self._excluded:
            excluded = first_few(self._excluded)
            notes.append(
                f"groups left out by groups.exclude, whose offsets are not set: {excluded}"
            )
        evidence = f"{plural(len(self._groups), 'group')} translated exactly"
        return _gate("groups", problems, evidence, *notes)

    def _foreign(self) -> Gate:
        ours = self._scope.rows().producers
        problems = [
            f"{copy.target}: {plural(copy.foreign, 'record')} of other clients after the copy"
            for copy in self._copies
            if copy.foreign
        ]
        targets = [copy.target for copy in self._copies if copy.is_copied]
        try:
            by_partition = describe_producers(self._scope.target, targets)
        except Unsupported:
            return _gate("foreign", (), "not checked: the target's brokers do not report producers")
        for tp, producers in by_partition.items():
            if isinstance(producers, TwinlogError):
                problems.append(f"{tp}: {producers}")
            else:
                strange = sorted(id_ for id_ in producers if id_ not in ours)
                problems += [f"{tp}: unknown producer id {id_}" for id_ in strange]
        evidence = "no other client is known to have written to remote topics"
        return _gate("foreign", problems, evidence)

    def _transactions(self) -> Gate:
        transactions = open_transactions(self._scope.source, [copy.source for copy in self._copies])
        late = [transaction for transaction in transactions if transaction.lasts_s > HANGING_S]
        evidence = _first_lines(map(str, transactions)) or ["no transaction is open"]
        return _gate("transactions", map(str, late), *evidence)


def require_open(scope: CutoverScope, gates: Iterable[Gate], accepted: Iterable[str]) -> None:
    """Raise FlowError (GATE_CLOSED) if a gate is closed and is not among the accepted ones."""
    taken = {*accepted}
    closed = [gate for gate in gates if not gate.is_open and gate.name not in taken]
    if closed:
        names = ", ".join(gate.name for gate in closed)
        raise scope.error(
            f"nothing was changed, because of closed gates ({names}). "
            f"Gate {closed[0].name}: {closed[0].evidence[0]}",
            code="GATE_CLOSED",
        )


def _gate(name: str, problems: Iterable[str], *evidence: str) -> Gate:
    """Return a gate that is closed if there are problems, else open with this evidence."""
    closed = tuple(_first_lines(problems))
    return Gate(name=name, is_open=not closed, evidence=closed or evidence)


def _first_lines(lines: Iterable[str]) -> list[str]:
    all_lines = list(lines)
    more = len(all_lines) - FEW
    return [*all_lines[:FEW], *([f"and {more} more"] if more > 0 else [])]


def _replicas(metadata: ClusterMetadata, topic: str) -> int:
    known = metadata.topics.get(topic)
    parts = () if known is None else known.partitions
    return min((len(part.replicas) for part in parts), default=0)
