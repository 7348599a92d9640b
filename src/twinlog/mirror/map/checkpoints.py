"""Which checkpoints are worth writing, and which offsets of a target's group are to be set.

Decisions only, as MirrorMaker 2 takes them, with our exact translation:

- a checkpoint is written when it is the first of its group and partition, when the group went back
  on the source, or when its place on the target moved on;
- and, beyond that, when the place is now known exactly and is another one (the target topic was
  created again, or MirrorMaker 2 wrote a place before it), or when only the source's side moved;
- never when the copy merely looks shorter than it did: a clamped place does not go back;
- an offset of an idle group on the target is set where the group has none, or one before it: an
  idle group is never moved back. A group that is active there is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint


def is_due(last: Checkpoint | None, now: Checkpoint, *, is_exact: bool) -> bool:
    """Whether a checkpoint says something that the last one of its group and partition did not."""
    if last is None:
        return True
    if now.upstream_offset < last.upstream_offset:
        return True
    if now.downstream_offset < last.downstream_offset:
        return is_exact
    return now != last


class Skipped(StrEnum):
    """Why a group, or a partition of it, is left as it is on the target."""

    ACTIVE = "it is active there"
    AHEAD = "it is further there"
    NOT_A_CONSUMER = "another kind of application has that name there"
    REFUSED = "the cluster refused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup:
    """A group as the target knows it."""

    is_active: bool
    has_offsets: bool
    """Whether it is a group of the same kind, so that its offsets can be set."""
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """What to do with one group on the target."""

    to_set: tuple[Checkpoint, ...] = ()
    skipped: Skipped | None = None
    """Where nothing is set that could have been."""


def group_sync(there: TargetGroup | None, wanted: Iterable[Checkpoint]) -> GroupSync:
    """Decide from the group's state now; None where the target does not know it."""
    checkpoints = tuple(wanted)
    if there is None:
        return GroupSync(to_set=checkpoints)
    behind = tuple(
        one
        for one in checkpoints
        if there.offsets.get(one.topic_partition, -1) < one.downstream_offset
    )
    if not there.has_offsets:
        return GroupSync(skipped=Skipped.NOT_A_CONSUMER if checkpoints else None)
    if there.is_active:
        return GroupSync(skipped=Skipped.ACTIVE if checkpoints else None)
    is_ahead = any(
        there.offsets.get(one.topic_partition, -1) > one.downstream_offset for one in checkpoints
    )
    return GroupSync(to_set=behind, skipped=Skipped.AHEAD if is_ahead and not behind else None)
