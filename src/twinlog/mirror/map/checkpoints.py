"""Decides which checkpoints to write, and which group offsets to set on the target.

The decisions are MirrorMaker 2's, with exact translation:

- A checkpoint is written if it is the first of its group and partition, if the group went back on
  the source, or if its target offset advanced.
- In addition, it is written if the target offset is now exact and has changed (the target topic was
  created again, or MirrorMaker 2 wrote an offset before it), or if only the upstream offset
  advanced.
- It is never written merely because the copy seems shorter than before: a limited offset does not
  go back.
- The offset of an idle group on the target is set if the group has none, or a lower one. An idle
  group is never moved back. A group that is active there is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.model import TopicPartition
from twinlog.wire.mm2_records import Checkpoint


def is_due(last: Checkpoint | None, now: Checkpoint, *, is_exact: bool) -> bool:
    """Return whether to write a checkpoint, given the last one of its group and partition."""
    if last is None:
        return True
    if now.upstream_offset < last.upstream_offset:
        return True
    if now.downstream_offset < last.downstream_offset:
        return is_exact
    return now != last


class Skipped(StrEnum):
    """Why a group, or a partition of it, is not changed on the target."""

    ACTIVE = "it is active there"
    AHEAD = "it is further there"
    NOT_A_CONSUMER = "a group of another type has that name there"
    REFUSED = "the cluster refused it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetGroup:
    """A group's state on the target."""

    is_active: bool
    has_offsets: bool
    """Whether it is a group of the same kind, so that its offsets can be set."""
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """The change to one group on the target."""

    to_set: tuple[Checkpoint, ...] = ()
    skipped: Skipped | None = None
    """Why nothing is set although there were offsets to set."""


def group_sync(target: TargetGroup | None, wanted: Iterable[Checkpoint]) -> GroupSync:
    """Return the changes for the group's state on the target (None: it does not exist there)."""
    checkpoints = tuple(wanted)
    if target is None:
        return GroupSync(to_set=checkpoints)
    lower = tuple(
        checkpoint
        for checkpoint in checkpoints
        if target.offsets.get(checkpoint.topic_partition, -1) < checkpoint.downstream_offset
    )
    if not target.has_offsets:
        return GroupSync(skipped=Skipped.NOT_A_CONSUMER if checkpoints else None)
    if target.is_active:
        return GroupSync(skipped=Skipped.ACTIVE if checkpoints else None)
    is_ahead = any(
        target.offsets.get(one.topic_partition, -1) > one.downstream_offset for one in checkpoints
    )
    return GroupSync(to_set=lower, skipped=Skipped.AHEAD if is_ahead and not lower else None)
