"""Sets offsets of idle groups on the target to the translated ones, depending on the groups' state.

The rules are MirrorMaker 2's: the offset of an idle group is set if the group has none, or a lower
one. An idle group is never moved back, and an active group is left alone.

A group may get members after its state was read. Then the coordinator rejects the commit, so no
active group is ever rewound. If a group's offsets are left as they are, the reason is logged once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from msgspec.structs import replace

from twinlog.cluster.groups.coordinators import Coordinators
from twinlog.cluster.groups.group_list import list_groups
from twinlog.cluster.groups.group_offsets import (
    Committed,
    OffsetReader,
    commit_offsets,
    is_refused_as_active,
)
from twinlog.cluster.groups.share_groups import alter_start_offsets, fetch_share_offsets
from twinlog.control.duties.rounds import REFUSED_PAUSE_S, LedFlow
from twinlog.errors import TwinlogError, Unauthorized
from twinlog.model import TopicId, TopicPartition
from twinlog.quantities import first_few, plural
from twinlog.survey.ends import known_starts
from twinlog.wire.error_codes import GROUP_AUTHORIZATION_FAILED, lookup
from twinlog.wire.mm2_records import Checkpoint


class Skipped(StrEnum):
    """Why a group, or a partition of it, is not changed on the target."""

    ACTIVE = "in use on the target"
    AHEAD = "further on the target"
    NOT_A_CONSUMER = "a group of another type has that name on the target"
    REFUSED = "the target refused its offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup:
    """A group's state on the target."""

    is_active: bool
    has_offsets: bool
    """Whether the group has the same type as on the source, so that its offsets can be set."""
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """The change to one group on the target."""

    to_set: tuple[Checkpoint, ...] = ()
    skipped: Skipped | None = None
    """Why nothing is set although there were offsets to set, else None."""


def group_sync(target_group: TargetGroup | None, wanted: Iterable[Checkpoint]) -> GroupSync:
    """Return the change to one group. `target_group`: its state on the target, or None if it does
    not exist there. `wanted`: its translated offsets.
    """
    checkpoints = tuple(wanted)
    if target_group is None:
        return GroupSync(to_set=checkpoints)
    behind = tuple(
        checkpoint
        for checkpoint in checkpoints
        if target_group.offsets.get(checkpoint.topic_partition, -1) < checkpoint.downstream_offset
    )
    if not target_group.has_offsets:
        return GroupSync(skipped=Skipped.NOT_A_CONSUMER if checkpoints else None)
    if target_group.is_active:
        return GroupSync(skipped=Skipped.ACTIVE if checkpoints else None)
    is_ahead = any(
        target_group.offsets.get(checkpoint.topic_partition, -1) > checkpoint.downstream_offset
        for checkpoint in checkpoints
    )
    return GroupSync(to_set=behind, skipped=Skipped.AHEAD if is_ahead and not behind else None)


class GroupSyncer:
    """Sets offsets on the target, for one flow's consumer or share groups. Not thread-safe."""

    def __init__(
        self,
        flow: LedFlow,
        coordinators: Coordinators,
        *,
        is_share: bool = False,
        announce: Callable[[Sequence[Checkpoint]], None] = lambda _: None,
    ) -> None:
        """`announce` is called with the offsets before they are set."""
        self._flow = flow
        self._announce = announce
        self._coordinators = coordinators
        self._is_share = is_share
        self._read = (
            partial(fetch_share_offsets, coordinators, furthest=True)
            if is_share
            else OffsetReader(coordinators).read
        )
        self._set = alter_start_offsets if is_share else commit_offsets
        self._refused_until: dict[str, float] = {}
        self._refused: dict[str, Unauthorized] = {}
        """Groups for which this user lacked a permission in this round, with the error."""
        self.skipped: dict[str, str] = {}
        """Groups whose offsets the last round left as they are, with the reason."""
        self.recreated: frozenset[str] = frozenset()
        """Topics that the last round found deleted or re-created, and in which it set no offsets.
        """

    def sync(
        self, checkpoints: Mapping[str, Sequence[Checkpoint]], ids: Mapping[str, TopicId]
    ) -> None:
        """Run one round. `checkpoints`: the wanted offsets by group. `ids`: IDs of the topics in
        which these offsets are valid, by topic name.
        """
        now = time.monotonic()
        self._refused_until = {g: at for g, at in self._refused_until.items() if at > now}
        due = {g: c for g, c in checkpoints.items() if g not in self._refused_until}
        self.recreated = frozenset()
        self.skipped = {g: r for g, r in self.skipped.items() if g in checkpoints and g not in due}
        if not due:
            return
        states = self._states(due)
        syncs = {
            group: group_sync(target_group, due[group]) for group, target_group in states.items()
        }
        for group, sync in syncs.items():
            if sync.skipped is not None:
                self._skip(group, sync.skipped)
        self._commit({group: sync for group, sync in syncs.items() if sync.to_set}, ids)
        self._log_refused()

    def _states(self, groups: Iterable[str]) -> dict[str, TargetGroup | None]:
        """Return each group's state on the target, or None if it does not exist. A group is left
        out if its offsets cannot be read.

        Groups that are not listed are queried as well, because they may be hidden from this user.
        """
        listed_groups = list_groups(self._coordinators)
        out: dict[str, TargetGroup | None] = {}
        idle: list[str] = []
        for group in groups:
            listed_group = listed_groups.get(group)
            if listed_group is None:
                idle.append(group)
                continue
            has_offsets = listed_group.is_share if self._is_share else listed_group.has_offsets
            if has_offsets and not listed_group.is_active:
                idle.append(group)
            else:
                out[group] = TargetGroup(
                    is_active=listed_group.is_active, has_offsets=has_offsets, offsets={}
                )
        for group, offsets in self._read(idle).items():
            if isinstance(offsets, TwinlogError):
                self._skip(group, Skipped.REFUSED, self._with_needed_right(group, offsets))
                continue
            known = {tp: committed.offset for tp, committed in offsets.items()}
            target_group = TargetGroup(is_active=False, has_offsets=True, offsets=known)
            out[group] = target_group if group in listed_groups or known else None
        return out

    def _commit(self, syncs: Mapping[str, GroupSync], ids: Mapping[str, TopicId]) -> None:
        within = self._within_logs(syncs, ids)
        offsets_to_set = {
            group: {
                checkpoint.topic_partition: Committed(
                    offset=checkpoint.downstream_offset, metadata=checkpoint.metadata
                )
                for checkpoint in sync.to_set
            }
            for group, sync in within.items()
        }
        if any(offsets_to_set.values()):
            self._announce([checkpoint for sync in within.values() for checkpoint in sync.to_set])
            self._flow.confirm()
        cluster = self._flow.config.flow.target
        for group, offsets in offsets_to_set.items():
            for tp, committed in offsets.items():
                self._flow.synced.note(cluster, group, tp, committed.offset, ids[tp.topic])
        for group, answer in self._set(self._coordinators, offsets_to_set).items():
            problems = [answer] if isinstance(answer, TwinlogError) else list(answer.values())
            problem = next((problem for problem in problems if problem is not None), None)
            if problem is None:
                self.skipped.pop(group, None)
            elif is_refused_as_active(problem):
                self._skip(group, Skipped.ACTIVE)
            else:
                self._skip(group, Skipped.REFUSED, problem)

    def _within_logs(
        self, syncs: Mapping[str, GroupSync], ids: Mapping[str, TopicId]
    ) -> dict[str, GroupSync]:
        """Raise offsets to the log start, because retention may have deleted records since the
        translation. Leave out deleted topics, because Kafka deletes their committed offsets, and
        re-created topics, because translated offsets are not valid in them.
        """
        tps = {checkpoint.topic_partition for sync in syncs.values() for checkpoint in sync.to_set}
        if not tps:
            return {}
        starts = known_starts(self._coordinators.client, tps)
        topics = sorted({tp.topic for tp in tps})
        now = self._coordinators.client.metadata(topics)
        self.recreated = frozenset(topic for topic in topics if not now.has(topic, ids[topic]))

        def at_start(checkpoint: Checkpoint) -> Checkpoint:
            start = starts.get(checkpoint.topic_partition, 0)
            if checkpoint.downstream_offset >= start:
                return checkpoint
            return replace(checkpoint, downstream_offset=start)

        within = {
            group: GroupSync(
                to_set=tuple(
                    at_start(checkpoint)
                    for checkpoint in sync.to_set
                    if checkpoint.topic_partition.topic not in self.recreated
                )
            )
            for group, sync in syncs.items()
        }
        return {group: sync for group, sync in within.items() if sync.to_set}

    def _with_needed_right(self, group: str, error: TwinlogError) -> TwinlogError:
        """If the group may not be read, return an error that asks for READ instead of DESCRIBE,
        because setting offsets needs READ, which includes DESCRIBE. Return any other error
        unchanged.
        """
        if error.code != lookup(GROUP_AUTHORIZATION_FAILED).code:
            return error
        return self._coordinators.error(
            GROUP_AUTHORIZATION_FAILED, "reading offsets of", group, "READ"
        )

    def _log_refused(self) -> None:
        """Log one line for all groups for which this user lacked a permission in this round."""
        refused, self._refused = self._refused, {}
        if refused:
            self._flow.log_once(
                f"{self._flow.name}: offsets of {plural(len(refused), 'group')} on "
                f"{self._coordinators.client.alias} are left as they are "
                f"({first_few(sorted(refused))}): {refused[min(refused)]}; or set "
                "sync.group.offsets.enabled=false"
            )

    def _skip(self, group: str, why: Skipped, error: TwinlogError | None = None) -> None:
        reason = why.value if error is None else f"{why.value}: {error}"
        self.skipped[group] = reason
        if isinstance(error, Unauthorized):
            self._refused_until[group] = time.monotonic() + REFUSED_PAUSE_S
            self._refused[group] = error
        elif why is not Skipped.AHEAD:  # usual for one of two opposite flows
            self._flow.log_once(
                f"{self._flow.name}: offsets of group {group} on "
                f"{self._coordinators.client.alias} are left as they are: {reason}"
            )
